//! `lab record` and `lab replay`: record an application's traffic, send it to each target, and compare times and
//! answers.
//!
//! The crate `replay` records, reads and plays. This module holds the options, the targets and the source of the
//! initial data: a running server, or a server started on a backup. It converts the observations into rows of the
//! lab's report.

use crate::experiment::Experiment;
use crate::histogram::Latencies;
use crate::load::Lab;
use crate::options::{Common, Record, ReplayOptions as Options, TargetArgument};
use crate::progress::{Progress, signal};
use crate::report::figures::{self, plural};
use crate::result::{Fingerprint, Kind, Part, Row, TargetInfo};
use crate::target::{Target, Usage, backed_up, restored, without_secrets};
use crate::{Error, Result};
use base::random::Random;
use replay::{Grouping, Observation, Recorder, Recording, Round, Script, Settings, Speed, Tally};
use std::fs::File;
use std::io::{BufReader, Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use wire::uri::ConnectionString;

/// The experiment `replay`.
pub(crate) struct Replay {
    name: String,
    options: Options,
    shared: Arc<Shared>,
}

impl Replay {
    /// Reads a recording.
    ///
    /// # Errors
    /// It cannot be read, or contains nothing to send.
    pub(crate) fn open(path: &Path, options: Options, common: &Common) -> Result<Replay> {
        let invalid = |why: String| Error::Input(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|error| invalid(error.to_string()))?;
        // All targets of a run get the same requests.
        let spares_system = !common.targets.is_empty() && !options.in_place;
        let source = BufReader::with_capacity(1 << 20, file);
        let recording = Recording::read(source, spares_system).map_err(invalid)?;
        if recording.script.connections.is_empty() {
            return Err(invalid("it has no request that can be replayed".to_string()));
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let grouping = Grouping::of(&recording.script);
        Ok(Replay { name, options, shared: Arc::new(Shared { recording, grouping }) })
    }

    fn script(&self) -> &Script {
        &self.shared.recording.script
    }

    /// Returns the text of the pace for the report.
    fn pace(&self) -> String {
        match self.options.speed {
            Speed::Max => "as fast as replies arrived".to_string(),
            Speed::Times(1.0) => "at the recorded pace".to_string(),
            Speed::Times(factor) => format!("at {factor} times the recorded pace"),
        }
    }

    /// Plays one round on a target, and removes the data that it created.
    async fn round(&self, lab: &mut Lab, target: &Target, start: Option<&Target>) -> Result<()> {
        let is_given = !target.is_started();
        let databases = &self.script().databases;
        if is_given && !self.options.in_place {
            let there = target.databases().await?;
            if let Some(name) = databases.iter().find(|name| there.contains(name)) {
                let hint = "nothing was changed; use --in-place to replay on existing data";
                return Err(target.error(format!("already has the recording's database {name}: {hint}")));
            }
        }
        if let Some(start) = start.filter(|_| !target.is_null_server) {
            let [from, to] =
                [start, target].map(|end| ConnectionString::parse(&end.uri).map_err(|why| end.error(why)));
            let (from, to) = (from?, to?);
            let copied = tokio::task::block_in_place(|| replay::copy(&from, &to, databases));
            copied.map_err(|why| target.error(format!("the initial data could not be copied: {why}")))?;
        }
        let salt = Random::new(crate::random()).uuid();
        let before = target.usage();
        let judged = !target.is_null_server;
        let how = Round {
            speed: self.options.speed,
            check: self.options.check && judged,
            check_outcomes: judged,
            salt,
        };
        let (observations, took) = self.play(target, how, lab.progress.clone()).await?;
        let after = target.usage();
        let around = RoundContext {
            connections: self.script().connections.len() as u32,
            took,
            cpu: Usage::cpu_between(before, after),
            resident_bytes: after.map(|usage| usage.resident_bytes),
            cut: lab.progress.stopped(),
            judged,
            check: judged && self.options.check,
        };
        self.add(lab, &target.name, &observations, around);
        let (matter, depending) = self.script().differences(&observations, self.options.check);
        matter.into_iter().for_each(|text| lab.fail(target.error(text)));
        depending.into_iter().for_each(|text| lab.warn(format!("{}: {text}", target.name)));
        let keeps = is_given && self.options.in_place;
        if !(target.is_null_server || keeps) {
            target.drop_databases(databases).await?;
        }
        Ok(())
    }

    /// Plays one round on its own threads. Returns the observations and the duration.
    async fn play(
        &self,
        target: &Target,
        round: Round,
        progress: Progress,
    ) -> Result<(Vec<Observation>, Duration)> {
        let uri = ConnectionString::parse(&target.uri).map_err(|why| target.error(why))?;
        let (shared, order) = (Arc::clone(&self.shared), Arc::new(self.shared.recording.order()));
        let stopped_order = Arc::clone(&order);
        let stop = tokio::spawn(async move {
            progress.until_stopped().await;
            stopped_order.stop();
        });
        let played = tokio::task::spawn_blocking(move || shared.recording.play(&uri, &round, &order)).await;
        stop.abort();
        let played = played.map_err(|error| Error::Input(format!("the replay stopped: {error}")))?;
        played.map_err(|why| target.error(why))
    }

    /// Adds rows for a target, or a round to its existing rows.
    fn add(&self, lab: &mut Lab, target: &str, observations: &[Observation], around: RoundContext) {
        let grouping = &self.shared.grouping;
        for (way, section) in lab.report.sections.iter_mut().enumerate().take(3) {
            for (name, tally) in grouping.names[way].iter().zip(grouping.count(way, observations)) {
                let found = section.rows.iter().position(|row| row.target == target && row.case == *name);
                let at = found.unwrap_or_else(|| {
                    section.rows.push(Row::new(target, name, around.connections));
                    section.rows.len() - 1
                });
                add_to(&mut section.rows[at], tally, around, way == 0);
            }
        }
    }
}

impl Experiment for Replay {
    fn describe(&self) -> Part {
        let header = &self.script().header;
        let about = format!(
            "{} on {}, recorded from {} on {}, replayed {}{}. The target {RECORDED} has the times of the \
             recorder, which include the network to the server.",
            plural(self.script().requests(), "request"),
            plural(self.script().connections.len() as u64, "connection"),
            header.server,
            header.started.replace('T', " "),
            self.pace(),
            if self.options.start.is_some() { ", each round on a new copy of --start" } else { "" }
        );
        Part::new("replay", format!("Replay of {}", self.name), about)
    }

    fn check(&self, common: &Common) -> Result<()> {
        let sizes = ["--rate", "--find-rate", "--duration", "--connections", "--scale", "--postgres-here"];
        common.refuse(&sizes, "a replay sends the recorded requests")?;
        let refused = [
            ("without --target", common.targets.is_empty()),
            ("with more than one of --rounds", common.rounds > 1),
            ("with --start", self.options.start.is_some()),
        ];
        if let Some((how, _)) = refused.iter().find(|(_, given)| *given && self.options.in_place) {
            let message = format!("--in-place replays on existing data: it is not allowed {how}");
            return Err(Error::Input(message));
        }
        self.options.start.as_deref().map_or(Ok(()), check)?;
        for TargetArgument { name, uri } in &common.targets {
            if name == RECORDED {
                let message = "is the name of the recorded times: choose another target name";
                return Err(Error::Input(format!("{name} {message}")));
            }
            if uri.starts_with("postgres") {
                return Err(Error::Input(format!("target {name}: a replay needs MongoDB's protocol")));
            }
        }
        Ok(())
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let warnings = self.script().warnings.iter().cloned().chain(self.script().skip_reasons());
        warnings.for_each(|warning| lab.warn(warning));
        let start = match self.options.start.as_deref() {
            Some(uri) if uri.starts_with(SCHEME) => {
                let given = TargetArgument { name: "start".to_string(), uri: uri.to_string() };
                Some(Target::connect(&given).await?)
            }
            Some(backup) => Some(restored(Path::new(backup)).await?),
            None => None,
        };
        begin_sections(lab);
        let header = &self.script().header;
        lab.report.targets.push(TargetInfo {
            name: RECORDED.to_string(),
            uri: header.upstream.clone(),
            fingerprint: Fingerprint { server: header.server.clone(), ..Fingerprint::default() },
        });
        let targets = lab.targets.clone();
        lab.progress.expect(targets.len() * lab.common.rounds as usize);
        for round in 0..lab.common.rounds {
            for turn in 0..targets.len() {
                let target = &targets[(turn + round as usize) % targets.len()];
                if lab.progress.stopped() || lab.reason_of_death(target).is_some() {
                    continue;
                }
                lab.progress.begin(&target.name, format!("round {} of {}", round + 1, lab.common.rounds));
                if let Err(error) = self.round(lab, target, start.as_ref()).await {
                    lab.mark_dead(target, "it failed before");
                    lab.fail(error);
                }
                lab.progress.end(None);
            }
        }
        let took = Duration::from_micros(self.script().length.max(1));
        let connections = self.script().connections.len() as u32;
        let around = RoundContext { connections, took, ..RoundContext::default() };
        self.add(lab, RECORDED, &self.script().recorded(), around);
        Ok(())
    }
}

/// State shared by all rounds on all targets.
struct Shared {
    recording: Recording,
    grouping: Grouping,
}

/// URI scheme that distinguishes a server from a directory.
const SCHEME: &str = "mongodb";

/// Checks the value before any server is started.
///
/// # Errors
/// It is neither a server nor a directory.
fn check(start: &str) -> Result<()> {
    if start.starts_with(SCHEME) || Path::new(start).is_dir() {
        return Ok(());
    }
    Err(Error::Input(format!("--start: {start} is neither a directory nor a connection string")))
}

/// Target name of the recorded server's own times.
const RECORDED: &str = "recorded";

/// Circumstances of a round.
#[derive(Clone, Copy, Default)]
struct RoundContext {
    connections: u32,
    took: Duration,
    cpu: Option<Duration>,
    resident_bytes: Option<u64>,
    /// True if the round ended before everything was sent.
    cut: bool,
    /// True if outcomes and answers were compared.
    judged: bool,
    check: bool,
}

/// Adds the sections without rows.
fn begin_sections(lab: &mut Lab) {
    let sections = [
        (
            "all",
            "Everything",
            "An operation is one recorded request, timed from its sending to its reply. At a fixed pace, \
             the rate equals the pace.",
        ),
        ("commands", "By command", "The same requests by command, sorted by total time."),
        ("shapes", "By shape", "The same requests by shape (without their values), sorted by total time."),
    ];
    for (id, title, about) in sections {
        let at = lab.section(id, title, about, Kind::Bars);
        lab.report.sections[at].base = Some(RECORDED.to_string());
    }
}

/// Adds the counts of a tally to a row. `is_total` marks the row of all requests.
fn add_to(row: &mut Row, tally: Tally, around: RoundContext, is_total: bool) {
    let latency: Latencies = tally.latencies.iter().copied().collect();
    if latency.count() == 0 && tally.failures == 0 {
        row.note.get_or_insert_with(|| "not measured: the run stopped before".to_string());
        return;
    }
    row.failures += tally.failures;
    row.first_error = row.first_error.take().or(tally.first_error);
    row.late += tally.late;
    let is_shortened = around.cut || tally.failures > 0;
    // The processor time of the server cannot be divided by request.
    row.add(&latency, around.took.as_secs_f64(), around.cpu.filter(|_| is_total), is_shortened);
    row.resident_bytes = around.resident_bytes.filter(|_| is_total).or(row.resident_bytes);
    for (name, number, shown) in [
        ("errors differ", tally.errors, around.judged),
        ("replies differ", tally.replies, around.check),
        // Differences explained by an order that the recording does not contain.
        ("depend on an order", tally.order_dependent, tally.order_dependent != 0),
    ] {
        if shown {
            *row.extra.entry(name.to_string()).or_default() += number as f64;
        }
    }
    if tally.failures > 0 {
        row.partial = true;
        row.note.get_or_insert_with(|| "cut short: requests without a reply".to_string());
    }
    if around.cut {
        row.partial = true;
        row.note.get_or_insert_with(|| "the run was stopped early".to_string());
    }
}

/// Records until a signal ends it. The exit code is 0 if the file is complete up to that moment.
///
/// # Errors
/// Wrong options, a server that does not answer, or an existing file.
pub(crate) async fn run(options: &Record) -> Result<ExitCode> {
    let uri = ConnectionString::parse(&options.upstream).map_err(|why| upstream_error(&why))?;
    if uri.login.is_some() {
        let why = "it contains a user: omit it, because the application logs in through the recorder";
        return Err(upstream_error(&why));
    }
    let from = uri.clone();
    let chosen = tokio::task::spawn_blocking(move || replay::select_server(&from)).await;
    let chosen = chosen
        .map_err(|error| upstream_error(&error))?
        .map_err(|why| upstream_error(&format!("cannot connect: {why}")))?;
    if let Some(snapshot) = &options.snapshot {
        if !chosen.server.starts_with("Vellum") {
            let why = format!(
                "--snapshot works only for Vellum, and {} is {}: copy its data with its own tools, and give \
                 a server with the copy to replay --start",
                chosen.host, chosen.server
            );
            return Err(Error::Input(why));
        }
        backed_up(&options.upstream, snapshot)?;
    }
    let settings = Settings {
        file: options.file.clone(),
        max_size: options.max_size,
        redact: options.redact.clone(),
        redacted_uri: without_secrets(&options.upstream),
    };
    let recorder = Recorder::start(&options.listen, &uri, &chosen, &settings).await.map_err(Error::Input)?;
    let address = recorder.address().map_err(|error| upstream_error(&error))?;
    // The first line is the connection string, for programs that start this one.
    let _ = writeln!(
        stdout(),
        "mongodb://{address}/\nrecording {} at {} into {}; Ctrl-C stops the recording",
        chosen.server,
        chosen.host,
        options.file.display()
    );
    let end = async {
        tokio::select! {
            () = signal() => {}
            () = end_of_input(options.parent_pipe) => {}
        }
    };
    let (written, connections) = recorder.record(end).await;
    let early = written.why.as_ref().map(|why| format!("; it ended early: {why}")).unwrap_or_default();
    let _ = writeln!(
        stderr(),
        "{}: {} of {}, {}{early}",
        options.file.display(),
        figures::plural(written.events, "event"),
        figures::plural(connections.into(), "connection"),
        figures::bytes(written.bytes)
    );
    Ok(if written.why.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn upstream_error(why: &dyn std::fmt::Display) -> Error {
    Error::Input(format!("--upstream: {why}"))
}

/// Returns when standard input closes, if `is_awaited`.
async fn end_of_input(is_awaited: bool) {
    if !is_awaited {
        return std::future::pending().await;
    }
    let (sender, closed) = tokio::sync::oneshot::channel();
    // A thread, since the runtime would wait for a blocking read at its end.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = closed.await;
}

#[cfg(test)]
mod tests {
    use crate::replay::*;

    #[test]
    fn rows_with_requests_without_a_reply_are_partial() {
        for (failures, is_partial) in [(0, false), (1, true)] {
            let mut row = Row::new("a", "insert", 1);
            let latencies = vec![Duration::from_millis(1)];
            let tally = Tally { latencies, failures, ..Tally::default() };
            add_to(&mut row, tally, RoundContext::default(), true);
            assert_eq!(
                (row.partial, row.is_shortened(), row.note.is_some()),
                (is_partial, is_partial, is_partial)
            );
        }
    }

    #[test]
    fn a_start_is_a_server_or_a_directory() {
        assert_eq!(check("mongodb://127.0.0.1:1/"), Ok(()));
        assert_eq!(check("/tmp"), Ok(()));
        assert!(check("/nowhere/at/all").is_err());
    }
}

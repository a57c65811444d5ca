//! A run from options to report: targets, fingerprints, a private database on each, the experiment, and cleanup in
//! every case.

use crate::experiment::{self, Experiment};
use crate::load::Lab;
use crate::options::{Common, Verb, check_unique_names};
use crate::progress::Progress;
use crate::replay::{self, Replay};
use crate::result::{FORMAT, Part, Report, TargetInfo};
use crate::target::{self, Scratch, Target, Workspace};
use crate::{Error, Result, report};
use base::random::Random;
use jiff::Timestamp;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Exit code for wrong input, as usual for command lines.
const WRONG_INPUT: u8 = 2;

/// Timeout for removing the data of a run from a target: large collections take long.
const REMOVAL: Duration = Duration::from_secs(60);

/// Runs a subcommand.
pub(crate) fn verb(verb: Verb) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime
        .map_err(|error| Error::Input(format!("the runtime can't be started: {error}")))
        .and_then(|runtime| runtime.block_on(run_verb(verb)));
    done.unwrap_or_else(|error| {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "vellum lab: {error}");
        ExitCode::from(WRONG_INPUT)
    })
}

/// Returns the exit code. An error means that nothing was measured, recorded or compared.
async fn run_verb(verb: Verb) -> Result<ExitCode> {
    let (name, common) = match verb {
        Verb::Clean(common) => ("clean", common),
        Verb::WriteConcern(common) => ("write-concern", common),
        Verb::Inserts(common) => ("inserts", common),
        Verb::WorkingSet(common) => ("working-set", common),
        Verb::ErrorTracker(common) => ("error-tracker", common),
        Verb::Micro(common) => ("micro", common),
        Verb::Run { workload, common } => return run(common, experiment::Run::open(&workload)?).await,
        Verb::Workload { name } => {
            report::print(&mut std::io::stdout(), experiment::Run::own(&name)?.text())?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::All(common) => return run(common, experiment::All).await,
        Verb::Suite { command, common } => return run(common, experiment::Suite { command }).await,
        Verb::Record(record) => return replay::run(&record).await,
        Verb::Replay { recording, replay, common } => {
            let replay = Replay::open(&recording, replay, &common)?;
            return run(common, replay).await;
        }
        Verb::Compare(compare) => return report::compare::run(&compare),
    };
    run(common, experiment::Run::own(name)?).await
}

/// Runs one experiment, from its targets to its report.
async fn run<E: Experiment>(common: Common, experiment: E) -> Result<ExitCode> {
    common.check().and_then(|()| experiment.check(&common))?;
    let progress = Progress::new(common.quiet);
    let measured = measured(&common, experiment, &progress).await;
    progress.clear();
    let report = measured?;
    Ok(exit_code(&report, report::finish(&report, &common)))
}

/// Returns the exit code of a run that was measured, and prints why its output could not be written.
fn exit_code(report: &Report, finished: Result<()>) -> ExitCode {
    if let Err(error) = &finished {
        let _ = writeln!(std::io::stderr(), "vellum lab: {error}");
    }
    let partial = report.sections.iter().flat_map(|section| &section.rows).any(|row| row.partial);
    let is_complete = report.errors.is_empty() && !partial && finished.is_ok();
    if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures an experiment.
///
/// # Errors
/// No measurement was possible: an unreachable target, or wrong input.
async fn measured<E: Experiment>(common: &Common, experiment: E, progress: &Progress) -> Result<Report> {
    let began = Instant::now();
    // Short enough to type.
    let seed = common.seed.unwrap_or_else(|| crate::random() % 1_000_000_000);
    let id = run_id();
    let scratch = Scratch::temporary()?;
    progress.begin("targets", "starting".to_string());
    progress.stop_on_signals();
    let targets = tokio::select! {
        targets = targets(common, &scratch) => targets?,
        () = progress.until_stopped() => return Err(Error::Input("stopped before the first \
         measurement".to_string())),
    };
    let mut infos = Vec::new();
    for target in &targets {
        infos.push(target.info().await);
    }
    let report = empty_report(experiment.describe(), id.clone(), seed, common, infos);
    let mut lab = Lab::new(common, targets, report, progress.clone());
    let mut workspaces = Vec::new();
    let opened = async {
        for target in &lab.targets {
            workspaces.push(Workspace::open(target, &id).await?);
        }
        Ok(())
    };
    let opened = opened.await;
    if let Err(error) = if opened.is_ok() { experiment.measure(&mut lab).await } else { Ok(()) } {
        lab.fail(error);
    }
    if progress.stopped() {
        lab.fail(Error::Input("stopped early on request: missing figures were not measured".to_string()));
    }
    remove_workspaces(&mut lab, workspaces).await;
    lab.report.seconds = began.elapsed().as_secs_f64();
    opened.map(|()| lab.report)
}

/// Returns the targets of the command line. The default is Vellum at each durability level, and mongod and FerretDB if
/// available.
/// The null server is always included.
async fn targets(common: &Common, scratch: &Scratch) -> Result<Vec<Target>> {
    let mut targets = vec![target::start_null_server().await?];
    for given in &common.targets {
        targets.push(Target::connect(given).await?);
    }
    let placements = target::placements(&common.data_on, common.journal_on.as_deref(), scratch.path());
    if common.targets.is_empty() {
        targets.extend(target::durability_levels(&placements).await?);
    }
    let mongod = target::program("mongod", common.mongod.as_deref());
    if let Some(mongod) = mongod.filter(|_| common.targets.is_empty() || common.mongod.is_some()) {
        for placement in &placements {
            targets.push(target::start_mongod(&mongod, placement).await?);
        }
    }
    let ferretdb = target::program("ferretdb", common.ferretdb.as_deref());
    let starts = common.ferretdb.is_some() || common.targets.is_empty() && target::has_documentdb();
    if let Some((program, placement)) = ferretdb.zip(placements.first()).filter(|_| starts) {
        targets.push(target::start_ferretdb(&program, placement).await?);
    }
    if common.postgres_here {
        targets.extend(target::clusters(&placements).await?);
    }
    if let Some(placement) = placements.first().filter(|_| common.members_here) {
        targets.push(target::start_members(placement).await?);
    }
    check_unique_names(targets.iter().map(|target| target.name.as_str()))?;
    Ok(targets)
}

/// Removes the databases of a run. Failures become errors of the report.
async fn remove_workspaces(lab: &mut Lab, workspaces: Vec<Workspace>) {
    for workspace in workspaces {
        let target = workspace.target.clone();
        // A dead target cannot answer, and another attempt would only wait.
        if lab.reason_of_death(&target).is_none() {
            let removed = tokio::time::timeout(REMOVAL, workspace.remove()).await;
            let late = |_| Err(target.error("doesn't remove the lab's database in time"));
            removed.unwrap_or_else(late).unwrap_or_else(|error| lab.fail(error));
        }
    }
}

/// Returns a report without measurements.
pub(crate) fn empty_report(
    of: Part,
    id: String,
    seed: u64,
    common: &Common,
    infos: Vec<TargetInfo>,
) -> Report {
    let environment = [("lab", format!("vellum {}", env!("CARGO_PKG_VERSION")))].into_iter();
    let environment = environment.chain(target::machine::description());
    Report {
        format: FORMAT,
        id,
        experiment: of.experiment,
        title: of.title,
        about: of.about,
        started: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        command: command(std::env::args(), seed, common, &infos),
        seed,
        scale: common.scale,
        environment: environment.map(|(name, value)| (name.to_string(), value)).collect(),
        targets: infos,
        ..Report::default()
    }
}

/// Returns the command that repeats this run: as given, with the seed, without passwords.
fn command(all: impl Iterator<Item = String>, seed: u64, common: &Common, infos: &[TargetInfo]) -> String {
    let mut words: Vec<String> = vec!["vellum".to_string(), "lab".to_string()];
    for argument in all.skip(1) {
        let given = common.targets.iter().find(|given| argument.ends_with(&given.uri));
        let info = given.and_then(|given| infos.iter().find(|info| info.name == given.name));
        words.push(match (given, info) {
            (Some(given), Some(info)) => argument.replace(&given.uri, &info.uri),
            _ => argument,
        });
    }
    if common.seed.is_none() {
        // Options end before the dashes of a suite's command.
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(end..end, ["--seed".to_string(), seed.to_string()]);
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns a run id: date, time, and letters that distinguish runs of the same second.
fn run_id() -> String {
    let random = Random::new(crate::random());
    let letters: String = (0..4).map(|_| char::from(b'a' + (random.draw() % 26) as u8)).collect();
    format!("{}_{letters}", Timestamp::now().strftime("%Y%m%d_%H%M%S"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TargetArgument;
    use crate::result::Fingerprint;

    #[test]
    fn the_command_replays_with_the_seed_and_without_passwords() {
        let uri = "mongodb://me:secret@h/?a=1".to_string();
        let common = Common {
            targets: vec![TargetArgument { name: "a".to_string(), uri }],
            ..experiment::tests::common(&[])
        };
        let info = TargetInfo {
            name: "a".to_string(),
            uri: "mongodb://***@h/?a=1".to_string(),
            fingerprint: Fingerprint::default(),
        };
        let words = ["/x/vellum-lab", "clean", "--target", "a=mongodb://me:secret@h/?a=1"];
        let line = command(words.map(String::from).into_iter(), 7, &common, &[info]);
        assert_eq!(line, "vellum lab clean --target 'a=mongodb://***@h/?a=1' --seed 7");
        let words = ["/x/vellum-lab", "suite", "--", "npm", "test"];
        let line = command(words.map(String::from).into_iter(), 7, &common, &[]);
        assert_eq!(line, "vellum lab suite --seed 7 -- npm test");
    }

    #[test]
    fn names_of_the_labs_own_are_taken() {
        assert_eq!(check_unique_names(["null-server", "a", "b"]), Ok(()));
        assert!(check_unique_names(["null-server", "a", "null-server"]).is_err());
    }

    #[test]
    fn an_output_that_cannot_be_written_is_a_failure_and_no_wrong_input() {
        let code = |finished| format!("{:?}", exit_code(&Report::default(), finished));
        assert_eq!(code(Ok(())), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(code(Err(Error::File("full".to_string()))), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn ids_differ() {
        assert_ne!(run_id(), run_id());
        assert_eq!(run_id().len(), "20261120_143000_abcd".len());
    }
}

//! Replays recordings of a real MongoDB and prevents the rate of equal answers from falling.
//!
//! `tests/recordings/rates.txt` has the number of equal exchanges of each file. Fewer fail the test, more are stored
//! with `VELLUM_BLESS=1`. `tests/recordings/allowed.txt` lists every exchange that may differ, with the reason; its
//! head describes the format. An unlisted difference fails the test, and so does a listed exchange without one.
//! `VELLUM_RECORDING=core/foo` shows the first differences (five, or `VELLUM_RECORDING_COUNT`) of files with matching
//! names, with both replies.

use crate::describe::pretty;
use crate::replay::{Exchange, Leniency, Replay, Verdict};
use crate::server::Server;
use crate::{bless, print_line, root};
use base::bson::{Document, DocumentBuf, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const GROUPS: [&str; 8] =
    ["aggregation", "capped", "collation", "core", "explain", "geo", "text", "validation"];

/// Number of exchanges, and of equal ones.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct Rate {
    same: usize,
    total: usize,
}

impl Rate {
    fn count(&mut self, same: bool) {
        self.same += usize::from(same);
        self.total += 1;
    }
}

/// Commands and paths in their replies, without positions in arrays.
type Paths = BTreeSet<(String, String)>;

/// Allowed differences: single lines of recordings, and fields of a command's replies.
#[derive(Default)]
pub(crate) struct Allowed {
    pub(crate) lines: BTreeSet<String>,
    fields: Paths,
    /// Documents whose fields may come in any order.
    orders: Paths,
}

impl Allowed {
    /// Returns the differences from MongoDB 4.2 that are allowed on every engine.
    pub(crate) fn load() -> Allowed {
        let allowed = Allowed::read("tests/recordings/allowed.txt");
        let text = std::fs::read_to_string(root().join("tests/recordings/allowed.txt")).unwrap_or_default();
        let sources = [".cpp", ".h", ".idl", "db/commands"];
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert!(
                sources.iter().any(|kind| line.contains(kind)),
                "allowed.txt: a reason without its source: {line}"
            );
        }
        allowed
    }

    /// Parses a list of this format.
    pub(crate) fn read(list: &str) -> Allowed {
        let text = std::fs::read_to_string(root().join(list)).unwrap_or_default();
        let mut allowed = Allowed::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<_> = line.split_whitespace().collect();
            match words.as_slice() {
                ["field", command, path, _reason, ..] => {
                    allowed.fields.insert((command.to_string(), path.to_string()));
                }
                ["order", command, path, _reason, ..] => {
                    allowed.orders.insert((command.to_string(), path.to_string()));
                }
                [place, _reason, ..] if place.contains(':') => allowed.add_lines(place),
                _ => panic!("{list}: a line without a reason: {line}"),
            }
        }
        allowed
    }

    /// Adds the differences of another list.
    pub(crate) fn extend(&mut self, other: Allowed) {
        self.lines.extend(other.lines);
        self.fields.extend(other.fields);
        self.orders.extend(other.orders);
    }

    /// Adds `group/name:1,5-7`: lines and ranges of lines.
    fn add_lines(&mut self, place: &str) {
        let (name, lines) = place.split_once(':').unwrap_or_default();
        for part in lines.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number =
                |text: &str| -> usize { text.parse().unwrap_or_else(|_| panic!("no line number: {place}")) };
            self.lines.extend((number(first)..=number(last)).map(|line| format!("{name}:{line}")));
        }
    }
}

impl Leniency for Allowed {
    fn skips(&self, command: &str, path: &str) -> bool {
        self.fields.contains(&(command.to_string(), path.to_string()))
    }

    fn reorders(&self, command: &str, path: &str) -> bool {
        self.orders.contains(&(command.to_string(), path.to_string()))
    }
}

/// Counts over all files.
#[derive(Default)]
pub(crate) struct Totals {
    files: BTreeMap<String, Rate>,
    pub(crate) groups: BTreeMap<String, Rate>,
    pub(crate) commands: BTreeMap<String, Rate>,
    operators: BTreeMap<String, Rate>,
    unordered: usize,
    /// Listed places that differ.
    pub(crate) allowed: BTreeSet<String>,
    /// Unlisted places that differ.
    pub(crate) unlisted: Vec<String>,
    /// The exchange that took longest.
    pub(crate) slowest: (Duration, String),
}

impl Totals {
    fn count(&mut self, file: &str, exchange: &Exchange, same: bool) {
        let group = file.split('/').next().unwrap_or(file);
        self.files.entry(file.to_string()).or_default().count(same);
        self.groups.entry(group.to_string()).or_default().count(same);
        self.commands.entry(exchange.name().to_string()).or_default().count(same);
        for operator in exchange.operators() {
            self.operators.entry(operator).or_default().count(same);
        }
    }

    fn merge(&mut self, other: Totals) {
        let maps = [
            (&mut self.files, other.files),
            (&mut self.groups, other.groups),
            (&mut self.commands, other.commands),
            (&mut self.operators, other.operators),
        ];
        for (own, others) in maps {
            for (name, rate) in others {
                let sum = own.entry(name).or_default();
                sum.same += rate.same;
                sum.total += rate.total;
            }
        }
        self.unordered += other.unordered;
        self.allowed.extend(other.allowed);
        self.unlisted.extend(other.unlisted);
        if other.slowest > self.slowest {
            self.slowest = other.slowest;
        }
    }

    /// Returns the summary to store.
    fn summary(&self) -> String {
        let mut text =
            "# Exchanges answered as the recorded MongoDB did, of all; see tests/it/recordings.rs.\n"
                .to_string();
        let kinds = [
            ("group", &self.groups),
            ("command", &self.commands),
            ("operator", &self.operators),
            ("file", &self.files),
        ];
        for (kind, rates) in kinds {
            for (name, rate) in rates {
                text.push_str(&format!("{kind} {name} {} {}\n", rate.same, rate.total));
            }
        }
        text
    }
}

/// Returns the folder of unpacked recordings; `None` if they are missing.
pub(crate) fn unpack() -> Option<PathBuf> {
    let archive = shared_folders().into_iter().map(|folder| folder.join("vectors/vectors.tar.xz"));
    let archive = archive.into_iter().find(|path| path.exists())?;
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("recordings");
    if !target.join("core").exists() {
        std::fs::create_dir_all(&target).unwrap();
        let status = Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&target).status().unwrap();
        assert!(status.success(), "tar cannot unpack {}", archive.display());
    }
    // The archive may have one folder around the groups.
    let inner = std::fs::read_dir(&target).unwrap().flatten().map(|entry| entry.path());
    Some(inner.into_iter().find(|path| path.join("core").is_dir()).unwrap_or(target))
}

/// Returns possible places of shared files: next to the tree, or next to the main checkout of a git worktree.
fn shared_folders() -> Vec<PathBuf> {
    let mut folders = vec![root().join("../shared")];
    let git = Command::new("git")
        .args(["rev-parse", "--path-format=absolute", "--git-common-dir"])
        .current_dir(root())
        .output();
    if let Ok(output) = git {
        let common = String::from_utf8_lossy(&output.stdout).trim().to_string();
        folders.push(Path::new(&common).join("../../shared"));
    }
    folders
}

/// Returns names (`group/name`) and paths of all recordings whose name contains the filter.
pub(crate) fn recordings(folder: &Path) -> Vec<(String, PathBuf)> {
    let filter = std::env::var("VELLUM_RECORDING").unwrap_or_default();
    let mut files = Vec::new();
    for group in GROUPS {
        for entry in std::fs::read_dir(folder.join(group)).into_iter().flatten().flatten() {
            let path = entry.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_string();
            files.push((format!("{group}/{stem}"), path));
        }
    }
    files.retain(|(name, _)| name.contains(&filter));
    files.sort();
    files
}

/// Starts a server; `None` if the binary has none.
type Start<'a> = &'a (dyn Fn() -> Option<Server> + Sync);

/// Replays files on one server, and restarts it if it dies.
struct Runner<'a> {
    server: Server,
    start: Start<'a>,
    allowed: &'a Allowed,
    totals: Totals,
    /// Number of differences of a file to describe, and the remaining number for this file.
    details: usize,
    details_left: usize,
    report: String,
}

impl Runner<'_> {
    fn file(&mut self, name: &str, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap();
        let exchanges: Vec<_> = text.lines().map(Exchange::parse).collect();
        let databases = exchanges.iter().map(|exchange| exchange.database().to_string()).collect();
        if self.server.empty(&databases).is_err() {
            self.restart();
        }
        let mut replay = Replay::default();
        let mut connections = BTreeMap::new();
        self.details_left = self.details;
        for (at, exchange) in exchanges.iter().enumerate() {
            let place = format!("{name}:{}", at + 1);
            let client = match connections.remove(&exchange.connection) {
                Some(client) => Ok(client),
                None => self.server.connect(),
            };
            let started = Instant::now();
            let outcome = client.and_then(|mut client| {
                let outcome = replay.exchange(exchange, &mut client, self.allowed)?;
                connections.insert(exchange.connection, client);
                Ok(outcome)
            });
            if started.elapsed() > self.totals.slowest.0 {
                self.totals.slowest = (started.elapsed(), place.clone());
            }
            let alive = outcome.is_ok();
            let same = match outcome {
                Ok((verdict, reply)) => self.judge(&place, exchange, verdict, reply.as_ref()),
                Err(error) => self.fail(&place, exchange, &error),
            };
            self.totals.count(name, exchange, same);
            if !alive {
                // After a hang or a crash the remaining exchanges of the file are skipped.
                let rest = exchanges.get(at + 1..).unwrap_or(&[]);
                rest.iter().for_each(|exchange| self.totals.count(name, exchange, false));
                return self.restart();
            }
        }
    }

    /// Counts and describes a reply. Returns whether it is acceptable.
    fn judge(
        &mut self,
        place: &str,
        exchange: &Exchange,
        verdict: Verdict,
        reply: Option<&DocumentBuf>,
    ) -> bool {
        match verdict {
            Verdict::Same => true,
            Verdict::Unordered => {
                self.totals.unordered += 1;
                true
            }
            Verdict::Different { .. } if self.allowed.lines.contains(place) => {
                self.totals.allowed.insert(place.to_string());
                false
            }
            Verdict::Different { path, expected, actual } => {
                self.totals.unlisted.push(place.to_string());
                let first = format!("{path}\n  expected {expected}\n  got      {actual}");
                self.describe(place, exchange, reply, &first);
                false
            }
        }
    }

    fn fail(&mut self, place: &str, exchange: &Exchange, error: &std::io::Error) -> bool {
        let first = format!("no reply: {error}; the server's log ends\n{}", self.server.log_tail());
        // Always described: a server must neither die nor hang.
        self.details_left = self.details_left.max(1);
        self.describe(place, exchange, None, &first);
        self.totals.unlisted.push(place.to_string());
        false
    }

    fn describe(&mut self, place: &str, exchange: &Exchange, reply: Option<&DocumentBuf>, first: &str) {
        if self.details_left > 0 {
            self.details_left -= 1;
            self.report.push_str(&describe(place, exchange, reply.map(DocumentBuf::view), first));
        }
    }

    fn restart(&mut self) {
        if let Some(server) = (self.start)() {
            self.server = server;
        }
    }
}

/// Describes a difference for the search of its cause.
fn describe(place: &str, exchange: &Exchange, reply: Option<Document<'_>>, first: &str) -> String {
    const LINES_MAX: usize = 40;
    let shorten = |value: Document<'_>| {
        let text = pretty(Value::Document(value));
        let lines: Vec<_> = text.lines().collect();
        let more = if lines.len() > LINES_MAX { "\n  …" } else { "" };
        format!("{}{more}", lines[..lines.len().min(LINES_MAX)].join("\n"))
    };
    let expected = exchange.reply.as_ref().map_or(String::new(), |reply| shorten(reply.view()));
    let actual = reply.map_or(String::new(), shorten);
    format!(
        "=== {place}\n{}\n--- first difference\n{first}\n--- expected\n{expected}\n--- got\n{actual}\n\n",
        shorten(exchange.command.view())
    )
}

/// Replays all files over two servers, and describes up to `details` differences of each. `None` if the binary has no
/// server.
pub(crate) fn replay_all(
    files: &[(String, PathBuf)],
    details: usize,
    allowed: &Allowed,
    start: Start<'_>,
) -> Option<(Totals, String)> {
    let queue = Mutex::new(files.iter());
    let merged = Mutex::new(Some((Totals::default(), String::new())));
    let worker = || {
        let Some(server) = start() else {
            *merged.lock().unwrap() = None;
            return;
        };
        let mut runner = Runner {
            server,
            start,
            allowed,
            totals: Totals::default(),
            details,
            details_left: 0,
            report: String::new(),
        };
        loop {
            let next = queue.lock().unwrap().next();
            let Some((name, path)) = next else { break };
            runner.file(name, path);
        }
        if let Some((totals, report)) = merged.lock().unwrap().as_mut() {
            totals.merge(runner.totals);
            report.push_str(&runner.report);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2.min(files.len()) {
            scope.spawn(worker);
        }
    });
    merged.into_inner().unwrap()
}

/// Returns the files whose rate is below the stored one.
fn fallen(recorded: &str, totals: &Totals) -> Vec<String> {
    let mut fallen = Vec::new();
    for line in recorded.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["file", name, same, _] = words.as_slice()
            && let Some(rate) = totals.files.get(*name)
            && rate.same < same.parse().unwrap_or(0)
        {
            fallen.push(format!("{name}: {} of {}, was {same}", rate.same, rate.total));
        }
    }
    fallen
}

pub(crate) fn table(title: &str, rates: &BTreeMap<String, Rate>, rows_max: usize) -> String {
    let mut rows: Vec<_> = rates.iter().collect();
    // The files with most differences come first.
    rows.sort_by_key(|(_, rate)| std::cmp::Reverse(rate.total - rate.same));
    let row = |(name, rate): &(&String, &Rate)| {
        let percent = 100.0 * rate.same as f64 / rate.total.max(1) as f64;
        format!("  {name:<28} {:>6} of {:>6}  {percent:>5.1} %\n", rate.same, rate.total)
    };
    format!("{title}\n{}", rows.iter().take(rows_max).map(row).collect::<String>())
}

/// Returns the number of differences to show for each file.
pub(crate) fn details() -> usize {
    let count = std::env::var("VELLUM_RECORDING_COUNT").ok().and_then(|count| count.parse().ok());
    if std::env::var_os("VELLUM_RECORDING").is_some() { count.unwrap_or(5) } else { 0 }
}

#[test]
fn recorded_replies_are_equal() {
    let Some(folder) = unpack() else { return print_line("recordings skipped: there is no ../shared") };
    let files = recordings(&folder);
    let (details, allowed) = (details(), Allowed::load());
    let detailed = details > 0;
    let started = Instant::now();
    let Some((totals, report)) = replay_all(&files, details, &allowed, &Server::start) else {
        return print_line("recordings skipped: the binary has no server");
    };
    print_line(&report);
    if !detailed {
        print_line(&table("operators and stages that differ most", &totals.operators, 25));
    }
    print_line(&table("commands", &totals.commands, 50));
    print_line(&table("groups", &totals.groups, 50));
    let (unordered, differ) = (totals.unordered, totals.allowed.len());
    print_line(&format!(
        "{unordered} in another order, {differ} differ with a reason, {:?}",
        started.elapsed()
    ));
    print_line(&format!("the slowest exchange, {}, took {:?}", totals.slowest.1, totals.slowest.0));
    let path = root().join("tests/recordings/rates.txt");
    if bless() && !detailed {
        return std::fs::write(path, totals.summary()).unwrap();
    }
    let fallen = fallen(&std::fs::read_to_string(path).unwrap_or_default(), &totals);
    assert!(fallen.is_empty(), "fewer answers are right than before:\n{}", fallen.join("\n"));
    assert_eq!(totals.unlisted, Vec::<String>::new(), "these differ without a reason in allowed.txt");
    let idle: Vec<_> = allowed.lines.difference(&totals.allowed).filter(|_| !detailed).collect();
    assert_eq!(idle, Vec::<&String>::new(), "these are in allowed.txt and don't differ");
}

#[test]
fn falling_rates_are_found() {
    let mut totals = Totals::default();
    totals.files.insert("core/a".to_string(), Rate { same: 3, total: 5 });
    assert_eq!(fallen("file core/a 3 5\nfile core/b 9 9\n", &totals), Vec::<String>::new());
    assert_eq!(fallen("file core/a 4 5\n", &totals), ["core/a: 3 of 5, was 4"]);
}

//! Runs the golden scripts of `tests/scripts` over a socket.
//!
//! Each command has its reply below it, marked with `=`:
//!
//! ```text
//! # Inserting the same _id twice.
//! {insert: "c", documents: [{_id: 1}]}
//! = {n: 1, ok: 1}
//! ! {insert: "c", documents: [{_id: 1}]}
//! = {
//!     n: 0,
//!     writeErrors: [{index: 0, code: 11000, …}],
//!     ok: 1
//!   }
//! s2: {count: "c"}
//! = {n: 1, ok: 1}
//! ```
//!
//! - A command is a document in extended JSON or the shell's form. It starts at the beginning of a line and may take
//!   several lines.
//! - Further lines of a reply are indented by two spaces. Blank lines have no meaning.
//! - `use db2` changes the database for all commands below. The first database is `test`.
//! - `s2:` names another connection.
//! - `!` expects an error: of the command, of a write, or of the write concern.
//! - `#` starts a comment.
//! - `login user@db password [mechanism]` logs in and shows the last reply. The default is SCRAM-SHA-256.
//!
//! Every script starts on an empty server. Values that change from run to run have names: see
//! [`unstable`](crate::unstable). Some folders are for a replica set or for a server with `--auth`.

use crate::client::Client;
use crate::describe::pretty;
use crate::mirrored::Kind;
use crate::server::Server;
use crate::unstable::Names;
use crate::{bless, print_line, root};
use base::bson::extended_json::parse_prefix;
use base::bson::{Builder, Document, DocumentBuf, Value};
use postgres::testing::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;
use wire::scram::Mechanism;

/// One command of a script.
struct Step {
    line: usize,
    /// The text between the previous reply and this one: comments, `use`, the command.
    head: String,
    connection: String,
    expects_error: bool,
    /// The command with its `$db`. Empty for `login`.
    command: DocumentBuf,
    login: Option<Login>,
    /// The expected reply without its mark. A new command has none.
    expected: String,
}

/// The arguments of `login`.
struct Login {
    user: String,
    db: String,
    password: String,
    mechanism: Mechanism,
}

/// Reads the lines of a script in order.
struct Lines<'t> {
    lines: Vec<&'t str>,
    at: usize,
    database: String,
}

/// Reads a script: its commands and the text after the last reply. Errors name the line.
fn parse_script(text: &str) -> Result<(Vec<Step>, String), String> {
    let mut lines = Lines { lines: text.lines().collect(), at: 0, database: "test".to_string() };
    let mut steps = Vec::new();
    loop {
        let begin = lines.at;
        let Some(mut step) = lines.command()? else {
            return Ok((steps, joined(&lines.lines[begin..])));
        };
        step.head = joined(&lines.lines[begin..lines.at]);
        step.expected = lines.reply()?;
        steps.push(step);
    }
}

fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

impl Lines<'_> {
    /// Reads the next command, without its head and reply. `None` at the end.
    fn command(&mut self) -> Result<Option<Step>, String> {
        while let Some(&line) = self.lines.get(self.at) {
            self.at += 1;
            let number = self.at;
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_prefix("use ") {
                self.database = name.trim().to_string();
                continue;
            }
            if line.starts_with(['=', ' ', '\t']) {
                return Err(format!("line {number}: neither a command nor the reply to one: {line}"));
            }
            let (connection, line) = split_connection(line.trim_end());
            let expects_error = line.starts_with('!');
            let text = line.trim_start_matches('!').trim_start();
            let (command, login) = match text.strip_prefix("login ") {
                Some(words) => {
                    let login =
                        read_login(words).ok_or_else(|| format!("line {number}: login user@db password"))?;
                    (DocumentBuf::default(), Some(login))
                }
                None => (self.document(text)?, None),
            };
            let (head, expected) = Default::default();
            return Ok(Some(Step {
                line: number,
                head,
                connection,
                expects_error,
                command,
                login,
                expected,
            }));
        }
        Ok(None)
    }

    /// Reads a document that begins with this text. Lines are added until it parses.
    fn document(&mut self, begin: &str) -> Result<DocumentBuf, String> {
        let number = self.at;
        let mut text = begin.to_string();
        loop {
            let error = match parse_prefix(&text) {
                Ok((command, rest)) if rest.trim().is_empty() || rest.trim().starts_with('#') => {
                    return Ok(with_database(command, &self.database));
                }
                Ok((_, rest)) => return Err(format!("line {number}: {rest:?} behind a command")),
                Err(error) => error,
            };
            let Some(line) = self.lines.get(self.at).filter(|line| !line.starts_with('=')) else {
                return Err(format!("line {number}: {}", error.message()));
            };
            text.push('\n');
            text.push_str(line);
            self.at += 1;
        }
    }

    /// Reads the reply below a command. A new command has none.
    fn reply(&mut self) -> Result<String, String> {
        let number = self.at + 1;
        let Some(first) = self.lines.get(self.at).and_then(|line| line.strip_prefix("= ")) else {
            return Ok(String::new());
        };
        let further = self.lines[self.at + 1..].iter().map_while(|line| line.strip_prefix("  "));
        let lines: Vec<_> = std::iter::once(first).chain(further).collect();
        self.at += lines.len();
        let reply = lines.join("\n");
        // A command that is indented by mistake must not count as a part of the reply.
        match parse_prefix(&reply) {
            Ok((_, rest)) if !rest.trim().is_empty() => {
                Err(format!("line {number}: {rest:?} behind a reply"))
            }
            _ => Ok(reply),
        }
    }
}

/// Returns a reply as a script shows it.
fn marked(reply: &str) -> String {
    format!("= {}\n", reply.replace('\n', "\n  "))
}

fn read_login(words: &str) -> Option<Login> {
    let mut words = words.split_whitespace();
    let (user, db) = words.next()?.rsplit_once('@')?;
    let password = words.next()?.to_string();
    let mechanism = words.next().map_or(Some(Mechanism::Sha256), Mechanism::of_name)?;
    Some(Login { user: user.to_string(), db: db.to_string(), password, mechanism })
}

/// Removes `name:` from the start of a line.
fn split_connection(line: &str) -> (String, &str) {
    match line.split_once(':') {
        Some((name, rest)) if name.starts_with('s') && name[1..].bytes().all(|b| b.is_ascii_digit()) => {
            (name.to_string(), rest.trim_start())
        }
        _ => (String::new(), line),
    }
}

fn with_database(command: DocumentBuf, database: &str) -> DocumentBuf {
    if command.view().find("$db").is_some() {
        return command;
    }
    let mut out = Builder::new();
    out.append_all(command.view()).append(c"$db", database);
    out.finish()
}

/// Returns true if the reply contains an error.
fn is_error(reply: Document<'_>) -> bool {
    let ok = reply.get("ok").and_then(|ok| ok.as_i64()) == Some(1);
    !ok || reply.find("writeErrors").is_some() || reply.find("writeConcernError").is_some()
}

/// Distribution of commands over servers that share a store.
#[derive(Clone, Copy, PartialEq)]
enum FrontChoice {
    /// In turn, except for open cursors and logical sessions, which belong to a server.
    ByStatement,
    /// By connection.
    ByConnection,
}

/// Connections and names of a running script.
struct Run<'s> {
    server: &'s Server,
    connections: BTreeMap<(String, usize), Client>,
    front_choice: FrontChoice,
    /// Number of commands or connections so far.
    turn: usize,
    /// Servers of cursors, sessions and connections.
    places: BTreeMap<String, usize>,
    names: Names,
    /// Replies that contradict the `!` marks.
    surprises: Vec<String>,
}

impl Run<'_> {
    /// Returns the text of the reply to a step.
    fn step(&mut self, step: &Step) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| format!("line {}: {error}", step.line);
        let command = self.names.resolve(step.command.view());
        let front = self.front(step, command.view());
        let place = (step.connection.clone(), front);
        if !self.connections.contains_key(&place) {
            let client = self.server.connect_to(front).map_err(|error| failed(&error))?;
            self.connections.insert(place.clone(), client);
        }
        let client = self.connections.get_mut(&place).unwrap();
        let replied = match &step.login {
            None => client.command(&command),
            Some(Login { user, db, password, mechanism }) => {
                client.login((user, db), password, *mechanism).map(without_payload)
            }
        };
        let reply = replied.map_err(|error| {
            failed(&format!("{error}; the server's log ends\n{}", self.server.log_tail()))
        })?;
        if let Some(id) = cursor_of(reply.view()) {
            self.places.insert(format!("cursor {id}"), front);
        }
        let reply = self.names.normalise(reply.view());
        let text = pretty(Value::Document(reply.view()));
        if is_error(reply.view()) != step.expects_error {
            let expectation =
                if step.expects_error { "an error was expected" } else { "no error was expected" };
            self.surprises.push(failed(&format!("{expectation}, but the reply is\n{text}\n")));
        }
        Ok(text)
    }
}

impl Run<'_> {
    /// Returns the server for a command.
    fn front(&mut self, step: &Step, command: Document<'_>) -> usize {
        let connection = || format!("connection {}", step.connection);
        let place = match self.front_choice {
            FrontChoice::ByConnection => Some(connection()),
            FrontChoice::ByStatement => belongs_to(command),
        };
        let next = self.turn % self.server.fronts();
        let front = match place {
            Some(place) => *self.places.entry(place).or_insert(next),
            None => next,
        };
        self.turn += usize::from(front == next);
        front
    }
}

/// Returns a reply without fields that differ in every SASL conversation.
fn without_payload(reply: DocumentBuf) -> DocumentBuf {
    let mut out = Builder::new();
    for element in reply.view().iter().filter(|element| element.name() != "payload") {
        out.append_element(&element);
    }
    out.finish()
}

/// Returns the cursor or the logical session of a command.
fn belongs_to(command: Document<'_>) -> Option<String> {
    let cursor = command.get("getMore").and_then(|id| id.as_i64()).or_else(|| {
        command.get("killCursors")?;
        command.get("cursors")?.as_array()?.get(0)?.as_i64()
    });
    if let Some(id) = cursor {
        return Some(format!("cursor {id}"));
    }
    let session = command.get("lsid").or_else(|| {
        let first = command.first()?;
        let lists = matches!(first.name(), "endSessions" | "killSessions" | "refreshSessions");
        first.value().as_array().filter(|_| lists)?.get(0)
    });
    let id = session?.as_document()?.get("id")?;
    Some(format!("session {id}"))
}

fn cursor_of(reply: Document<'_>) -> Option<i64> {
    reply.get("cursor")?.as_document()?.get("id")?.as_i64().filter(|&id| id != 0)
}

/// Result of a script.
struct Outcome {
    /// The script with the actual replies.
    written: String,
    /// Differences from the expected replies.
    differences: Vec<String>,
    /// Unexpected errors, and missing expected errors.
    surprises: Vec<String>,
}

/// Runs a script to its end.
fn run_script(server: &Server, text: &str, front_choice: FrontChoice) -> Result<Outcome, String> {
    let (steps, tail) = parse_script(text)?;
    let databases: BTreeSet<_> = steps
        .iter()
        .filter_map(|step| step.command.view().get("$db").and_then(|db| db.as_str()).map(str::to_string))
        .collect();
    let emptied = if server.is_guarded() { Ok(()) } else { server.empty(&databases) };
    emptied.map_err(|error| format!("emptying the server: {error}\n{}", server.log_tail()))?;
    let mut run = Run {
        server,
        connections: BTreeMap::new(),
        front_choice,
        turn: 0,
        places: BTreeMap::new(),
        names: Names::new(text),
        surprises: Vec::new(),
    };
    let (mut written, mut differences) = (String::new(), Vec::new());
    for step in &steps {
        let reply = run.step(step)?;
        if reply != step.expected {
            differences.push(format!("line {}\n{}", step.line, difference(&step.expected, &reply)));
        }
        written.push_str(&step.head);
        written.push_str(&marked(&reply));
    }
    written.push_str(&tail);
    Ok(Outcome { written, differences, surprises: run.surprises })
}

/// Returns the different lines, expected ones with `-` and actual ones with `+`.
fn difference(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let removed = old[start..old.len() - end].iter().map(|line| format!("  - {line}\n"));
    let added = new[start..new.len() - end].iter().map(|line| format!("  + {line}\n"));
    removed.chain(added).collect()
}

/// Returns all scripts, in order, whose name contains `VELLUM_SCRIPT`.
fn script_files() -> Vec<PathBuf> {
    let filter = std::env::var("VELLUM_SCRIPT").unwrap_or_default();
    let mut files = Vec::new();
    collect(&root().join("tests/scripts"), &mut files);
    files.retain(|file| file.to_string_lossy().contains(&filter));
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "script") {
            files.push(path);
        }
    }
}

/// Runs one file. The error is ready for printing.
fn run_file(server: &Server, file: &Path) -> Result<(), String> {
    run_file_by(server, file, FrontChoice::ByStatement)
}

fn run_file_by(server: &Server, file: &Path, front_choice: FrontChoice) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut outcome = run_script(server, &text, front_choice)?;
    if bless() {
        if !outcome.differences.is_empty() {
            std::fs::write(file, outcome.written).map_err(|error| error.to_string())?;
        }
        outcome.differences.clear();
    }
    let failures = [outcome.surprises, outcome.differences].concat();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("")) }
}

/// Scripts with other replies over PostgreSQL: name, colon and reason on each line.
const POSTGRES_DIFFERENCES: &str = "tests/scripts/postgres.differences";

/// Scripts of sets with equal replies over PostgreSQL.
const OF_FRONTS: [&str; 3] = ["replica-set/changeStreams.script", "replica-set/text.script", TRANSACTIONS];

/// A script of sets that also runs on two servers.
const TRANSACTIONS: &str = "replica-set/transactions.script";

/// Scripts with other replies if two servers get commands in turn, listed in the same format.
const TWO_DATABASES_DIFFERENCES: &str = "tests/scripts/two-databases.differences";

/// Folders of scripts for a replica set, for a server with users or for another version. Each script gets a new server,
/// since its changes cannot be reverted.
const SET_FOLDERS: [(&str, Kind); 4] = [
    ("tests/scripts/9.0", Kind::Newest),
    ("tests/scripts/replica-set", Kind::Set),
    ("tests/scripts/uninitiated", Kind::Uninitiated),
    ("tests/scripts/users", Kind::Users),
];

#[test]
fn scripts() {
    run_all("scripts", |kind| match kind {
        Kind::Alone => Server::start(),
        Kind::Set => Server::start_with(&["--replset", "rs0"]),
        Kind::Users => Server::start_with(&["--auth"]),
        Kind::Newest => Server::start_with(&["--compatible-with", "9.0"]),
        // Only the program in mongod's place waits for replSetInitiate.
        Kind::Uninitiated => Some(Server::mirrored(kind)),
    });
}

/// A server in this process with two engines, in memory and on disk, compared at every answer, gives equal replies.
#[test]
fn scripts_on_two_engines() {
    if !bless() && std::env::var_os("VELLUM_SERVER").is_none() {
        run_all("scripts on two engines", |kind| Some(Server::mirrored(kind)));
    }
}

/// Two servers, each with its own database on one store, give equal replies in turn. Scripts about the state of one
/// server are listed with the reason: each connection then has its own server.
#[test]
fn scripts_on_two_databases() {
    if bless() || std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let listed = listed(TWO_DATABASES_DIFFERENCES);
    let (differing, files): (Vec<_>, Vec<_>) =
        alone().into_iter().partition(|file| listed.contains_key(&name_of(file)));
    let what = "scripts on two databases";
    run_files(what, &files, false, || Some(Server::on_two_databases(Kind::Alone)));
    // Each server is the only member of its set, so most scripts of sets concern a single server.
    let of_sets: Vec<_> = script_files().into_iter().filter(|file| name_of(file) == TRANSACTIONS).collect();
    run_files(what, &of_sets, true, || Some(Server::on_two_databases(Kind::Set)));
    let mut failures = Vec::new();
    for file in &differing {
        let server = || Server::on_two_databases(Kind::Alone);
        if run_file(&server(), file).is_ok() {
            failures.push(format!("{} passes, and has no place in the list", file.display()));
        } else if let Err(error) = run_file_by(&server(), file, FrontChoice::ByConnection) {
            failures.push(format!("{}: {error}", file.display()));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// A server over PostgreSQL gives equal replies, except in the scripts that a list names with a reason.
#[test]
fn scripts_on_postgres() {
    if bless() || std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line("scripts on PostgreSQL skipped: it isn't installed (apt-get install postgresql)");
    };
    let differs = listed(POSTGRES_DIFFERENCES);
    let (differing, files): (Vec<_>, Vec<_>) =
        alone().into_iter().partition(|file| differs.contains_key(&name_of(file)));
    let connection = cluster.connection_string();
    run_files("scripts on PostgreSQL", &files, false, || Server::on_postgres(&connection));
    let of_fronts: Vec<_> =
        script_files().into_iter().filter(|file| OF_FRONTS.contains(&name_of(file).as_str())).collect();
    run_files("scripts of sets on PostgreSQL", &of_fronts, true, || Server::on_postgres(&connection));
    // The list may only get shorter: a script that passes must not be listed.
    let passes = |file: &&PathBuf| {
        Server::on_postgres(&connection).is_none_or(|server| run_file(&server, file).is_ok())
    };
    let passing = differing.iter().filter(passes);
    let passing: Vec<String> = passing.map(|file| file.display().to_string()).collect();
    assert!(passing.is_empty(), "{POSTGRES_DIFFERENCES} lists scripts that pass: {}", passing.join(", "));
}

/// Returns the scripts in a list of differences with their reasons.
fn listed(list: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join(list)).unwrap();
    let names = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    names.map(|(name, reason)| (name.to_string(), reason.to_string())).collect()
}

/// Returns a script's path in the folder of scripts.
fn name_of(file: &Path) -> String {
    file.strip_prefix(root().join("tests/scripts")).unwrap_or(file).to_string_lossy().to_string()
}

/// Returns the scripts that need no replica set.
fn alone() -> Vec<PathBuf> {
    let mut files = script_files();
    files.retain(|file| SET_FOLDERS.iter().all(|(folder, _)| !file.starts_with(root().join(folder))));
    files
}

/// Runs every script on the kind of server that its folder needs.
fn run_all(what: &str, start: impl Fn(Kind) -> Option<Server> + Sync) {
    let mut alone = script_files();
    for (folder, kind) in SET_FOLDERS {
        let (these, others) = alone.into_iter().partition(|file| file.starts_with(root().join(folder)));
        alone = others;
        // A running server may be of another kind.
        if std::env::var_os("VELLUM_SERVER").is_none() {
            run_files(&format!("{what} in {folder}"), &these, true, || start(kind));
        }
    }
    run_files(what, &alone, false, || start(Kind::Alone));
}

/// Runs these scripts, each on a new server if `renews` is set.
fn run_files(what: &str, files: &[PathBuf], renews: bool, start: impl Fn() -> Option<Server> + Sync) {
    let started = Instant::now();
    let queue = Mutex::new(files.iter());
    let failures = Mutex::new(Vec::new());
    let worker = || {
        let Some(mut server) = start() else {
            return print_line("scripts skipped: the binary has no server");
        };
        loop {
            let Some(file) = queue.lock().unwrap().next() else { return };
            let result = run_file(&server, file);
            // After a failure the server may hang or be gone; a new one takes milliseconds to start.
            if (renews || result.is_err())
                && let Some(fresh) = start()
            {
                server = fresh;
            }
            if let Err(error) = result {
                let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
                failures.lock().unwrap().push(format!("{name}: {error}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2.min(files.len()) {
            scope.spawn(worker);
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    print_line(&format!("{} {what}, {} failed, {:?}", files.len(), failures.len(), started.elapsed()));
    assert!(failures.is_empty(), "\n{}\n(VELLUM_BLESS=1 rewrites the replies)", failures.join("\n"));
}

#[test]
fn scripts_are_read_as_described() {
    let text = "# c\n{a: 1,\n b: 2} # d\n= {ok: 1}\n\nuse x\ns2: ! {c: 1}\n= {\n    ok: 0\n  }\n{d: 1, $db: 'y'}\n# e\n";
    let (steps, tail) = parse_script(text).unwrap();
    assert_eq!(tail, "# e\n");
    let step = &steps[1];
    assert_eq!((step.line, step.connection.as_str(), step.expects_error), (7, "s2", true));
    assert_eq!(step.command, base::bson::extended_json::parse("{c: 1, $db: 'x'}").unwrap());
    assert_eq!((step.head.as_str(), step.expected.as_str()), ("\nuse x\ns2: ! {c: 1}\n", "{\n  ok: 0\n}"));
    assert_eq!(marked(&step.expected), "= {\n    ok: 0\n  }\n");
    assert_eq!(steps[2].command.view().get("$db").unwrap().as_str(), Some("y"));
    assert_eq!(steps[2].expected, "");
    let fails = |text: &str, line: &str| parse_script(text).is_err_and(|error| error.starts_with(line));
    assert!(fails("\n{a: }\n= {ok: 1}\n", "line 2"));
    assert!(fails("= {ok: 1}\n", "line 1"));
    assert!(fails("{a: 1}\n= {ok: 1}\n= {ok: 1}\n", "line 3"));
    assert!(fails("{a: 1}\n= {ok: 1}\n  {b: 1}\n", "line 2"));
    assert!(fails("{a: 1}\n---\n{ok: 1}\n", "line 2"));
    assert_eq!(difference("a\nb\nc", "a\nx\nc"), "  - b\n  + x\n");
    assert_eq!(difference("", "x"), "  + x\n");
}

//! Servers started by the lab: Vellum at each durability level, the null server, and a mongod (from PATH or
//! `--mongod`). The module also makes backups before a recording, and restores them for a replay.
//!
//! Vellum is the server next to this program or in PATH, and the null server is this program. Each listens on a free
//! loopback port and prints its connection string as its first line. Servers end when their standard input closes, so
//! none outlives the lab. Each has its own process group, so Ctrl-C reaches a server only after the report is written.
//! For mongod a shell stands between, as for PostgreSQL. It stops the server and removes its directory when its
//! standard input closes.
//!
//! A new kind of server has a function here, or in `postgres.rs`, and a call in `run.rs` (`targets`).

use super::machine::{self, FileCounts, FileWatch, Usage};
use super::{Scratch, Target};
use crate::options::TargetArgument;
use crate::{Error, Result};
use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Environment variable with the path of the server, as in the helper packages of test suites.
pub(super) const SERVER: &str = "VELLUM_BINARY";

/// Timeout for a server to print its address.
const START: Duration = Duration::from_secs(60);

/// Timeout for a server to stop.
const END: Duration = Duration::from_secs(20);

/// Durability levels from the fastest to the safest: name, and durability if on disk.
const DURABILITY_LEVELS: &[(&str, Option<&str>)] = &[
    ("memory", None),
    ("disk-none", Some("none")),
    ("disk-relaxed", Some("relaxed")),
    ("disk-journaled", Some("journaled")),
];

/// Returns the command of every Vellum server: on a free port, until its standard input closes.
pub(super) fn serve() -> Command {
    let mut command = Command::new(server());
    command.args(["serve", "--port", "0", "--parent-pipe", "--log-level", "error"]).stdout(Stdio::piped());
    command
}

/// Data of a process, removed after its end.
#[derive(Debug, Default)]
pub(super) struct ProcessData {
    pub(super) _scratch: Option<Scratch>,
    /// Data directory, if on disk.
    pub(super) data: Option<PathBuf>,
    /// Separate journal directory, if any.
    pub(super) journal: Option<Scratch>,
    /// Servers behind this one, which end after it.
    pub(super) backends: Vec<Started>,
}

/// A process that ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    pub(super) files: ProcessData,
    /// Watch of the data directory, created at its first use.
    watch: OnceLock<Option<FileWatch>>,
}

impl Started {
    /// Starts a process that ends when its standard input closes.
    pub(super) fn spawn(command: &mut Command, files: ProcessData) -> io::Result<Started> {
        let child = command.stdin(Stdio::piped()).process_group(0).spawn()?;
        Ok(Started { child, files, watch: OnceLock::new() })
    }

    /// Returns the directory of the synced files: the journal, or else the data.
    pub(super) fn synced(&self) -> Option<PathBuf> {
        let journal = self.files.journal.as_ref().map(|journal| journal.path().to_path_buf());
        journal.or_else(|| self.files.data.clone())
    }

    /// Returns the numbers of files created and removed in the data directory since the first call.
    pub(super) fn file_counts(&self) -> Option<FileCounts> {
        let watch = self.watch.get_or_init(|| FileWatch::new(self.files.data.as_deref()?));
        watch.as_ref().and_then(FileWatch::count)
    }

    /// Returns the usage of the servers behind this one.
    pub(super) fn backend_usage(&self) -> Usage {
        let each = self.files.backends.iter().filter_map(|started| machine::usage(started.child.id()));
        each.fold(Usage::default(), Usage::and)
    }

    /// Returns the first output line and discards later output.
    fn first_line(&mut self) -> std::result::Result<String, String> {
        let output = self.child.stdout.take().ok_or("its output is taken")?;
        let (sender, line) = mpsc::channel();
        // A thread drains the pipe, since the process may print more, or no line.
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = String::new();
            let read = output.read_line(&mut line).map(|_| line);
            // Without a receiver the line is not needed.
            let _ = sender.send(read);
            let _ = io::copy(&mut output, &mut io::sink());
        });
        match line.recv_timeout(START) {
            Ok(Ok(line)) if !line.trim().is_empty() => Ok(line.trim().to_string()),
            Ok(_) => {
                let status = self.child.wait().map(|status| format!(" ({status})")).unwrap_or_default();
                Err(format!("it exited without printing its address{status}"))
            }
            Err(_) => Err(format!("it did not print its address within {} s", START.as_secs())),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + END;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                // The process id is still valid: the child has not been waited for.
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Data directories for servers.
#[derive(Clone, Debug)]
pub(crate) struct DataPlacement {
    /// Suffix of server names if several places exist.
    label: Option<String>,
    pub(super) data: PathBuf,
    journal: Option<PathBuf>,
}

/// Returns the places of the options; `own` is the default for the data.
pub(crate) fn placements(data_on: &[PathBuf], journal_on: Option<&Path>, own: &Path) -> Vec<DataPlacement> {
    let journal = journal_on.map(Path::to_path_buf);
    if data_on.is_empty() {
        return vec![DataPlacement { label: None, data: own.to_path_buf(), journal }];
    }
    let mut placements: Vec<DataPlacement> = Vec::new();
    for data in data_on {
        let last = data.file_name().map_or("root".into(), |name| name.to_string_lossy());
        let last = last.replace(char::is_whitespace, "-");
        let is_taken = |placement: &&DataPlacement| {
            placement.label.as_ref().is_some_and(|known| known.starts_with(&last))
        };
        let label = match placements.iter().filter(is_taken).count() {
            0 => last,
            before => format!("{last}-{}", before + 1),
        };
        placements.push(DataPlacement { label: Some(label), data: data.clone(), journal: journal.clone() });
    }
    placements
}

impl DataPlacement {
    /// Returns the name of a server at this place.
    pub(super) fn name(&self, server: &str) -> String {
        self.label.as_ref().map_or_else(|| server.to_string(), |label| format!("{server}@{label}"))
    }

    /// Returns this place with another data directory and no separate journal.
    pub(super) fn with_data_in(&self, data: &Path) -> DataPlacement {
        DataPlacement { data: data.to_path_buf(), journal: None, ..self.clone() }
    }

    /// Creates a journal directory if journals have their own place.
    pub(super) fn journal(&self) -> Result<Option<Scratch>> {
        self.journal.as_deref().map(Scratch::below).transpose()
    }
}

/// Starts Vellum at each durability level in each place: in memory, and on disk with durability none, relaxed and
/// journaled. Data is removed with the servers.
///
/// # Errors
/// A server does not start. Earlier servers are stopped.
pub(crate) async fn durability_levels(placements: &[DataPlacement]) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for (at, placement) in placements.iter().enumerate() {
        // In memory the place does not matter, so the first place suffices.
        for (name, durability) in
            DURABILITY_LEVELS.iter().filter(|(_, durability)| at == 0 || durability.is_some())
        {
            targets.push(start_level(name, *durability, placement).await?);
        }
    }
    Ok(targets)
}

/// Starts Vellum at one durability level.
async fn start_level(name: &str, durability: Option<&str>, placement: &DataPlacement) -> Result<Target> {
    let scratch = durability.map(|_| Scratch::below(&placement.data)).transpose()?;
    let journal = durability.map_or(Ok(None), |_| placement.journal())?;
    let name = if durability.is_some() { placement.name(name) } else { name.to_string() };
    let mut command = serve();
    let data = scratch.as_ref().map(|scratch| scratch.path().join("data"));
    if let (Some(data), Some(level)) = (&data, durability) {
        command.arg("--data").arg(data).args(["--durability", level]);
    }
    if let Some(journal) = &journal {
        command.arg("--journal-dir").arg(journal.path());
    }
    start(&name, command, ProcessData { _scratch: scratch, data, journal, ..ProcessData::default() }).await
}

/// Starts and connects another server like this one, with its own data below `directory`; `None` for a server that the
/// lab did not start.
///
/// # Errors
/// The server does not start.
pub(crate) async fn start_copy(target: &Target, directory: &Path) -> Option<Result<Target>> {
    target.started.as_ref()?;
    if target.is_null_server {
        return Some(null_server().await);
    }
    let kind = target.name.split('@').next().unwrap_or_default();
    let (name, durability) = DURABILITY_LEVELS.iter().find(|(name, _)| *name == kind)?;
    let placement = DataPlacement { label: None, data: directory.to_path_buf(), journal: None };
    Some(start_level(name, *durability, &placement).await)
}

/// Starts the null server in a separate process, so that its processor time is separate from the lab's.
///
/// # Errors
/// The null server does not start.
pub(crate) async fn null_server() -> Result<Target> {
    let own = std::env::current_exe().map_err(|error| failed("null-server", error))?;
    let mut command = Command::new(own);
    command.arg("null-server").stdout(Stdio::piped());
    let mut target = start("null-server", command, ProcessData::default()).await?;
    target.is_null_server = true;
    Ok(target)
}

/// Starts a server, reads its connection string and connects.
pub(super) async fn start(name: &str, mut command: Command, files: ProcessData) -> Result<Target> {
    let (started, uri) = announced(name, &mut command, files)?;
    Target::reach(&TargetArgument { name: name.to_string(), uri }, Some(started)).await
}

/// Starts a server, and reads its connection string.
pub(super) fn announced(name: &str, command: &mut Command, files: ProcessData) -> Result<(Started, String)> {
    let mut started = Started::spawn(command, files).map_err(|error| {
        let program = Path::new(command.get_program()).display();
        failed(name, format!("{program}: {error}; {SERVER} names a server"))
    })?;
    let line = tokio::task::block_in_place(|| started.first_line()).map_err(|why| failed(name, why))?;
    match line.strip_prefix("failed: ") {
        Some(why) => Err(failed(name, why)),
        None => Ok((started, line)),
    }
}

pub(super) fn failed(name: &str, why: impl Display) -> Error {
    Error::Target { name: name.to_string(), message: format!("can't be started: {why}") }
}

/// Returns the path of the server: the configured one, the one next to this program, or the one in PATH.
pub(super) fn server() -> PathBuf {
    let name = format!("vellum{EXE_SUFFIX}");
    std::env::var_os(SERVER).map(PathBuf::from).unwrap_or_else(|| {
        let own = std::env::current_exe().ok();
        own.map(|own| own.with_file_name(&name))
            .filter(|beside| beside.is_file())
            .unwrap_or_else(|| name.into())
    })
}

/// Makes a backup of a server in a directory.
///
/// # Errors
/// The error text of the server's program.
pub(crate) fn backed_up(uri: &str, to: &Path) -> Result<()> {
    run(&["backup".as_ref(), "--quiet".as_ref(), uri.as_ref(), to.as_os_str()])
        .map_err(|why| Error::Input(format!("--snapshot: {why}")))
}

/// Starts a server on a restored backup. The data is removed with the server.
///
/// # Errors
/// The restore fails, or the server does not start.
pub(crate) async fn restored(backup: &Path) -> Result<Target> {
    let scratch = Scratch::temporary()?;
    let data = scratch.path().join("data");
    let words =
        ["restore".as_ref(), "--quiet".as_ref(), backup.as_os_str(), "--data".as_ref(), data.as_os_str()];
    run(&words).map_err(|why| Error::Input(format!("--start: {why}")))?;
    let mut command = serve();
    command.arg("--data").arg(&data);
    let files = ProcessData { _scratch: Some(scratch), data: Some(data), ..ProcessData::default() };
    start("start", command, files).await
}

/// Runs the server's program with these arguments. Blocks. An error contains its output.
fn run(words: &[&OsStr]) -> std::result::Result<(), String> {
    let program = server();
    let mut command = Command::new(&program);
    let done = tokio::task::block_in_place(|| command.args(words).stdin(Stdio::null()).output());
    let done = done.map_err(|error| format!("{}: {error}; {SERVER} names a server", program.display()))?;
    let errors = String::from_utf8_lossy(&done.stderr);
    let failed = || errors.trim().trim_start_matches("vellum: ").to_string();
    done.status.success().then_some(()).ok_or_else(failed)
}

/// Timeout for a server to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Value of an option that starts no server.
const NONE: &str = "none";

/// Returns the path of a server's program: the one of the options, or the one in PATH.
pub(crate) fn program(name: &str, given: Option<&Path>) -> Option<PathBuf> {
    match given {
        Some(path) => (path != Path::new(NONE)).then(|| path.to_path_buf()),
        None => {
            let search = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&search).map(|directory| directory.join(name)).find(|path| path.is_file())
        }
    }
}

/// Starts the server in the background, and stops it by its process id (SIGINT: without waiting for clients) when
/// standard input ends. Removes the directory after every end of the server.
const SUPERVISOR: &str = "dir=$1; shift; exec 3<&0; \
    \"$@\" </dev/null 3<&- & server=$!; { read -r _ <&3; kill -INT $server; } 2>/dev/null & reader=$!; \
    exec 3<&-; wait $server; kill $reader 2>/dev/null; rm -rf \"$dir\"";

/// Returns a command that runs under this shell. The shell removes the directory at the end.
pub(super) fn supervised(directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", SUPERVISOR, "sh"]).arg(directory).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns a port that is free now. If another process takes it first, the start fails with an error.
pub(super) fn free_port(name: &str) -> Result<u16> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| failed(name, error))
}

/// Starts mongod with its own data, and waits until it listens.
///
/// # Errors
/// It does not start, or does not listen in time; includes the last lines of its log.
pub(crate) async fn start_mongod(program: &Path, placement: &DataPlacement) -> Result<Target> {
    let name = placement.name("mongod");
    let start_error = |error: io::Error| failed(&name, format!("{}: {error}", program.display()));
    if program.components().nth(1).is_some() && !program.exists() {
        return Err(failed(&name, format!("{}: the program does not exist", program.display())));
    }
    let scratch = Scratch::below(&placement.data)?;
    let (directory, journal) = (scratch.path().to_path_buf(), placement.journal()?);
    let data = directory.join("data");
    std::fs::create_dir(&data).map_err(start_error)?;
    if let Some(journal) = &journal {
        // WiredTiger follows a symbolic link to its journal directory.
        std::os::unix::fs::symlink(journal.path(), data.join("journal")).map_err(start_error)?;
    }
    let port = free_port(&name)?;
    let mut command = supervised(&directory);
    command.arg(program).arg("--dbpath").arg(&data).arg("--logpath").arg(directory.join("log"));
    command.args(["--bind_ip", "127.0.0.1", "--nounixsocket", "--port", &port.to_string()]);
    let files = ProcessData { _scratch: Some(scratch), data: Some(data), journal, ..ProcessData::default() };
    start_on_port(name, command, files, (port, &directory)).await
}

/// Starts a server without output, waits until it listens on a port of this machine, and connects. An error has the
/// last lines of the log in the directory.
pub(super) async fn start_on_port(
    name: String,
    mut command: Command,
    files: ProcessData,
    (port, directory): (u16, &Path),
) -> Result<Target> {
    let mut started = Started::spawn(&mut command, files).map_err(|error| failed(&name, error))?;
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if !matches!(started.child.try_wait(), Ok(None)) || Instant::now() > deadline {
            let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join(" ");
            let why = if tail.is_empty() { String::new() } else { format!("; its log: {tail}") };
            return Err(failed(&name, format!("it doesn't listen{why}")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let uri = format!("mongodb://127.0.0.1:{port}/");
    Target::reach(&TargetArgument { name, uri }, Some(started)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Started {
        Started::spawn(Command::new("sh").args(["-c", script]).stdout(Stdio::piped()), ProcessData::default())
            .unwrap()
    }

    #[test]
    fn the_first_line_has_the_address() {
        assert_eq!(shell("echo mongodb://h/; echo more; read _").first_line().unwrap(), "mongodb://h/");
        let why = shell("exit 3").first_line().unwrap_err();
        assert!(why.contains("exited without") && why.contains('3'), "{why}");
    }

    #[test]
    fn places_have_names_of_their_own_where_there_are_several() {
        let own = placements(&[], None, Path::new("/tmp"));
        assert_eq!((own.len(), own[0].name("disk-none").as_str()), (1, "disk-none"));
        let given: Vec<PathBuf> = ["/", "/dev/shm", "/x/shm"].map(PathBuf::from).to_vec();
        let names: Vec<_> =
            placements(&given, None, Path::new("/tmp")).iter().map(|placement| placement.name("a")).collect();
        assert_eq!(names, ["a@root", "a@shm", "a@shm-2"]);
    }

    #[test]
    fn started_servers_end_and_their_directory_is_removed() {
        let scratch = Scratch::temporary().unwrap();
        let path = scratch.path().to_path_buf();
        let script = format!("read _; touch {}/ended; exit 0", path.display());
        let started = Started::spawn(
            Command::new("sh").args(["-c", &script]),
            ProcessData { _scratch: Some(scratch), ..ProcessData::default() },
        )
        .unwrap();
        let pid = started.child.id();
        assert!(path.exists());
        drop(started);
        assert!(!path.exists());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[cfg(test)]
mod mongod_tests {
    use super::*;

    #[test]
    fn none_is_none_and_a_path_is_that_path() {
        assert_eq!(program("mongod", Some(Path::new("none"))), None);
        assert_eq!(program("mongod", Some(Path::new("/x/mongod"))), Some(PathBuf::from("/x/mongod")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn ferretdb_without_its_extension_is_refused() {
        let placement = &super::super::placements(&[], None, Path::new("/nowhere"))[0];
        let failed =
            super::super::start_ferretdb(Path::new("/x/ferretdb"), placement).await.unwrap_err().to_string();
        let missing = failed.contains("no extension documentdb");
        assert!(missing != super::super::has_documentdb(), "{failed}");
    }

    /// A fake mongod that records its arguments and the target of its journal link, and exits.
    const NOTES: &str = "#!/bin/sh\n\
        cd \"$(dirname \"$0\")\" || exit 1\n\
        printf '%s\\n' \"$@\" >words\n\
        while [ $# -gt 0 ]; do [ \"$1\" = --dbpath ] && ls -ld \"$2\"/* >data; shift; done\n\
        exit 48\n";

    #[tokio::test(flavor = "multi_thread")]
    async fn its_journal_is_where_it_was_wanted() {
        let scratch = Scratch::temporary().unwrap();
        let (program, journals) = (scratch.path().join("mongod"), scratch.path().join("journals"));
        let script = scratch.path().join("script");
        std::fs::write(&script, NOTES).unwrap();
        // A program that this process writes is busy while another thread starts a process.
        assert!(Command::new("install").args([&script, &program]).status().unwrap().success());
        std::fs::create_dir(&journals).unwrap();
        let placements = super::super::placements(&[], Some(&journals), scratch.path());
        let began = Instant::now();
        let absent = start_mongod(Path::new("/no/mongod"), &placements[0]).await.unwrap_err().to_string();
        assert!(absent.ends_with("/no/mongod: the program does not exist"), "{absent}");
        let failed = start_mongod(&program, &placements[0]).await.unwrap_err().to_string();
        assert!(began.elapsed() < LISTEN_TIMEOUT / 2, "one that ends isn't waited for");
        assert!(failed.contains("doesn't listen"), "{failed}");
        let note = |name: &str| std::fs::read_to_string(scratch.path().join(name)).unwrap();
        let (words, data) = (note("words"), note("data"));
        let words: Vec<&str> = words.lines().collect();
        let own = format!("{}/vellum-lab-", scratch.path().display());
        assert!(
            words[0] == "--dbpath" && words[1].starts_with(&own) && words[1].ends_with("/data"),
            "{words:?}"
        );
        assert!(
            words[2] == "--logpath" && words[3].starts_with(&own) && words[3].ends_with("/log"),
            "{words:?}"
        );
        assert_eq!(words[4..7], ["--bind_ip", "127.0.0.1", "--nounixsocket"], "{words:?}");
        assert!(words[7] == "--port" && words[8].parse::<u16>().is_ok() && words.len() == 9, "{words:?}");
        let leads_to = format!("/journal -> {}/vellum-lab-", journals.display());
        assert!(data.contains(&leads_to), "{data}");
        // Its directories are removed with it.
        assert_eq!(std::fs::read_dir(&journals).unwrap().count(), 0);
    }
}

//! The real binary as a child process on a free port.

use crate::client::Client;
use crate::fronts::Fronts;
use crate::mirrored::{Kind, Mirrored};
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Timeout of a reply, also on a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(40);

static STARTED: AtomicUsize = AtomicUsize::new(0);

/// A running server; dropping this value stops the process.
pub(crate) struct Server {
    address: String,
    /// Address of another server that shares its store, if any.
    other: Option<String>,
    child: Option<Child>,
    log: PathBuf,
    /// A server in this process instead of a child, stopped with this value.
    _within: Option<Within>,
    /// True with access control. Such a server cannot be emptied; tests start another.
    guarded: bool,
}

/// Servers in this process.
enum Within {
    Mirrored { _held: Mirrored },
    Fronts { _held: Fronts },
}

impl Server {
    /// Starts the binary on a free port, or uses the server of `VELLUM_SERVER`. `None` if the binary exits successfully
    /// without listening.
    pub(crate) fn start() -> Option<Server> {
        Server::start_with(&[])
    }

    /// Starts a server with options. A server that runs already lacks them.
    pub(crate) fn start_with(options: &[&str]) -> Option<Server> {
        if let Ok(address) = std::env::var("VELLUM_SERVER") {
            return Some(Server {
                address,
                other: None,
                child: None,
                log: PathBuf::new(),
                _within: None,
                guarded: false,
            });
        }
        Server::launch(options, None, None)
    }

    /// Starts a server whose documents are in a new schema of a PostgreSQL server.
    pub(crate) fn on_postgres(connection: &str) -> Option<Server> {
        let schema = format!("scripts{}", STARTED.fetch_add(1, Ordering::Relaxed));
        Server::on_schema(connection, &schema)
    }

    /// Starts a server on a schema that other servers may share.
    pub(crate) fn on_schema(connection: &str, schema: &str) -> Option<Server> {
        Server::on_schema_with(connection, schema, &[])
    }

    /// Starts a server on a schema with options.
    pub(crate) fn on_schema_with(connection: &str, schema: &str, options: &[&str]) -> Option<Server> {
        let place = ["--postgres", connection, "--postgres-schema", schema];
        Server::launch(&[&place[..], options].concat(), None, None)
    }

    /// Starts a process with its data in this directory.
    pub(crate) fn start_on(data: &Path, options: &[&str]) -> Option<Server> {
        Server::launch(options, Some(data), None)
    }

    /// Starts a server in this process on two engines that must agree: see [`Mirrored`].
    pub(crate) fn mirrored(kind: Kind) -> Server {
        let (held, address) = Mirrored::start(kind);
        let within = Some(Within::Mirrored { _held: held });
        let guarded = kind == Kind::Users;
        Server { address, other: None, child: None, log: PathBuf::new(), _within: within, guarded }
    }

    /// Starts two servers in this process that share a store: see [`Fronts`].
    pub(crate) fn on_two_databases(kind: Kind) -> Server {
        let (held, [address, other]) = Fronts::start(kind);
        let within = Some(Within::Fronts { _held: held });
        Server {
            address,
            other: Some(other),
            child: None,
            log: PathBuf::new(),
            _within: within,
            guarded: false,
        }
    }

    /// Starts a server with limited address space, for tests that might exhaust memory.
    pub(crate) fn start_within(kilobytes: u64) -> Option<Server> {
        Server::launch(&[], None, Some(format!("-v {kilobytes}")))
    }

    /// Starts a server with limited address space and options.
    pub(crate) fn start_bounded(kilobytes: u64, options: &[&str]) -> Option<Server> {
        // Unoptimized code is slow with values of that size. Callers measure times themselves.
        Server::launch(options, None, Some(format!("-v {kilobytes} && export VELLUM_UNOPTIMISED=1000")))
    }

    /// Starts a server with limited address space and its data in this directory.
    pub(crate) fn start_bounded_on(data: &Path, kilobytes: u64, options: &[&str]) -> Option<Server> {
        Server::launch(options, Some(data), Some(format!("-v {kilobytes} && export VELLUM_UNOPTIMISED=1000")))
    }

    /// Starts a server with a limit of open files, and its data in this directory.
    pub(crate) fn start_with_files(data: &Path, soft: u64, hard: u64) -> Option<Server> {
        Server::launch(&[], Some(data), Some(format!("-Sn {soft} && ulimit -Hn {hard}")))
    }

    fn launch(options: &[&str], data: Option<&Path>, limit: Option<String>) -> Option<Server> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("server-{}-{number}.log", std::process::id());
        let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&name);
        let errors = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        if let Some(limit) = limit {
            command = Command::new("bash");
            let limited = format!("ulimit {limit} && exec \"$@\"");
            command.args(["-c", &limited, "bash", env!("CARGO_BIN_EXE_vellum")]);
        }
        let mut child = command
            .args(["serve", "--port", "0", "--parent-pipe"])
            .args(options)
            .args(data.iter().flat_map(|data| ["--data".as_ref(), data.as_os_str()]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let Some(address) = address_in(&line) else {
            let status = child.wait().unwrap();
            assert!(
                status.success(),
                "the server said {line:?} and {}",
                std::fs::read_to_string(&log).unwrap()
            );
            return None;
        };
        // Later output must not fill the pipe.
        std::thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        let guarded = options.contains(&"--auth");
        Some(Server { address, other: None, child: Some(child), log, _within: None, guarded })
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> io::Result<Client> {
        Client::connect(&self.address, REPLY_TIMEOUT)
    }

    /// Opens a connection with a timeout for replies.
    pub(crate) fn connect_for(&self, timeout: Duration) -> io::Result<Client> {
        Client::connect(&self.address, timeout)
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends SIGHUP.
    #[cfg(unix)]
    pub(crate) fn send_sighup(&self) {
        self.signal(nix::sys::signal::Signal::SIGHUP);
    }

    /// Sends a signal.
    #[cfg(unix)]
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let child = self.child.as_ref().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), signal)
            .unwrap();
    }

    /// Waits for its end. Returns the exit code, unless a signal ended it.
    #[cfg(unix)]
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.as_mut().unwrap().wait().unwrap().code()
    }

    /// Returns its standard error so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns true with access control.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// Returns the number of servers.
    pub(crate) fn fronts(&self) -> usize {
        1 + usize::from(self.other.is_some())
    }

    /// Opens a connection to one of the servers.
    pub(crate) fn connect_to(&self, front: usize) -> io::Result<Client> {
        let address = self.other.as_ref().filter(|_| front > 0).unwrap_or(&self.address);
        Client::connect(address, REPLY_TIMEOUT)
    }

    /// Drops every database except the system's, and those in `names` if it cannot list them. Reverts other changes of
    /// scripts.
    pub(crate) fn empty(&self, names: &BTreeSet<String>) -> io::Result<()> {
        let mut client = self.connect()?;
        let mut names = names.clone();
        let list = parse("{listDatabases: 1, nameOnly: true, $db: 'admin'}").unwrap();
        if let Some(databases) = client.command(&list)?.view().get("databases").and_then(|v| v.as_array()) {
            let listed = databases.iter().filter_map(|v| v.as_document()?.get("name")?.as_str());
            names.extend(listed.map(str::to_string));
        }
        for name in names.iter().filter(|name| !matches!(name.as_str(), "local" | "config" | "admin")) {
            client.command(&drop_database(name))?;
        }
        (0..self.fronts()).try_for_each(|front| reset(&mut self.connect_to(front)?))
    }

    /// Stops the server as the end of its parent does, and returns its standard error.
    pub(crate) fn end(&mut self) -> String {
        if let Some(child) = &mut self.child {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the end of its standard error.
    pub(crate) fn log_tail(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = std::fs::File::open(&self.log) {
            // A log cut within a character is shown up to there.
            let _ = file.read_to_string(&mut text);
        }
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

/// A directory for one test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory.
    pub(crate) fn new(name: &str) -> Scratch {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{}-{number}", std::process::id());
        Scratch(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

impl std::ops::Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A server may not have created it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may already have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reverts changes of a script beyond databases: snapshots, fail points, the clock. Servers without these commands
/// refuse, which is harmless.
fn reset(client: &mut Client) -> io::Result<()> {
    let list = client.command(&parse("{listSnapshots: 1, $db: 'admin'}").unwrap())?;
    let snapshots = list.view().get("snapshots").and_then(|v| v.as_array());
    for snapshot in snapshots.iter().flat_map(|array| array.iter()).filter_map(|v| v.as_document()) {
        let field = |name| snapshot.get(name).and_then(|v| v.as_str()).unwrap_or("");
        let mut command = Builder::new();
        command.append(c"dropSnapshot", field("db")).append(c"name", field("name")).append(c"$db", "admin");
        client.command(&command.finish())?;
    }
    for name in ["failCommand", "failGetMoreAfterCursorCheckout", "maxTimeAlwaysTimeOut"] {
        let off = format!("{{configureFailPoint: '{name}', mode: 'off', $db: 'admin'}}");
        client.command(&parse(&off).unwrap())?;
    }
    client.command(&parse("{vellumClock: 1, follow: true, $db: 'admin'}").unwrap())?;
    Ok(())
}

fn drop_database(name: &str) -> DocumentBuf {
    let mut command = Builder::new();
    command.append(c"dropDatabase", 1i32).append(c"$db", name);
    command.finish()
}

/// Returns host and port of the connection string in a line.
fn address_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("mongodb://")?;
    let end = rest.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(rest.len());
    Some(rest[..end].to_string())
}

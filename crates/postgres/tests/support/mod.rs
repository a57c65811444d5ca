//! A PostgreSQL server for tests: a private cluster in a temporary directory, removed with the process.

use crate::config::{Config, TargetSessionAttrs};
use crate::connection::{Connection, Statement};
use crate::incarnations::Incarnations;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A server that runs until this value is dropped.
pub struct Cluster {
    /// Standard input of the guard. Its end stops the server, also if this process is killed.
    keep: Option<ChildStdin>,
    out: Option<BufReader<ChildStdout>>,
    guard: Child,
    port: u16,
}

/// Script that creates the cluster, or copies that of the primary at a port. It runs the server until standard input
/// ends, and removes the directory.
const GUARD: &str = include_str!("cluster.sh");

impl Cluster {
    /// Starts a server. Prints one line and returns `None` if PostgreSQL is not installed.
    ///
    /// Errors: the reason as text.
    pub fn start() -> Result<Option<Cluster>, String> {
        Cluster::start_with(None, &[])
    }

    /// Starts a server with settings. The files of a folder are copied next to its data, `pg_hba.conf` replaces the
    /// default.
    ///
    /// Errors: the reason as text.
    pub fn start_with(files: Option<&Path>, settings: &[&str]) -> Result<Option<Cluster>, String> {
        Cluster::start_as(None, files, settings)
    }

    /// Starts a standby of the server.
    ///
    /// Errors: the reason as text.
    pub fn start_standby(&self) -> Result<Cluster, String> {
        let standby = Cluster::start_as(Some(self.port), None, &["wal_retrieve_retry_interval=100ms"])?;
        standby.ok_or_else(|| "PostgreSQL isn't installed any more".to_string())
    }

    fn start_as(
        primary: Option<u16>,
        files: Option<&Path>,
        settings: &[&str],
    ) -> Result<Option<Cluster>, String> {
        let Some(bin) = installed() else { return Ok(None) };
        let port = free_port().map_err(|error| error.to_string())?;
        let mut guard = Command::new("bash")
            .args(["-c", GUARD, "postgres-for-tests"])
            .arg(&bin)
            .arg(port.to_string())
            .arg(files.unwrap_or(Path::new("")))
            .env("VELLUM_TEST_PRIMARY", primary.map_or_else(String::new, |port| port.to_string()))
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let keep = guard.stdin.take();
        let out = guard.stdout.take().map(BufReader::new);
        let mut cluster = Cluster { keep, out, guard, port };
        match cluster.is_ready() {
            true => Ok(Some(cluster)),
            false => Err(format!("the PostgreSQL server in {} did not start", bin.display())),
        }
    }

    /// Waits until the server has started. Returns `false` if it does not start.
    fn is_ready(&mut self) -> bool {
        let mut line = String::new();
        let read = self.out.as_mut().map(|out| out.read_line(&mut line));
        matches!(read, Some(Ok(_))) && line.trim() == "ready"
    }

    /// Stops the server in order and restarts it after one second.
    ///
    /// Errors: the reason as text.
    pub fn restart(&mut self) -> Result<(), String> {
        let asked = self.keep.as_mut().map(|keep| keep.write_all(b"restart\n"));
        match matches!(asked, Some(Ok(()))) && self.is_ready() {
            true => Ok(()),
            false => Err("the PostgreSQL server did not start again".to_string()),
        }
    }

    /// Returns the connection string in the form of libpq.
    pub fn connection_string(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    /// Runs SQL commands. Returns the first number of the last result, if any.
    ///
    /// Errors: the server's error as text.
    pub fn run(&self, sql: &[&str]) -> Result<Option<i64>, String> {
        let told = |failure| format!("{failure:?}");
        // A standby answers too.
        let config = Config { target_session_attrs: TargetSessionAttrs::Any, ..self.config()? };
        let mut connection = Connection::open(&config, &Incarnations::default()).map_err(told)?;
        let mut rows = Vec::new();
        for (number, sql) in sql.iter().enumerate() {
            rows = connection.query(&Statement::new(format!("s{number}"), *sql), &[]).map_err(told)?;
        }
        Ok(rows.first().filter(|row| row.bytes(0).is_some()).map(|row| row.int(0)))
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections to the server, as a restart does.
    ///
    /// Errors: the server's error as text.
    pub fn end_connections(&self) -> Result<(), String> {
        let told = |failure| format!("{failure:?}");
        let mut connection = Connection::open(&self.config()?, &Incarnations::default()).map_err(told)?;
        let end = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity \
                   where pid <> pg_backend_pid() and backend_type = 'client backend'";
        connection.query(&Statement::new("end", end), &[]).map(drop).map_err(told)
    }

    /// Returns the parsed connection string.
    ///
    /// Errors: none in practice.
    pub fn config(&self) -> Result<Config, String> {
        Config::parse(&self.connection_string(), &|_| None)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.keep.take());
        // The guard removes the directory before it exits.
        let _ = self.guard.wait();
    }
}

/// Finds the folder of the programs. Debian has a folder for each version.
fn installed() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.retain(|bin| bin.join("initdb").exists() && has_user());
    found.sort();
    found.pop()
}

fn has_user() -> bool {
    std::fs::read_to_string(Path::new("/etc/passwd"))
        .is_ok_and(|users| users.lines().any(|line| line.starts_with("postgres:")))
}

fn free_port() -> std::io::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.local_addr().map(|address| address.port())
}

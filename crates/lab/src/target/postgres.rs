//! `--postgres-here`: temporary PostgreSQL clusters of the installed version.
//!
//! Three clusters differ in one setting each: fsync on (the default), fsync off, and on a RAM disk. A shell stands
//! between the lab and each server. When its standard input closes, however the lab ends, the shell stops the server
//! and removes the directory. PostgreSQL refuses to run as root, so clusters of root run as the user `postgres`, or
//! else `nobody`.
//!
//! `--members-here`: a server with members, for w: 2 and majority. It is a Vellum front over a PostgreSQL with one
//! standby. `synchronous_standby_names` makes every commit that asks for durability wait for the standby.

use super::launch::{DataPlacement, ProcessData, Started, complete, front, start_on_port};
use super::{Scratch, Target};
use crate::options::TargetArgument;
use crate::{Error, Result, random};
use nix::unistd::{Uid, User};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// In-memory file system of Linux.
const RAM_DISK: &str = "/dev/shm";

/// Timeout for a new cluster to answer.
const START: Duration = Duration::from_secs(60);

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

/// A cluster to start.
pub(super) struct Cluster {
    pub(super) name: &'static str,
    pub(super) fsync: bool,
    pub(super) on_ram_disk: bool,
    pub(super) documentdb: bool,
}

/// The installed programs, and the user and group of the servers; `None` for the user of the lab.
pub(super) struct Installation {
    pub(super) programs: PathBuf,
    pub(super) user: Option<(u32, u32)>,
}

/// Address of a cluster, and the password of its only user.
pub(super) struct Address {
    port: u16,
    pub(super) password: String,
}

impl Address {
    fn uri(&self) -> String {
        format!("postgresql://postgres:{}@127.0.0.1:{}/postgres", self.password, self.port)
    }

    /// Returns the connection string for a command line, which other users can read.
    pub(super) fn without_password(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Opens a connection, which ends with its client.
    pub(super) async fn connect(&self) -> std::result::Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.uri(), tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

const CLUSTERS: [Cluster; 3] = [
    Cluster { name: "postgres", fsync: true, on_ram_disk: false, documentdb: false },
    Cluster { name: "postgres-fsync-off", fsync: false, on_ram_disk: false, documentdb: false },
    Cluster { name: "postgres-ram-disk", fsync: true, on_ram_disk: true, documentdb: false },
];

/// Starts the clusters: fsync on, fsync off, and on a RAM disk in the first place, fsync on in further places. A
/// missing RAM disk is reported on standard error.
///
/// # Errors
/// PostgreSQL is not installed, or a cluster does not start. Earlier clusters are stopped.
pub(crate) async fn clusters(places: &[DataPlacement]) -> Result<Vec<Target>> {
    let parts = Installation::find()?;
    let mut targets = Vec::new();
    for (at, place) in places.iter().enumerate() {
        for cluster in CLUSTERS.iter().filter(|cluster| at == 0 || (cluster.fsync && !cluster.on_ram_disk)) {
            let place = if cluster.on_ram_disk { &place.with_data_in(Path::new(RAM_DISK)) } else { place };
            if cluster.on_ram_disk && !place.data.is_dir() {
                // Reported at once. Standard error may be closed.
                let _ = writeln!(
                    std::io::stderr(),
                    "{RAM_DISK} does not exist: no target has PostgreSQL on a \
                     RAM disk"
                );
                continue;
            }
            targets.push(start(cluster, &parts, place).await?);
        }
    }
    Ok(targets)
}

/// Returns the directory of initdb and postgres. Debian keeps it out of PATH.
fn programs() -> Result<PathBuf> {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = debian.map(|entry| entry.path().join("bin")).collect();
    // Sorted by number, the highest version last: as text, 9.6 would follow 15.
    versions.sort_by_key(|path| path.parent().and_then(|p| p.file_name()?.to_str()?.parse::<u32>().ok()));
    let search = std::env::var_os("PATH").unwrap_or_default();
    let all = versions.into_iter().rev().chain(std::env::split_paths(&search));
    let found = all.into_iter().find(|path| path.join("initdb").is_file() && path.join("postgres").is_file());
    found.ok_or_else(|| {
        let message = "--postgres-here: no PostgreSQL is installed (no initdb in /usr/lib/postgresql/*/bin or PATH); \
                    on Debian: apt-get install postgresql";
        Error::Input(message.to_string())
    })
}

/// Returns user and group of the servers; `None` for the user of the lab.
fn unprivileged() -> Result<Option<(u32, u32)>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let ids =
        |name: &&str| Some(User::from_name(name).ok()??).map(|user| (user.uid.as_raw(), user.gid.as_raw()));
    let found = ["postgres", "nobody"].iter().find_map(ids);
    let message = "--postgres-here: PostgreSQL does not run as root, and the user postgres does not exist";
    found.map(Some).ok_or_else(|| Error::Input(message.to_string()))
}

fn name_of(cluster: &Cluster, place: &DataPlacement) -> String {
    if cluster.on_ram_disk { cluster.name.to_string() } else { place.name(cluster.name) }
}

/// Creates, starts and connects one cluster.
async fn start(cluster: &Cluster, parts: &Installation, place: &DataPlacement) -> Result<Target> {
    let (started, address) = self::cluster(cluster, parts, place).await?;
    Target::reach(&TargetArgument { name: name_of(cluster, place), uri: address.uri() }, Some(started)).await
}

impl Installation {
    /// Finds the programs and the user.
    ///
    /// # Errors
    /// PostgreSQL is not installed, or no suitable user exists.
    pub(super) fn find() -> Result<Installation> {
        Ok(Installation { programs: programs()?, user: unprivileged()? })
    }

    /// Starts the server of an existing data directory.
    pub(super) fn spawn(
        &self,
        cluster: &Cluster,
        directory: &Path,
        port: u16,
        files: ProcessData,
    ) -> Result<Started> {
        let failed = |error: std::io::Error| super::launch::failed(cluster.name, error);
        let log = fs::File::create(directory.join("log")).map_err(failed)?;
        let mut command = supervised(directory);
        command.args(arguments(cluster, &self.programs, directory, port)).stderr(log);
        as_user(&mut command, self.user);
        Started::spawn(&mut command, files).map_err(failed)
    }
}

/// Creates and starts a cluster.
pub(super) async fn cluster(
    cluster: &Cluster,
    parts: &Installation,
    place: &DataPlacement,
) -> Result<(Started, Address)> {
    let (name, user) = (name_of(cluster, place), parts.user);
    let failed = |why: String| super::launch::failed(&name, why);
    let scratch = Scratch::below(&place.data)?;
    let journal = place.journal()?;
    let log_to = journal.as_ref().map(Scratch::path);
    let directory = scratch.path().to_path_buf();
    let password = format!("{:016x}{:016x}", random(), random());
    let prepared = tokio::task::block_in_place(|| {
        prepare(&directory, user).map_err(|error| error.to_string())?;
        log_to.map_or(Ok(()), |path| prepare(path, user)).map_err(|error| error.to_string())?;
        initialise(&parts.programs, &directory, log_to, user, &password)
    });
    prepared.map_err(failed)?;
    let port = free_port().map_err(|error| failed(error.to_string()))?;
    let data = Some(directory.join("data"));
    let files = ProcessData { _scratch: Some(scratch), data, journal, ..ProcessData::default() };
    let started = parts.spawn(cluster, &directory, port, files)?;
    let address = Address { port, password };
    wait_for(&address.uri()).await.map_err(|error| failed(format!("{error}{}", log_tail(&directory))))?;
    Ok((started, address))
}

/// Restricts a directory to the unprivileged user.
pub(super) fn prepare(directory: &Path, user: Option<(u32, u32)>) -> std::io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    user.map_or(Ok(()), |(uid, gid)| chown(directory, Some(uid), Some(gid)))
}

/// Makes a command run as a user.
pub(super) fn as_user(command: &mut Command, user: Option<(u32, u32)>) {
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    // The current directory may be closed to that user.
    command.current_dir("/");
}

/// Creates an empty cluster with one user and a password, since other users of this machine can reach the port.
fn initialise(
    programs: &Path,
    directory: &Path,
    log_to: Option<&Path>,
    user: Option<(u32, u32)>,
    password: &str,
) -> std::result::Result<(), String> {
    let file = directory.join("password");
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
    written.and_then(|mut file| writeln!(file, "{password}")).map_err(|error| error.to_string())?;
    if let Some((uid, gid)) = user {
        chown(&file, Some(uid), Some(gid)).map_err(|error| error.to_string())?;
    }
    let mut command = Command::new(programs.join("initdb"));
    command.arg("-D").arg(directory.join("data")).arg("--pwfile").arg(&file);
    command.args(["-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"]);
    if let Some(path) = log_to {
        // initdb creates this directory and requires it to be empty.
        command.arg("-X").arg(path.join("wal"));
    }
    as_user(&mut command, user);
    let done = complete(&mut command).unwrap_or_else(|error| Err(error.to_string()));
    // initdb has read it.
    let _ = fs::remove_file(&file);
    done.map_err(|why| format!("initdb: {why}"))
}

/// Returns the arguments of the server: port, directories, and settings of the cluster.
fn arguments(cluster: &Cluster, programs: &Path, directory: &Path, port: u16) -> Vec<OsString> {
    let mut sockets = OsString::from("unix_socket_directories=");
    sockets.push(directory);
    let mut all: Vec<OsString> =
        vec![programs.join("postgres").into(), "-D".into(), directory.join("data").into()];
    let port = format!("port={port}");
    let fsync = if cluster.fsync { "fsync=on" } else { "fsync=off" };
    let documentdb = if cluster.documentdb { DOCUMENTDB } else { &[] };
    for setting in
        ["listen_addresses=127.0.0.1", &port, fsync, "max_connections=300"].iter().chain(documentdb)
    {
        all.extend(["-c".into(), OsString::from(setting)]);
    }
    all.extend([OsStr::new("-c").to_os_string(), sockets]);
    all
}

/// Returns a port that is free now. If another process takes it first, the start fails with an error.
pub(super) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Waits until the server accepts connections. During its start it refuses them.
async fn wait_for(uri: &str) -> std::result::Result<(), String> {
    let deadline = Instant::now() + START;
    loop {
        match tokio_postgres::connect(uri, tokio_postgres::NoTls).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(super::ErrorChain(&error).to_string()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Returns the last lines of its log, for the error of a failed start.
pub(super) fn log_tail(directory: &Path) -> String {
    let text = fs::read_to_string(directory.join("log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default();
    if tail.is_empty() { String::new() } else { format!("; its log: {}", tail.join(" ")) }
}

/// Settings for the DocumentDB extension.
const DOCUMENTDB: &[&str] =
    &["shared_preload_libraries=pg_cron,pg_documentdb_core,pg_documentdb", "cron.database_name=postgres"];

const FERRETDB: Cluster = Cluster { name: "ferretdb", fsync: true, on_ram_disk: false, documentdb: true };

/// Returns true if the installed PostgreSQL has the DocumentDB extension.
pub(crate) fn has_documentdb() -> bool {
    let Ok(programs) = programs() else { return false };
    let Some(prefix) = programs.parent() else { return false };
    let debian = Path::new("/usr/share/postgresql").join(prefix.file_name().unwrap_or_default());
    let shares = [prefix.join("share"), prefix.join("share/postgresql"), debian];
    shares.iter().any(|share| share.join("extension/documentdb.control").is_file())
}

/// Starts FerretDB 2 without authentication over a cluster with the DocumentDB extension.
///
/// # Errors
/// The extension is not installed, or a server does not start.
pub(crate) async fn start_ferretdb(program: &Path, place: &DataPlacement) -> Result<Target> {
    let name = place.name(FERRETDB.name);
    let failed = |why: String| super::launch::failed(&name, why);
    if !has_documentdb() {
        return Err(failed("PostgreSQL has no extension documentdb".to_string()));
    }
    let (postgres, address) = cluster(&FERRETDB, &Installation::find()?, place).await?;
    let client = address.connect().await.map_err(|error| failed(super::ErrorChain(&error).to_string()))?;
    let created = client.batch_execute("CREATE EXTENSION documentdb CASCADE").await;
    created.map_err(|error| failed(super::ErrorChain(&error).to_string()))?;
    let scratch = Scratch::below(&place.data)?;
    let port = free_port().map_err(|error| failed(error.to_string()))?;
    let directory = scratch.path().to_path_buf();
    let mut command = supervised(&directory);
    command.arg(program).env("FERRETDB_POSTGRESQL_URL", address.uri());
    command.env("FERRETDB_LISTEN_ADDR", format!("127.0.0.1:{port}")).env("FERRETDB_STATE_DIR", &directory);
    command.envs([
        ("FERRETDB_AUTH", "false"),
        ("FERRETDB_TELEMETRY", "disable"),
        ("FERRETDB_DEBUG_ADDR", "-"),
    ]);
    let files = ProcessData { _scratch: Some(scratch), backends: vec![postgres], ..ProcessData::default() };
    start_on_port(name, command, files, (port, &directory)).await
}

const FRONT_WITH_STANDBY: &str = "front-with-standby";

/// Timeout for the standby to start replication.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(60);

const PRIMARY: Cluster =
    Cluster { name: FRONT_WITH_STANDBY, fsync: true, on_ram_disk: false, documentdb: false };

/// Starts the primary, the standby and the front below the first place. They end together.
///
/// # Errors
/// PostgreSQL is not installed, or a server does not start.
pub(crate) async fn start_members(place: &DataPlacement) -> Result<Target> {
    let parts = Installation::find()?;
    let (primary, address) = cluster(&PRIMARY, &parts, place).await?;
    let standby = start_standby(&parts, place, &address).await?;
    front(FRONT_WITH_STANDBY, &address.without_password(), &address.password, vec![primary, standby]).await
}

fn standby_failed(why: impl std::fmt::Display) -> Error {
    Error::Target {
        name: FRONT_WITH_STANDBY.to_string(),
        message: format!("its standby can't be started: {why}"),
    }
}

/// Starts a copy of the primary and returns it once it follows.
async fn start_standby(parts: &Installation, place: &DataPlacement, primary: &Address) -> Result<Started> {
    let scratch = Scratch::below(&place.data)?;
    let directory = scratch.path().to_path_buf();
    tokio::task::block_in_place(|| copy_primary(parts, &directory, primary))?;
    let files =
        ProcessData { _scratch: Some(scratch), data: Some(directory.join("data")), ..ProcessData::default() };
    let mut started = parts.spawn(&PRIMARY, &directory, free_port().map_err(standby_failed)?, files)?;
    let client = primary.connect().await.map_err(standby_failed)?;
    let deadline = Instant::now() + REPLICATION_TIMEOUT;
    loop {
        let following =
            client.query_one("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", &[]).await;
        let count: i64 = following.and_then(|row| row.try_get(0)).map_err(standby_failed)?;
        if count > 0 {
            break;
        }
        if started.has_ended() || Instant::now() > deadline {
            return Err(standby_failed(format!("it does not replicate{}", log_tail(&directory))));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let statement = "ALTER SYSTEM SET synchronous_standby_names = '*'";
    client.batch_execute(statement).await.map_err(standby_failed)?;
    client.batch_execute("SELECT pg_reload_conf()").await.map_err(standby_failed)?;
    Ok(started)
}

/// Copies the primary with pg_basebackup, configured as its standby.
fn copy_primary(parts: &Installation, directory: &Path, primary: &Address) -> Result<()> {
    prepare(directory, parts.user).map_err(standby_failed)?;
    let mut command = Command::new(parts.programs.join("pg_basebackup"));
    let words = "-R -X stream -c fast --no-sync -d".split(' ');
    command.arg("-D").arg(directory.join("data")).args(words);
    command.arg(primary.without_password()).env("PGPASSWORD", &primary.password);
    as_user(&mut command, parts.user);
    complete(&mut command).map_err(standby_failed)?.map_err(standby_failed)
}

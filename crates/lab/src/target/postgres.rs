//! `--postgres-here`: temporary PostgreSQL clusters of the installed version.
//!
//! Three clusters differ in one setting each: fsync on (the default), fsync off, and on a RAM disk. A shell script
//! makes a cluster and runs its server. When its standard input closes, however the lab ends, the script stops the
//! server and removes the directory. PostgreSQL refuses to run as root, so clusters of root run as the user `postgres`,
//! or else `nobody`.
//!
//! `--members-here`: a server with members, for w: 2 and majority. It is a Vellum front over a PostgreSQL with one
//! standby. `synchronous_standby_names` makes every commit that asks for durability wait for the standby.

use super::launch::{DataPlacement, ProcessData, Started, announced, failed, free_port, serve, start};
use super::launch::{start_on_port, supervised};
use super::{ErrorChain, Scratch, Target};
use crate::options::TargetArgument;
use crate::{Error, Result, random};
use nix::unistd::{Uid, User};
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio_postgres::NoTls;

/// In-memory file system of Linux.
const RAM_DISK: &str = "/dev/shm";

/// Makes and runs a cluster.
const SCRIPT: &str = include_str!("cluster.sh");

/// A cluster to start: its name, and the server's options.
struct Cluster {
    name: &'static str,
    options: &'static [&'static str],
    on_ram_disk: bool,
}

impl Cluster {
    const fn new(name: &'static str, options: &'static [&'static str]) -> Cluster {
        Cluster { name, options, on_ram_disk: false }
    }
}

const POSTGRES: Cluster = Cluster::new("postgres", &[]);
const FSYNC_OFF: Cluster = Cluster::new("postgres-fsync-off", &["-c", "fsync=off"]);
const ON_RAM_DISK: Cluster = Cluster { name: "postgres-ram-disk", on_ram_disk: true, ..POSTGRES };
const PRIMARY: Cluster = Cluster::new("front-with-standby", &["-c", "synchronous_standby_names=*"]);
const FERRETDB: Cluster = Cluster::new(
    "ferretdb",
    &[
        "-c",
        "shared_preload_libraries=pg_cron,pg_documentdb_core,pg_documentdb",
        "-c",
        "cron.database_name=postgres",
    ],
);

/// Starts the clusters: fsync on, fsync off, and on a RAM disk in the first place, fsync on in further places. A
/// missing RAM disk is reported on standard error.
///
/// # Errors
/// PostgreSQL is not installed, or a cluster does not start. Earlier clusters are stopped.
pub(crate) async fn clusters(placements: &[DataPlacement]) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for (at, placement) in placements.iter().enumerate() {
        for cluster in if at == 0 { &[POSTGRES, FSYNC_OFF, ON_RAM_DISK][..] } else { &[POSTGRES] } {
            let (name, placement) = match cluster.on_ram_disk {
                true => (cluster.name.to_string(), &placement.with_data_in(Path::new(RAM_DISK))),
                false => (placement.name(cluster.name), placement),
            };
            if cluster.on_ram_disk && !placement.data.is_dir() {
                // Reported at once. Standard error may be closed.
                let message = "does not exist: no target has PostgreSQL on a RAM disk";
                let _ = writeln!(std::io::stderr(), "{RAM_DISK} {message}");
                continue;
            }
            let (started, uri) = run(cluster, &name, placement, "", &password()).await?;
            targets.push(Target::reach(&TargetArgument { name, uri }, Some(started)).await?);
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

fn password() -> String {
    format!("{:016x}{:016x}", random(), random())
}

/// Makes and starts a cluster, or a standby of a primary. Returns it with its connection string.
async fn run(
    cluster: &Cluster,
    name: &str,
    placement: &DataPlacement,
    primary: &str,
    password: &str,
) -> Result<(Started, String)> {
    let (programs, user, port) = (programs()?, unprivileged()?, free_port(name)?);
    let (scratch, journal) = (Scratch::below(&placement.data)?, placement.journal()?);
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(scratch.path()).arg(programs).arg(port.to_string());
    command.arg(journal.as_ref().map_or(Path::new(""), Scratch::path)).args(cluster.options);
    // The current directory may be closed to that user.
    command.env("PGPASSWORD", password).env("PRIMARY", primary).current_dir("/");
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
        for own in journal.iter().chain([&scratch]) {
            chown(own.path(), Some(uid), Some(gid)).map_err(|error| failed(name, error))?;
        }
    }
    let data = Some(scratch.path().join("data"));
    let files = ProcessData { _scratch: Some(scratch), data, journal, ..ProcessData::default() };
    announced(name, command.stdout(Stdio::piped()).stderr(Stdio::null()), files)
}

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
pub(crate) async fn start_ferretdb(program: &Path, placement: &DataPlacement) -> Result<Target> {
    let name = placement.name(FERRETDB.name);
    if !has_documentdb() {
        return Err(failed(&name, "PostgreSQL has no extension documentdb"));
    }
    let (postgres, uri) = run(&FERRETDB, &name, placement, "", &password()).await?;
    let created = async {
        let (client, connection) = tokio_postgres::connect(&uri, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("CREATE EXTENSION documentdb CASCADE").await
    };
    created.await.map_err(|error| failed(&name, ErrorChain(&error)))?;
    let (scratch, port) = (Scratch::below(&placement.data)?, free_port(&name)?);
    let directory = scratch.path().to_path_buf();
    let mut command = supervised(&directory);
    command.arg(program).env("FERRETDB_POSTGRESQL_URL", uri);
    command.env("FERRETDB_LISTEN_ADDR", format!("127.0.0.1:{port}")).env("FERRETDB_STATE_DIR", &directory);
    command.envs([
        ("FERRETDB_AUTH", "false"),
        ("FERRETDB_TELEMETRY", "disable"),
        ("FERRETDB_DEBUG_ADDR", "-"),
    ]);
    let files = ProcessData { _scratch: Some(scratch), backends: vec![postgres], ..ProcessData::default() };
    start_on_port(name, command, files, (port, &directory)).await
}

/// Starts the primary, the standby and the front below the first place. They end together.
///
/// # Errors
/// PostgreSQL is not installed, or a server does not start.
pub(crate) async fn start_members(placement: &DataPlacement) -> Result<Target> {
    let (name, password) = (PRIMARY.name, password());
    let (primary, uri) = run(&PRIMARY, name, placement, "", &password).await?;
    // Other users can read a command line.
    let address = uri.replace(&format!(":{password}"), "");
    let (standby, _) =
        run(&PRIMARY, name, &placement.with_data_in(&placement.data), &address, &password).await?;
    let mut command = serve();
    command.args(["--engine", "postgres", "--postgres", &address]).env("PGPASSWORD", password);
    start(name, command, ProcessData { backends: vec![primary, standby], ..ProcessData::default() }).await
}

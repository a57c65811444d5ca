//! `--members-here`: a server that has members, for w: 2 and majority: a Vellum front over a PostgreSQL with one standby, which
//! `synchronous_standby_names` makes every commit that asks for it wait for.

use super::launch::{Kept, Place, Started, front};
use super::postgres::{self, Cluster, Parts};
use super::{Scratch, Target};
use crate::error::{Error, Result};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "front-with-standby";

/// How long the standby may take until it follows.
const FOLLOW: Duration = Duration::from_secs(60);

const PRIMARY: Cluster = Cluster { name: NAME, fsync: true, on_ram_disk: false };

/// Starts all three, below the first place; they end together.
///
/// # Errors
/// No PostgreSQL is installed, or one of them can't be started.
pub(crate) async fn start(place: &Place) -> Result<Target> {
    let parts = Parts::find()?;
    let (primary, address) = postgres::cluster(&PRIMARY, &parts, place).await?;
    let standby = follow(&parts, place, &address).await?;
    front(NAME, &address.without_password(), &address.password, vec![primary, standby]).await
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::Target { name: NAME.to_string(), message: format!("its standby can't be started: {why}") }
}

/// A copy of the primary that follows it, once it does.
async fn follow(parts: &Parts, place: &Place, primary: &postgres::Address) -> Result<Started> {
    let scratch = Scratch::below(&place.data)?;
    let directory = scratch.path().to_path_buf();
    tokio::task::block_in_place(|| copy(parts, &directory, primary))?;
    let kept = Kept { _scratch: Some(scratch), data: Some(directory.join("data")), ..Kept::default() };
    let mut started = parts.spawn(&PRIMARY, &directory, postgres::free_port().map_err(failed)?, kept)?;
    let client = primary.connect().await.map_err(failed)?;
    let deadline = Instant::now() + FOLLOW;
    loop {
        let following =
            client.query_one("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", &[]).await;
        let count: i64 = following.and_then(|row| row.try_get(0)).map_err(failed)?;
        if count > 0 {
            break;
        }
        if started.has_ended() || Instant::now() > deadline {
            return Err(failed(format!("it doesn't follow{}", postgres::log_tail(&directory))));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let wanted = "ALTER SYSTEM SET synchronous_standby_names = '*'";
    client.batch_execute(wanted).await.map_err(failed)?;
    client.batch_execute("SELECT pg_reload_conf()").await.map_err(failed)?;
    Ok(started)
}

fn copy(parts: &Parts, directory: &Path, primary: &postgres::Address) -> Result<()> {
    postgres::prepare(directory, parts.user).map_err(failed)?;
    let mut command = Command::new(parts.programs.join("pg_basebackup"));
    let words = "-R -X stream -c fast --no-sync -d".split(' ');
    command.arg("-D").arg(directory.join("data")).args(words);
    command.arg(primary.without_password()).env("PGPASSWORD", &primary.password).stdin(Stdio::null());
    postgres::as_user(&mut command, parts.user);
    let output = command.output().map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

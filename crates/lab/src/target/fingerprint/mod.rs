//! What a target is and what it promises, found out before anything is measured.
//!
//! A figure without its durability is half a figure: one server syncs before it answers, another
//! after a tenth of a second, a third never, and none of it shows in a table of latencies. So each
//! target is asked for its version, engine, journal, sync setting and the write concern in force;
//! where its data lies on this machine, the file system is named and its fdatasync is timed.

mod mongo;
mod postgres;
mod probe;

use super::{Protocol, Target};
use crate::result::{Fingerprint, Promise};
use std::path::{Path, PathBuf};

/// What was learnt from the target itself; the probe of its file system comes on top.
#[derive(Debug, Default)]
struct Learnt {
    fingerprint: Fingerprint,
    /// Where it says that its data lies.
    directory: Option<PathBuf>,
}

impl Learnt {
    fn detail(&mut self, name: &str, value: impl Into<String>) {
        self.fingerprint.details.push((name.to_string(), value.into()));
    }
}

/// Asks the target, and probes the file system where its data lies. What it refuses to tell is
/// told as such.
pub(super) async fn take(target: &Target) -> Fingerprint {
    if target.is_floor {
        return floor();
    }
    let mut learnt = match target.protocol {
        Protocol::Mongo => mongo::ask(target).await,
        Protocol::Postgres => postgres::ask(target).await,
    };
    learnt.detail("traffic", target.traffic());
    let directory =
        target.synced_directory().or_else(|| learnt.directory.take().filter(|_| target.is_local()));
    let keeps_nothing = learnt.fingerprint.promise == Promise::Memory;
    if let Some(directory) = directory.filter(|_| !keeps_nothing) {
        probed(&mut learnt, &directory).await;
    }
    learnt.fingerprint
}

async fn probed(learnt: &mut Learnt, directory: &Path) {
    learnt.detail("data", directory.display().to_string());
    if let Some(kind) = crate::target::machine::file_system(directory) {
        if probe::IN_MEMORY.contains(&kind.as_str()) {
            // Syncing to memory is quick, and outlives no machine.
            learnt.fingerprint.promise = learnt.fingerprint.promise.min(Promise::Process);
        }
        learnt.detail("file system", kind);
    }
    let place = directory.to_path_buf();
    match tokio::task::spawn_blocking(move || probe::sync_microseconds(&place)).await {
        Ok(Ok(median)) => learnt.fingerprint.sync_microseconds = Some(median),
        Ok(Err(error)) => learnt.detail("fdatasync", format!("could not be timed: {error}")),
        Err(error) => learnt.detail("fdatasync", format!("could not be timed: {error}")),
    }
}

fn floor() -> Fingerprint {
    Fingerprint {
        server: "floor".to_string(),
        engine: "canned replies".to_string(),
        promise: Promise::Nothing,
        details: Vec::new(),
        sync_microseconds: None,
    }
}

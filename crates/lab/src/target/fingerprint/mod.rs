//! Fingerprints: the identity and durability of a target, determined before the measurement.
//!
//! A figure needs its durability. One server syncs before it answers, another after a tenth of a second, a third never,
//! and a table of latencies shows none of this. The lab therefore asks each target for version, engine, journal, sync
//! setting and default write concern. If the data is on this machine, the lab names the file system and times its
//! fdatasync.
//!
//! A durable write cannot be faster than fdatasync, so that time is shown next to the figures. A sync of 30 µs comes
//! from a volume that does not sync, or from a battery.
//!
//! PostgreSQL reports the settings that decide its durability: fsync and synchronous_commit.

mod mongo;

use super::{Protocol, Target};
use crate::result::{DurabilityGuarantee, Fingerprint};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Properties reported by the target. The probe of its file system is added later.
#[derive(Debug, Default)]
struct ReportedProperties {
    fingerprint: Fingerprint,
    /// Reported data directory.
    directory: Option<PathBuf>,
}

impl ReportedProperties {
    fn detail(&mut self, name: &str, value: impl Into<String>) {
        self.fingerprint.details.push((name.to_string(), value.into()));
    }

    /// States the durability, and how the journal is written.
    fn journal(&mut self, promise: DurabilityGuarantee, journal: impl Into<String>) {
        self.fingerprint.promise = promise;
        self.detail("journal", journal);
    }
}

/// Asks the target, and probes the file system of its data. A refused question is recorded as refused.
pub(super) async fn take(target: &Target) -> Fingerprint {
    if target.is_null_server {
        let (server, engine) = ("null server".to_string(), "canned replies".to_string());
        return Fingerprint {
            server,
            engine,
            promise: DurabilityGuarantee::Nothing,
            ..Fingerprint::default()
        };
    }
    let mut properties = match target.protocol {
        Protocol::Mongo => mongo::ask(target).await,
        Protocol::Postgres => ask(target).await,
    };
    let is_over_own_cluster =
        target.started.as_ref().is_some_and(|started| !started.files.backends.is_empty());
    if properties.fingerprint.promise == DurabilityGuarantee::Unknown && is_over_own_cluster {
        // The lab's clusters keep PostgreSQL's defaults: a commit is synced before it is acknowledged.
        properties.fingerprint.promise = DurabilityGuarantee::Journaled;
        properties.detail("cluster", "fsync on, synchronous_commit on");
    }
    properties.detail("traffic", target.traffic());
    let directory = target.started.as_ref().and_then(|started| started.synced());
    let directory = directory.or_else(|| properties.directory.take().filter(|_| target.process.is_some()));
    let keeps_nothing = properties.fingerprint.promise == DurabilityGuarantee::Memory;
    if let Some(directory) = directory.filter(|_| !keeps_nothing) {
        probed(&mut properties, &directory).await;
    }
    properties.fingerprint
}

/// Names the file system of a directory, and times its fdatasync.
async fn probed(properties: &mut ReportedProperties, directory: &Path) {
    properties.detail("data", directory.display().to_string());
    if let Some(kind) = crate::target::machine::file_system(directory) {
        if IN_MEMORY.contains(&kind.as_str()) {
            // A sync to memory is quick, and does not survive the machine.
            properties.fingerprint.promise = properties.fingerprint.promise.min(DurabilityGuarantee::Process);
        }
        properties.detail("file system", kind);
    }
    let directory = directory.to_path_buf();
    let timed = tokio::task::spawn_blocking(move || sync_microseconds(&directory)).await;
    match timed.unwrap_or_else(|error| Err(error.into())) {
        Ok(median) => properties.fingerprint.sync_microseconds = Some(median),
        Err(error) => properties.detail("fdatasync", format!("could not be timed: {error}")),
    }
}

/// File systems in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// Typical size of a journal write for a small document.
const APPEND: [u8; 512] = [0x5A; 512];

const SAMPLES: usize = 60;

/// Time limit of the probe, however slow the volume is.
const AT_MOST: Duration = Duration::from_secs(2);

/// Returns the median time of fdatasync after a small append in this directory, in microseconds. The file has no name,
/// so a server that scans its directory finds no new file.
fn sync_microseconds(directory: &Path) -> io::Result<f64> {
    let mut file = tempfile::tempfile_in(directory)?;
    let begin = Instant::now();
    let mut times = Vec::with_capacity(SAMPLES);
    while times.len() < SAMPLES && (times.len() < 3 || begin.elapsed() < AT_MOST) {
        file.write_all(&APPEND)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(median.as_secs_f64() * 1e6)
}

/// Settings that decide the durability and cost of a commit.
const SETTINGS: &[&str] = &[
    "fsync",
    "synchronous_commit",
    "wal_sync_method",
    "full_page_writes",
    "wal_writer_delay",
    "commit_delay",
    "shared_buffers",
    "data_directory",
    "server_version",
];

/// Reads version and settings of PostgreSQL.
async fn ask(target: &Target) -> ReportedProperties {
    match settings(target).await {
        Ok(settings) => read(&settings),
        Err(why) => {
            let mut properties = ReportedProperties::default();
            properties.fingerprint.server = "PostgreSQL".to_string();
            properties.detail("settings", why);
            properties
        }
    }
}

async fn settings(target: &Target) -> Result<HashMap<String, String>, String> {
    let client = target.postgres().await.map_err(|error| error.to_string())?;
    let query = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY($1)";
    let rows = client.query(query, &[&SETTINGS]).await.map_err(|error| target.error(error).to_string())?;
    let pairs = rows.iter().filter_map(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?)));
    Ok(pairs.collect())
}

/// Derives the fingerprint from the settings.
fn read(settings: &HashMap<String, String>) -> ReportedProperties {
    let get = |name: &str| settings.get(name).map(String::as_str);
    let mut properties = ReportedProperties::default();
    let version = get("server_version").and_then(|version| version.split(' ').next()).unwrap_or("?");
    properties.fingerprint.server = format!("PostgreSQL {version}");
    properties.fingerprint.engine = "heap".to_string();
    properties.fingerprint.promise = promise(get("fsync"), get("synchronous_commit"));
    properties.directory = get("data_directory").map(Into::into);
    for name in SETTINGS.iter().filter(|name| !matches!(**name, "data_directory" | "server_version")) {
        if let Some(value) = get(name) {
            properties.detail(name, value);
        }
    }
    properties
}

/// With synchronous_commit off, a commit waits in shared memory for the WAL writer, and the end of the server may lose
/// it. With fsync off, only the end of the machine loses it, since the kernel has the data.
fn promise(fsync: Option<&str>, synchronous_commit: Option<&str>) -> DurabilityGuarantee {
    match (fsync, synchronous_commit) {
        (None, _) | (_, None) => DurabilityGuarantee::Unknown,
        (_, Some("off")) => DurabilityGuarantee::Delayed,
        (Some("off"), _) => DurabilityGuarantee::Process,
        _ => DurabilityGuarantee::Journaled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_timed_and_leave_nothing_behind() {
        let scratch = crate::target::Scratch::temporary().unwrap();
        let median = sync_microseconds(scratch.path()).unwrap();
        assert!(median > 0.0);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
        assert!(sync_microseconds(&scratch.path().join("none")).is_err());
    }
}

#[cfg(test)]
mod postgres_tests {
    use super::*;

    #[test]
    fn settings_decide_the_promise() {
        for (fsync, commit, expected) in [
            ("on", "on", DurabilityGuarantee::Journaled),
            ("on", "local", DurabilityGuarantee::Journaled),
            ("off", "on", DurabilityGuarantee::Process),
            ("on", "off", DurabilityGuarantee::Delayed),
            ("off", "off", DurabilityGuarantee::Delayed),
        ] {
            assert_eq!(promise(Some(fsync), Some(commit)), expected, "{fsync} {commit}");
        }
        assert_eq!(promise(None, None), DurabilityGuarantee::Unknown);
    }

    #[test]
    fn settings_are_shown() {
        let pairs = [("server_version", "15.18 (Debian)"), ("fsync", "on"), ("synchronous_commit", "on")];
        let properties = read(&pairs.map(|(name, value)| (name.to_string(), value.to_string())).into());
        assert_eq!(properties.fingerprint.server, "PostgreSQL 15.18");
        assert_eq!(properties.fingerprint.details[0], ("fsync".to_string(), "on".to_string()));
    }
}

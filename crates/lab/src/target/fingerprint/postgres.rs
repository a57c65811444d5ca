//! What PostgreSQL promises: fsync and synchronous_commit decide, and it tells them.

use super::Learnt;
use crate::result::Promise;
use crate::target::Target;
use std::collections::HashMap;

/// The settings that matter for what a commit survives and what it costs.
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

pub(super) async fn ask(target: &Target) -> Learnt {
    match settings(target).await {
        Ok(settings) => read(&settings),
        Err(why) => {
            let mut learnt = Learnt::default();
            learnt.fingerprint.server = "PostgreSQL".to_string();
            learnt.detail("settings", why);
            learnt
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

fn read(settings: &HashMap<String, String>) -> Learnt {
    let get = |name: &str| settings.get(name).map(String::as_str);
    let mut learnt = Learnt::default();
    let version = get("server_version").and_then(|version| version.split(' ').next()).unwrap_or("?");
    learnt.fingerprint.server = format!("PostgreSQL {version}");
    learnt.fingerprint.engine = "heap".to_string();
    learnt.fingerprint.promise = promise(get("fsync"), get("synchronous_commit"));
    learnt.directory = get("data_directory").map(Into::into);
    for name in SETTINGS.iter().filter(|name| !matches!(**name, "data_directory" | "server_version")) {
        if let Some(value) = get(name) {
            learnt.detail(name, value);
        }
    }
    learnt
}

/// With synchronous_commit off a commit waits in shared memory for the log's writer, so that the
/// end of the server itself may cost it; with fsync off it is in the kernel's hands, whom only the
/// machine's end stops.
fn promise(fsync: Option<&str>, synchronous_commit: Option<&str>) -> Promise {
    match (fsync, synchronous_commit) {
        (None, _) | (_, None) => Promise::Unknown,
        (_, Some("off")) => Promise::Delayed,
        (Some("off"), _) => Promise::Process,
        _ => Promise::Journaled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_decide_the_promise() {
        for (fsync, commit, expected) in [
            ("on", "on", Promise::Journaled),
            ("on", "local", Promise::Journaled),
            ("off", "on", Promise::Process),
            ("on", "off", Promise::Delayed),
            ("off", "off", Promise::Delayed),
        ] {
            assert_eq!(promise(Some(fsync), Some(commit)), expected, "{fsync} {commit}");
        }
        assert_eq!(promise(None, None), Promise::Unknown);
    }

    #[test]
    fn settings_are_shown() {
        let pairs = [("server_version", "15.18 (Debian)"), ("fsync", "on"), ("synchronous_commit", "on")];
        let learnt = read(&pairs.map(|(name, value)| (name.to_string(), value.to_string())).into());
        assert_eq!(learnt.fingerprint.server, "PostgreSQL 15.18");
        assert_eq!(learnt.fingerprint.details[0], ("fsync".to_string(), "on".to_string()));
    }
}

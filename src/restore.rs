//! `vellum restore`: a data directory as of a moment, out of a backup and what was kept of the journal.

use crate::cli::RestoreOptions;
use crate::data_errors::{Purpose, explained};
use jiff::Timestamp;
use std::sync::Arc;
use storage::Restore;
use storage::disk::{Files, SystemFiles};

/// Restores. Returns what to print.
pub(crate) fn restore(options: &RestoreOptions) -> Result<String, String> {
    let what = Restore {
        from: options.from.clone(),
        archives: options.journal_archive.clone(),
        until: options.at,
        to: options.data.clone(),
        cache_bytes: options.cache_size,
    };
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let restored =
        storage::restore(&files, &what).map_err(|error| explained(&error, &options.data, Purpose::Target))?;
    Ok(format!(
        "{}: {} and {} commits behind it, the last of {}",
        options.data.display(),
        restored.full.display(),
        restored.commits,
        moment(restored.time)
    ))
}

/// A cluster time for people: when it was, and the number.
pub(crate) fn moment(time: u64) -> String {
    if time == 0 {
        return "no known time".to_string();
    }
    let seconds = time >> 32;
    let text = Timestamp::from_second(seconds as i64).map(|moment| moment.to_string());
    format!("{} ({seconds},{})", text.unwrap_or_default(), time & u64::from(u32::MAX))
}

//! `--repair`: what is sound of a data directory in a new one, and a report of what is lost.
//!
//! As mongod does it, the process repairs and exits: 0 if anything was saved, whatever was lost.

use crate::config::Config;
use crate::data_errors::{Purpose, explained};
use database::repair::{Repaired, repair as repair_database};
use database::{Clock, SystemClock};
use std::io::{self, Write};
use std::path::Path;
use storage::{DiskEngine, Ident, Lost, Salvage};

/// Repairs the data directory of a configuration.
pub(crate) fn repair(config: &Config) -> Result<(), String> {
    let options = config.disk.as_ref().ok_or("--repair needs --data")?;
    let salvage = DiskEngine::salvage(options)
        .map_err(|error| explained(&error, &options.directory, Purpose::Repair))?;
    let now = SystemClock.now_millis();
    let repaired = repair_database(&**salvage.engine(), salvage.idents(), now, server::seed());
    let repaired = repaired.map_err(|error| format!("cannot repair the database: {error}"))?;
    let mut report = report(&salvage, &repaired);
    let nothing = repaired.collections.iter().all(|collection| collection.records == 0) && !report.is_empty();
    let result = if nothing {
        salvage.discard().map_err(|error| error.to_string())?;
        Err(format!("nothing could be saved; {} is as it was", options.directory.display()))
    } else {
        let trees = salvage.idents().len();
        let old = salvage.finish().map_err(|error| error.to_string())?;
        if report.is_empty() {
            report.push("lost: nothing".to_string());
        }
        report.insert(0, format!("read: {}: {trees} trees", options.directory.display()));
        report.extend(summary(&repaired, &old));
        Ok(())
    };
    let text: String = report.into_iter().map(|line| line + "\n").collect();
    // Whoever closed standard output doesn't want to know.
    let _ = io::stdout().write_all(text.as_bytes());
    result
}

/// What is lost, a line for each damage, with the collection's name where it is known.
fn report(salvage: &Salvage, repaired: &Repaired) -> Vec<String> {
    let mut lines: Vec<String> = salvage.lost().iter().filter_map(|lost| line(lost, repaired)).collect();
    lines.extend(repaired.notes.iter().map(|note| format!("lost: {note}")));
    lines
}

/// Nothing is lost with an index, which has been built anew.
fn line(lost: &Lost, repaired: &Repaired) -> Option<String> {
    let count = match lost.entries {
        Some(0) => "damaged".to_string(),
        Some(1) => "1 record".to_string(),
        Some(count) => format!("{count} records"),
        None => "records".to_string(),
    };
    let Some(ident) = lost.ident else { return Some(format!("lost: {count}: {}", lost.what)) };
    let owner = repaired.collections.iter().find(|collection| collection.idents.contains(&ident));
    match owner {
        Some(collection) if collection.data == ident => {
            Some(format!("lost: {}: {count}: {}", collection.namespace, lost.what))
        }
        Some(_) => None,
        None if ident == Ident(0) => Some(format!("lost: the catalog: {count}: {}", lost.what)),
        None => Some(format!("lost: unknown (tree {}): {count}: {}", ident.0, lost.what)),
    }
}

fn summary(repaired: &Repaired, old: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for collection in &repaired.collections {
        let indexes = collection.idents.len().saturating_sub(1);
        let (namespace, records) = (&collection.namespace, collection.records);
        lines.push(format!("kept: {namespace}: {records} documents, {indexes} indexes built anew"));
    }
    if lines.is_empty() {
        lines.push("kept: no documents, since there were no collections".to_string());
    }
    lines.push(format!("the old files are in {}", old.display()));
    lines
}

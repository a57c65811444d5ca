//! Commands that copy, compare, reset and back up databases.

pub(crate) mod backup;
pub(crate) mod diff_database;
pub(crate) mod snapshots;

//! Where a recording's data is to begin from: a server that is there, or one that is started on a backup.

use crate::error::{Error, Result};
use crate::options::Given;
use crate::target::{Target, restored};
use std::path::Path;

/// The scheme that tells a server from a directory.
const SCHEME: &str = "mongodb";

/// Looks at what can be told wrong before anything is started.
///
/// # Errors
/// It is neither a server nor a directory.
pub(super) fn check(start: &str) -> Result<()> {
    if start.starts_with(SCHEME) || Path::new(start).is_dir() {
        return Ok(());
    }
    Err(Error::Input(format!("--start: {start} is neither a directory nor a connection string")))
}

/// The server that has it.
///
/// # Errors
/// It can't be reached, restored or started.
pub(super) async fn open(start: &str) -> Result<Target> {
    if start.starts_with(SCHEME) {
        return Target::connect(&Given { name: "start".to_string(), uri: start.to_string() }).await;
    }
    restored(Path::new(start)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_server_or_a_directory() {
        assert_eq!(check("mongodb://127.0.0.1:1/"), Ok(()));
        assert_eq!(check("/tmp"), Ok(()));
        assert!(check("/nowhere/at/all").is_err());
    }
}

//! Backups of servers, by the program of the server itself: made before a recording, restored for a replay.

use super::launch::{Kept, SERVER, serve, server, start};
use super::{Scratch, Target};
use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Backs a server up into a directory.
///
/// # Errors
/// What the server's program says.
pub(crate) fn backed_up(uri: &str, to: &Path) -> Result<()> {
    run(&["backup".as_ref(), "--quiet".as_ref(), uri.as_ref(), to.as_os_str()])
        .map_err(|why| Error::Input(format!("--snapshot: {why}")))
}

/// A server that has what a backup holds. What was restored is removed with it.
///
/// # Errors
/// It can't be restored, or the server can't be started.
pub(crate) async fn restored(backup: &Path) -> Result<Target> {
    let scratch = Scratch::temporary()?;
    let data = scratch.path().join("data");
    let words =
        ["restore".as_ref(), "--quiet".as_ref(), backup.as_os_str(), "--data".as_ref(), data.as_os_str()];
    run(&words).map_err(|why| Error::Input(format!("--start: {why}")))?;
    let mut command = serve();
    command.arg("--data").arg(&data);
    start("start", command, Kept { _scratch: Some(scratch), data: Some(data), ..Kept::default() }).await
}

/// Runs the server's program with these words to its end; it blocks. An error is what it said.
fn run(words: &[&OsStr]) -> std::result::Result<(), String> {
    let program = server();
    let done =
        tokio::task::block_in_place(|| Command::new(&program).args(words).stdin(Stdio::null()).output());
    let done = done.map_err(|error| format!("{}: {error}; {SERVER} names a server", program.display()))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(said.trim().trim_start_matches("vellum: ").to_string())
}

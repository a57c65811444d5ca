//! `--fork`: the server in the background, once it serves.
//!
//! The process starts itself once more, in a session of its own, waits until that one says that
//! clients can connect, and ends.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

/// Tells the process in the background what it is.
const CHILD: &str = "VELLUM_FORKED";

/// What it writes to standard output once it serves.
const READY: &str = "ready";

/// Whether this is the process in the background.
pub(super) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Leaves the terminal's session, in the background.
pub(crate) fn leave_terminal() {
    #[cfg(unix)]
    if is_child() {
        // Fails for one that leads a session already.
        let _ = nix::unistd::setsid();
    }
}

/// Tells the process in front that clients can connect.
pub(crate) fn ready() {
    if is_child() {
        let mut out = io::stdout();
        // The one in front has gone: nobody waits.
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    }
}

/// Starts the process in the background, and waits until it serves or has ended.
pub(super) fn start(words: &[OsString]) -> ExitCode {
    let mut out = io::stdout();
    let mut say = |text: String| {
        // Whoever closed standard output doesn't want to know.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    };
    say("about to fork child process, waiting until server is ready for connections.".to_string());
    let spawned = std::env::current_exe().and_then(|program| {
        let mut again = Command::new(program);
        again.arg("mongod").args(words).env(CHILD, "1");
        again.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    });
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            crate::complain(&format!("ERROR: cannot start the child process: {error}"));
            return ExitCode::FAILURE;
        }
    };
    say(format!("forked process: {}", child.id()));
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        // At its end or an error there is no such line.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim() == READY {
        say("child process started successfully, parent exiting".to_string());
        return ExitCode::SUCCESS;
    }
    let code = child.wait().ok().and_then(|status| status.code()).unwrap_or(1);
    say(format!("ERROR: child process failed, exited with {code}"));
    say("To see additional information in this output, start without the \"--fork\" option.".to_string());
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

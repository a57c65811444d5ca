//! `mongod --fork`: the server in the background.
//!
//! The process starts itself again in a new session. It exits when clients can connect to the new process.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

/// Variable that marks the background process.
const CHILD: &str = "VELLUM_FORKED";

/// Line on standard output that reports readiness.
const READY: &str = "ready";

/// Returns true in the background process.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Leaves the terminal's session in the background process.
pub(crate) fn leave_terminal() {
    #[cfg(unix)]
    if is_child() {
        // Fails if the process already leads a session.
        let _ = nix::unistd::setsid();
    }
}

/// Reports to the foreground process that clients can connect.
pub(crate) fn ready() {
    if is_child() {
        let mut out = io::stdout();
        // The foreground process may have ended.
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    }
}

/// Starts the background process. Returns when it is ready or has ended.
pub(crate) fn start_child(words: &[OsString]) -> ExitCode {
    let mut out = io::stdout();
    let mut print = |text: String| {
        // A closed standard output is not an error.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    };
    print("about to fork child process, waiting until server is ready for connections.".to_string());
    let spawned = std::env::current_exe().and_then(|program| {
        let mut again = Command::new(program);
        again.arg("mongod").args(words).env(CHILD, "1");
        again.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    });
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            crate::print_error(&format!("ERROR: cannot start the child process: {error}"));
            return ExitCode::FAILURE;
        }
    };
    print(format!("forked process: {}", child.id()));
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        // The line stays empty at the end of the output or after an error.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim() == READY {
        print("child process started successfully, parent exiting".to_string());
        return ExitCode::SUCCESS;
    }
    let code = child.wait().ok().and_then(|status| status.code()).unwrap_or(1);
    print(format!("ERROR: child process failed, exited with {code}"));
    print("To see additional information in this output, start without the \"--fork\" option.".to_string());
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

//! SIGHUP opens the log again, SIGUSR1 begins a new log file; neither ends the server.
//!
//! What ends it, SIGTERM and SIGINT, is the server crate's.

use std::io;

/// Looks out for both signals from now on, also while the data directory is recovered.
#[cfg(unix)]
pub(crate) fn watch() -> io::Result<()> {
    use server::logging;
    use signal_hook::consts::{SIGHUP, SIGUSR1};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGUSR1])?;
    std::thread::Builder::new().name("vellum-signals".to_string()).spawn(move || {
        for signal in signals.forever() {
            let done = match signal {
                SIGHUP => {
                    logging::reopen().map(|()| log::info!(c = "CONTROL"; "SIGHUP: the log is opened again"))
                }
                _ => logging::rotate().map(|old| match old {
                    Some(old) => {
                        log::info!(c = "CONTROL"; "SIGUSR1: what came before is in {}", old.display())
                    }
                    None => log::info!(c = "CONTROL"; "SIGUSR1: the log goes to no file, nothing to rotate"),
                }),
            };
            if let Err(error) = done {
                log::error!(c = "CONTROL"; "the log stays as it is: {error}");
            }
        }
    })?;
    Ok(())
}

/// There are no such signals elsewhere.
#[cfg(not(unix))]
pub(crate) fn watch() -> io::Result<()> {
    Ok(())
}

//! SIGHUP opens the log and reads certificates again, SIGUSR1 begins a new log file; neither ends the server.
//!
//! What ends it, SIGTERM and SIGINT, is the server crate's. Only the second of them is seen to here: who sends it
//! won't wait for commands under way and the last checkpoint. The next start finds in the journal what those leave.

use server::Tls;
use std::io;
use std::sync::Arc;

/// What a process ends with that a signal of this number has ended, by the shells' custom.
#[cfg(unix)]
const ENDED_BY: i32 = 128;

/// Looks out for signals from now on, also while the data directory is recovered.
#[cfg(unix)]
pub(crate) fn watch(tls: Option<Arc<Tls>>) -> io::Result<()> {
    use server::logging;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGUSR1, SIGTERM, SIGINT])?;
    storage::threads::spawn("vellum-signals", None, move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            if matches!(signal, SIGTERM | SIGINT) {
                if is_stopping {
                    log::warn!(c = "CONTROL"; "told to stop once more: what isn't finished is left to the journal");
                    std::process::exit(ENDED_BY + signal);
                }
                is_stopping = true;
                continue;
            }
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
            if let Some(tls) = tls.as_ref().filter(|_| signal == SIGHUP) {
                match tls.rotate() {
                    Ok(()) => log::info!(c = "NETWORK"; "SIGHUP: certificates are read again"),
                    Err(why) => log::error!(c = "NETWORK"; "certificates stay as they are: {why}"),
                }
            }
        }
    })?;
    Ok(())
}

/// There are no such signals elsewhere.
#[cfg(not(unix))]
pub(crate) fn watch(_: Option<Arc<Tls>>) -> io::Result<()> {
    Ok(())
}

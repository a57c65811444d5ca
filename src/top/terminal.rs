//! The terminal of a screen: alternate screen, single keys, and restoration at the end.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Escape sequences for the alternate screen without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal with a screen, restored when dropped.
pub(super) struct Terminal {
    before: Termios,
    ended: Arc<AtomicBool>,
}

impl Terminal {
    /// Takes over the terminal.
    pub(super) fn take() -> io::Result<Terminal> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, Arc::clone(&ended))?;
        }
        let before = tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &keys)?;
        let terminal = Terminal { before, ended };
        write(ENTER)?;
        Ok(terminal)
    }

    /// Returns columns and lines.
    pub(super) fn size() -> (usize, usize) {
        let size = terminal_size::terminal_size();
        size.map_or((80, 24), |(width, height)| (usize::from(width.0).max(20), usize::from(height.0).max(4)))
    }

    /// Replaces the shown lines.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        write(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }

    /// Waits until a time. Returns false after the key q or a signal.
    pub(super) fn wait(&self, until: Instant) -> bool {
        while !self.ended.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let stdin = io::stdin();
            let mut keys = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            // Rounded up, so that the loop does not spin in the last millisecond.
            let left = PollTimeout::try_from(left.min(Duration::from_secs(60)) + Duration::from_millis(1));
            match poll(&mut keys, left.unwrap_or(PollTimeout::ZERO)) {
                Ok(1) => {
                    let mut key = [0];
                    match io::stdin().read(&mut key) {
                        Ok(1) if key != *b"q" && key != *b"Q" => {}
                        _ => return false,
                    }
                }
                // A signal, for example after a change of the window size.
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Errors at the end cannot be reported.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

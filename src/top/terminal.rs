//! The terminal while a screen is shown: another page of it, keys read one by one, and all as it was at the end.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Another page, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal that shows a screen until it is dropped.
pub(super) struct Terminal {
    before: Termios,
    ended: Arc<AtomicBool>,
}

impl Terminal {
    /// Takes the terminal over.
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

    /// Columns and lines.
    pub(super) fn size() -> (usize, usize) {
        let size = terminal_size::terminal_size();
        size.map_or((80, 24), |(width, height)| (usize::from(width.0).max(20), usize::from(height.0).max(4)))
    }

    /// Shows lines in place of those before.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        write(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }

    /// Waits for a time, and tells whether to go on: not after q or a signal.
    pub(super) fn wait(&self, until: Instant) -> bool {
        while !self.ended.load(Ordering::Relaxed) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let stdin = io::stdin();
            let mut keys = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            // Rounded up, so that the last millisecond isn't spent asking.
            let left = PollTimeout::try_from(left.min(Duration::from_secs(60)) + Duration::from_millis(1));
            match poll(&mut keys, left.unwrap_or(PollTimeout::ZERO)) {
                Ok(1) => {
                    let mut key = [0];
                    match io::stdin().read(&mut key) {
                        Ok(1) if key != *b"q" && key != *b"Q" => {}
                        _ => return false,
                    }
                }
                // A signal, which may be that of another size.
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

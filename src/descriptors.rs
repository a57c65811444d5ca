//! File descriptors: as many as the system lets this process have, a fifth of them kept for files.
//!
//! Each connection takes one, and so does each file. Where connections could take all, a journal segment could
//! not be made: so connections beyond four fifths are refused, as by MongoDB.

/// The most that is asked for, however many there could be.
#[cfg(unix)]
const MOST: u64 = 1 << 20;

/// Raises the soft limit to the hard one; how many connections may be open then. `None` where the system
/// doesn't say.
#[cfg(unix)]
pub(crate) fn raise() -> Option<usize> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let wanted = hard.min(MOST);
    let limit = match soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        true => wanted,
        false => soft,
    };
    Some(usize::try_from(limit.min(MOST) / 5 * 4).unwrap_or(usize::MAX).max(1))
}

/// Elsewhere sockets are no files.
#[cfg(not(unix))]
pub(crate) fn raise() -> Option<usize> {
    None
}

//! Errors of engines, by the caller's possible reaction.
//!
//! This module has no wire codes: a function in `database` maps the errors to MongoDB's codes. The
//! variants are comparable and clonable, so that test doubles can compare the errors of two
//! engines.

use std::fmt;
use std::io;

use crate::Ident;

/// The result of every engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed engine call. Unless a variant says otherwise, nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Another writer has committed first. Retry with a new snapshot.
    WriteConflict,
    /// Stored bytes failed a check: a bad checksum, an impossible length. Stop and restore; do not
    /// retry.
    Corrupted(String),
    /// The operating system refused a read, write or sync. The durability of the batch is unknown.
    Io {
        /// The operating system's classification.
        kind: io::ErrorKind,
        /// The operation, its file, and the system's message.
        message: String,
    },
    /// No space left, on the device or under a configured limit. Free some, then retry.
    Full(String),
    /// The catalog is newer than the view of the read, so its plan is invalid. Begin again with a
    /// new [`read_view`](crate::store::Store::read_view).
    CatalogChanged,
    /// A remote engine cannot be reached now. Retry later.
    Unavailable(String),
    /// The requested state is no longer stored.
    SnapshotTooOld,
    /// The caller's wait has ended: see [`cancellation`](crate::cancellation).
    Interrupted(crate::cancellation::Reason),
    /// The engine has been closed permanently.
    Closed,
    /// A tree does not exist: an error in the calling code.
    NoSuchIdent(Ident),
    /// The tree to create or fork into already exists: an error in the calling code.
    IdentExists(Ident),
    /// A key longer than [`Key::MAX_BYTES`](crate::Key::MAX_BYTES), with its length in bytes.
    KeyTooLong(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::WriteConflict => write!(f, "write conflict"),
            Error::Corrupted(message) => write!(f, "stored data is corrupted: {message}"),
            Error::Io { message, .. } => write!(f, "{message}"),
            Error::Full(message) => write!(f, "no space left: {message}"),
            Error::CatalogChanged => write!(f, "the catalog has changed"),
            Error::Unavailable(message) => write!(f, "{message}"),
            Error::SnapshotTooOld => write!(f, "the snapshot is no longer available"),
            Error::Interrupted(_) => write!(f, "the operation was interrupted"),
            Error::Closed => write!(f, "the storage engine is closed"),
            Error::NoSuchIdent(ident) => write!(f, "no tree has the number {}", ident.0),
            Error::IdentExists(ident) => write!(f, "a tree with the number {} exists already", ident.0),
            Error::KeyTooLong(bytes) => write!(f, "a key of {bytes} bytes is too long"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let message = error.to_string();
        if is_full(&error) { Error::Full(message) } else { Error::Io { kind: error.kind(), message } }
    }
}

/// Returns true for an error that means a full disk, or a limit of the process (`ulimit -f`).
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

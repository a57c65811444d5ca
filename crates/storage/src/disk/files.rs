//! The interface between the disk engine and the operating system: a few calls on files and directories.
//!
//! All writes of the engine use it. A test can substitute a file system that stops at any write or sync, loses unsynced
//! data, or is full ([`crate::testing::FaultyFiles`]).
//!
//! A write to the base's file without space is repeated until it succeeds ([`Control`]), and only its checkpoint waits.
//! Meanwhile readers continue, and writers continue until the memory for changes is full.

use crate::error::is_full;
use crate::{Error, EventCount, Result};
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::fmt::Debug;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Block size of direct I/O: at least the block size of any disk.
pub const BLOCK: usize = 4096;

/// A file system with the operations that the engine needs.
pub trait Files: Send + Sync {
    /// Creates a directory and its parents. An existing directory is no error.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory in no order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing. Creates a missing file if `create` is set.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>>;

    /// Renames a file. Replaces an existing file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Syncs the names in a directory: files created, renamed and removed.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Takes a lock that excludes other processes until it is dropped. Returns `WouldBlock` if another process holds
    /// it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;

    /// Returns a random number, for the id of a new directory.
    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}

/// Attempts to take a held lock, and their interval.
const LOCK_ATTEMPTS: u32 = 15;
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Text of a lock's error if the holder is unknown: a Vellum whose lock file was removed, or a program such as flock.
pub(super) const ANOTHER_PROCESS: &str = "another process";

/// Combined calls. Errors name the operation and the path.
impl dyn Files + '_ {
    /// Creates a directory and its parents.
    pub(super) fn make(&self, directory: &Path) -> Result<()> {
        self.create_directory(directory).map_err(|error| during("making", directory, error))
    }

    /// Returns the names in a directory.
    pub(super) fn names(&self, directory: &Path) -> Result<Vec<String>> {
        self.list(directory).map_err(|error| during("reading", directory, error))
    }

    /// Returns the names in a directory; none if it does not exist.
    pub(super) fn names_if_any(&self, directory: &Path) -> Result<Vec<String>> {
        match self.list(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.map_err(|error| during("reading", directory, error)),
        }
    }

    /// Renames a file.
    pub(super) fn move_file(&self, from: &Path, to: &Path) -> Result<()> {
        self.rename(from, to).map_err(|error| during("renaming", from, error))
    }

    /// Removes a file.
    pub(super) fn remove_file(&self, path: &Path) -> Result<()> {
        self.remove(path).map_err(|error| during("removing", path, error))
    }

    /// Syncs the names in a directory.
    pub(super) fn sync_names(&self, directory: &Path) -> Result<()> {
        self.sync_directory(directory).map_err(|error| during("syncing", directory, error))
    }

    /// Returns the contents of a small file: at most 64 KiB.
    pub(super) fn read_small(&self, path: &Path) -> Result<Vec<u8>> {
        let read = || {
            let file = self.open(path, false)?;
            let mut bytes = vec![0; file.len()?.min(1 << 16) as usize];
            file.read_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        read().map_err(|error| during("reading", path, error))
    }

    /// Writes and syncs a file. Its name is not durable yet.
    pub(super) fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<Arc<dyn File>> {
        let file = self.open(path, true)?;
        file.set_len(0)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        Ok(file)
    }

    /// Writes a file durably under the name `new`, then renames it to `name`.
    pub(super) fn replace(&self, directory: &Path, new: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let (new, path) = (directory.join(new), directory.join(name));
        let write = || {
            self.write_file(&new, bytes)?;
            self.rename(&new, &path)?;
            self.sync_directory(directory)
        };
        write().map_err(|error| during("writing", &path, error))
    }
}

/// Returns an operating system error with a description of the operation.
pub(super) fn during(action: &str, path: &Path, error: io::Error) -> Error {
    match Error::from(error) {
        Error::Full(message) => Error::Full(format!("{action} {}: {message}", path.display())),
        Error::Io { kind, message } => {
            Error::Io { kind, message: format!("{action} {}: {message}", path.display()) }
        }
        error => error,
    }
}

/// An open file, read and written at offsets by many threads.
#[expect(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
pub trait File: Debug + Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Fills a buffer from an offset. Returns `UnexpectedEof` if the file is too short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes a whole buffer at an offset. After an error any part of it may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Syncs the contents and the length.
    fn sync(&self) -> io::Result<()>;

    /// Writes a whole buffer durably, by direct I/O if possible. Offset, length and address are multiples of [`BLOCK`],
    /// and the file is already long enough.
    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)?;
        self.sync()
    }

    /// Truncates the file or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)?;
        Ok(Arc::new(SystemFile { file, path: path.to_owned(), direct: OnceLock::new() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        match cfg!(unix) {
            true => fs::File::open(directory)?.sync_all(),
            // On other systems a directory cannot be opened, and needs no sync.
            false => Ok(()),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let held = |by: String| Err(io::Error::new(io::ErrorKind::WouldBlock, by));
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match lock_soon(&file) {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return held(fs::read_to_string(path).unwrap_or_default()),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
        // Users remove the file, as they do with `mongod.lock`. Not every file system has locks for directories.
        let directory = path.parent().filter(|_| cfg!(unix)).and_then(|parent| fs::File::open(parent).ok());
        if let Some(Err(fs::TryLockError::WouldBlock)) = directory.as_ref().map(lock_soon) {
            return held(ANOTHER_PROCESS.to_string());
        }
        // The process id is for error messages only, so a full disk does not prevent opening.
        let _ = file.set_len(0).and_then(|()| (&file).write_all(std::process::id().to_string().as_bytes()));
        Ok(Box::new((directory, file)))
    }
}

/// Locks a file. A child of the process that has just unlocked it may hold it until its exec, so a few attempts follow.
fn lock_soon(file: &fs::File) -> std::result::Result<(), fs::TryLockError> {
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => crate::time::sleep(LOCK_INTERVAL),
            outcome => return outcome,
        }
    }
    file.try_lock()
}

#[derive(Debug)]
struct SystemFile {
    file: fs::File,
    path: PathBuf,
    /// The same file, opened for direct I/O; `None` if unsupported.
    direct: OnceLock<Option<fs::File>>,
}

/// Opens a file for direct I/O. Each write is durable when it returns.
#[cfg(target_os = "linux")]
fn open_directly(path: &Path) -> Option<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = nix::fcntl::OFlag::O_DIRECT | nix::fcntl::OFlag::O_DSYNC;
    fs::OpenOptions::new().write(true).custom_flags(flags.bits()).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_directly(_: &Path) -> Option<fs::File> {
    None
}

impl File for SystemFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.file, buffer, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    buffer = buffer.get_mut(read..).unwrap_or_default();
                    offset += read as u64;
                }
            }
        }
        Ok(())
    }

    #[cfg(windows)]
    fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match std::os::windows::fs::FileExt::seek_write(&self.file, bytes, offset)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    #[cfg(unix)]
    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(BLOCK as u64), "direct I/O at offset {offset}");
        debug_assert!(bytes.len().is_multiple_of(BLOCK), "direct I/O of {} bytes", bytes.len());
        debug_assert_eq!(bytes.as_ptr().align_offset(BLOCK), 0, "direct I/O needs an aligned address");
        if let Some(direct) = self.direct.get_or_init(|| open_directly(&self.path)) {
            match std::os::unix::fs::FileExt::write_all_at(direct, bytes, offset) {
                // Some file systems accept the flag and refuse such writes.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                written => return written,
            }
        }
        self.write_at(bytes, offset)?;
        self.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

/// Pause before a retry.
const RETRY: Duration = Duration::from_millis(50);

/// Write state of the base's file, shared with other threads.
#[derive(Debug, Default)]
pub(super) struct Control {
    condition: Mutex<Condition>,
    changed: Condvar,
    /// Counts what ends the waits of writers for space: a checkpoint begins or ends, the disk is full, the engine
    /// closes.
    pub(super) progress: Arc<EventCount>,
}

/// Shared flags of the writes.
#[derive(Debug, Default)]
struct Condition {
    /// Error text of a write that waits for space.
    full: Option<String>,
    /// The engine is closing: writes fail instead of waiting.
    closing: bool,
}

impl Control {
    /// Creates a control whose writes never wait.
    pub(super) fn impatient() -> Self {
        let control = Control::default();
        control.close();
        control
    }

    /// Returns the error text of a write that waits for space.
    pub(super) fn full(&self) -> Option<String> {
        self.condition.lock().full.clone()
    }

    /// Makes waiting writes fail.
    pub(super) fn close(&self) {
        self.condition.lock().closing = true;
        self.changed.notify_all();
        self.progress.advance();
    }

    /// Repeats an operation until it has space.
    pub(super) fn with_space(&self, attempt: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            let result = attempt();
            let mut condition = self.condition.lock();
            match &result {
                Err(error) if is_full(error) && !condition.closing => {
                    if condition.full.replace(error.to_string()).is_none() {
                        self.progress.advance();
                    }
                    self.changed.wait_for(&mut condition, RETRY);
                }
                _ => {
                    condition.full = None;
                    return result;
                }
            }
        }
    }
}

//! A directory of backups: parts in their order, `000001.full`, `000002.changes` and so on.
//!
//! A part is written as `000003.part`, synced, verified by reading, and then renamed. Every other name is therefore a
//! complete part. The file `vellum.backup` marks the directory, so that other directories are never changed.

use std::any::Any;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame_stream::Part;
use crate::disk::directory::LOCK_FILE;
use crate::disk::files::{File, Files, during};
use crate::disk::ownership;
use crate::{Error, Kind, Result, Since};

/// The file that marks a directory of backups, and names its format version.
const FORMAT_FILE: &str = "vellum.backup";
const FORMAT: u32 = 1;
const FORMAT_BEGINS: &str = "Vellum backup\nformat ";
const NEW_FORMAT_FILE: &str = "vellum.backup.new";
const UNFINISHED: &str = "part";

/// An existing or new directory of backups.
pub struct BackupDirectory {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// Complete parts in order.
    parts: Vec<Part>,
    /// Numbers of incomplete parts.
    unfinished: Vec<u64>,
    /// Held while the directory is open for writing.
    lock: Option<Box<dyn Any + Send + Sync>>,
}

/// A part being written.
pub struct PartWriter<'a> {
    directory: &'a mut BackupDirectory,
    number: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Number of bytes written.
    len: u64,
}

fn refused(message: String) -> Error {
    Error::Io { kind: ErrorKind::InvalidInput, message }
}

impl BackupDirectory {
    /// Opens a directory for writing backups: with earlier backups, empty, or missing. Locks it against other writers
    /// until this value is dropped.
    ///
    /// Errors: other files in the directory, and another writer.
    pub fn open(files: Arc<dyn Files>, path: &Path) -> Result<Self> {
        let is_ours = match files.list(path) {
            Ok(names) => names.iter().any(|name| name == FORMAT_FILE),
            // It is created below. Any other error occurs again there, with the path.
            Err(_) => false,
        };
        if !is_ours {
            ownership::check_target(&*files, path, &[LOCK_FILE, FORMAT_FILE, NEW_FORMAT_FILE])?;
        }
        files.make(path)?;
        let lock = files.lock(&path.join(LOCK_FILE)).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                refused(format!("another backup is being written to {}", path.display()))
            }
            _ => during("locking", path, error),
        })?;
        if !is_ours {
            let text = format!("{FORMAT_BEGINS}{FORMAT}\n");
            files.replace(path, NEW_FORMAT_FILE, FORMAT_FILE, text.as_bytes())?;
        }
        let mut directory = BackupDirectory::read(files, path)?;
        directory.lock = Some(lock);
        for number in std::mem::take(&mut directory.unfinished) {
            directory.files.remove_file(&directory.file(number, UNFINISHED))?;
        }
        Ok(directory)
    }

    /// Reads a directory.
    ///
    /// Errors: no directory of backups, a newer version, and parts damaged at either end.
    pub fn read(files: Arc<dyn Files>, path: &Path) -> Result<Self> {
        let names = files.names(path)?;
        check_format(&*files, path, &names)?;
        let mut directory = BackupDirectory {
            files,
            path: path.to_path_buf(),
            parts: Vec::new(),
            unfinished: Vec::new(),
            lock: None,
        };
        for name in names {
            let Some((number, extension)) = numbered(&name) else { continue };
            match extension {
                UNFINISHED => directory.unfinished.push(number),
                _ => {
                    let part = Part::open(&*directory.files, &path.join(&name), number)?;
                    if part.kind.name() != extension {
                        let message =
                            format!("the contents of {} do not match its name", part.path.display());
                        return Err(Error::Corrupted(message));
                    }
                    directory.parts.push(part);
                }
            }
        }
        directory.parts.sort_by_key(|part| part.number);
        Ok(directory)
    }

    /// Returns the complete parts in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns true if a backup is incomplete: interrupted, or in progress.
    pub fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Returns the end of the latest part.
    pub fn since(&self) -> Option<Since> {
        self.parts.last().map(|part| Since { id: part.id, position: part.end.position })
    }

    /// Reads all parts and returns the damages.
    pub fn check(&self) -> Vec<Error> {
        let mut damages: Vec<Error> = Vec::new();
        let mut last: Option<&Part> = None;
        for part in &self.parts {
            damages.extend(part.check(&self.files).err());
            let follows = last.is_some_and(|last| last.id == part.id && last.end.position == part.from);
            if part.kind == Kind::Changes && !follows {
                let message = format!("{} does not continue the previous part", part.path.display());
                damages.push(Error::Corrupted(message));
            }
            last = Some(part);
        }
        damages
    }

    /// Begins a part.
    ///
    /// Errors: I/O.
    pub fn begin(&mut self) -> Result<PartWriter<'_>> {
        let number = self.parts.last().map_or(1, |part| part.number + 1);
        debug_assert!(self.parts.iter().all(|part| part.number < number), "part {number} exists");
        let path = self.file(number, UNFINISHED);
        let open = || {
            let file = self.files.open(&path, true)?;
            file.set_len(0)?;
            Ok(file)
        };
        let file = open().map_err(|error| during("making", &path, error))?;
        Ok(PartWriter { directory: self, number, path, file, len: 0 })
    }

    fn file(&self, number: u64, extension: &str) -> PathBuf {
        self.path.join(format!("{number:06}.{extension}"))
    }
}

/// Returns the number in a part's name and the remaining name.
fn numbered(name: &str) -> Option<(u64, &str)> {
    let (digits, extension) = name.split_once('.')?;
    let number = digits.parse().ok()?;
    let known = [UNFINISHED, Kind::Full.name(), Kind::Changes.name()].contains(&extension);
    (known && digits == format!("{number:06}")).then_some((number, extension))
}

/// Checks the mark and the version of a directory. Refuses a directory with other files.
fn check_format(files: &dyn Files, path: &Path, names: &[String]) -> Result<()> {
    if !names.iter().any(|name| name == FORMAT_FILE) {
        return Err(refused(format!("{} is not a backup: it has no file {FORMAT_FILE}", path.display())));
    }
    let file = path.join(FORMAT_FILE);
    let bytes = files.read_small(&file)?;
    let text = String::from_utf8_lossy(&bytes);
    match text.strip_prefix(FORMAT_BEGINS).and_then(|rest| rest.strip_suffix('\n')?.parse().ok()) {
        Some(FORMAT) => Ok(()),
        Some(other) => Err(refused(format!(
            "{}: the backup has format {other}, and this version of Vellum reads only format {FORMAT}",
            path.display()
        ))),
        None => Err(Error::Corrupted(format!("{} has invalid contents", file.display()))),
    }
}

impl PartWriter<'_> {
    /// Writes the next bytes.
    ///
    /// Errors: I/O.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.len).map_err(|error| during("writing", &self.path, error))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Returns the number of bytes written.
    pub fn written(&self) -> u64 {
        self.len
    }

    /// Syncs the part, verifies it by reading, and renames it.
    ///
    /// Errors: I/O, and bytes that differ from the written ones.
    pub fn finish(self) -> Result<&'static str> {
        let files = Arc::clone(&self.directory.files);
        self.file.sync().map_err(|error| during("syncing", &self.path, error))?;
        let mut part = Part::open(&*files, &self.path, self.number)?;
        part.check(&files)?;
        let name = self.directory.file(self.number, part.kind.name());
        let rename =
            files.rename(&self.path, &name).and_then(|()| files.sync_directory(&self.directory.path));
        rename.map_err(|error| during("renaming", &self.path, error))?;
        debug_assert_eq!(part.number, self.number, "another part was read");
        part.path = name;
        let kind = part.kind.name();
        self.directory.parts.push(part);
        Ok(kind)
    }

    /// Removes the written data.
    pub fn discard(self) {
        // A remaining file is known to be incomplete, and the next backup removes it.
        let _ = self.directory.files.remove(&self.path);
    }
}

//! Runs of records in a temporary file, for blocking stages beyond their memory limit.
//!
//! One file holds all runs of a stage, so a stage uses one descriptor however often it spills. The file is deleted when
//! the last [`Run`] and the [`SpillFile`] are dropped. On Unix it has no name once it is open, so a killed process
//! leaves no file behind.
//!
//! A record is the key's length (`u32`), a tag (`u64`), the key and a BSON document. Numbers are little-endian. Only
//! the process that wrote a file reads it, so the format may change.

use base::bson::{DocumentBuf, DocumentCow};
use base::{Result, bail, err};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prefix of the names of temporary files.
const PREFIX: &str = "vellum-spill-";
/// Bytes written, and at most read, at a time.
const CHUNK: usize = 1 << 16;
/// Minimum bytes read at a time, however many runs exist.
const CHUNK_MIN: usize = 1 << 12;

/// The directory of temporary files; the system's directory by default. Clones are cheap.
#[derive(Clone, Default)]
pub struct SpillFolder(Arc<Folder>);

/// The shared state of a folder's clones.
#[derive(Default)]
struct Folder {
    /// `None` means the system's directory.
    path: Option<PathBuf>,
    /// Number of files created so far.
    files: AtomicU64,
}

impl SpillFolder {
    /// Opens a dedicated directory and creates it if necessary. Files that a process left when it was killed during
    /// creation are removed.
    ///
    /// Errors: the directory cannot be created or read.
    pub fn open(directory: &Path) -> io::Result<SpillFolder> {
        prepare(directory)?;
        Ok(SpillFolder(Arc::new(Folder { path: Some(directory.to_path_buf()), files: AtomicU64::new(0) })))
    }

    /// Returns a name for the next file.
    fn next(&self) -> PathBuf {
        let number = self.0.files.fetch_add(1, Ordering::Relaxed);
        let directory = self.0.path.clone().unwrap_or_else(std::env::temp_dir);
        directory.join(format!("{PREFIX}{}-{number}", std::process::id()))
    }
}

/// Creates the directory and removes temporary files of an earlier process.
fn prepare(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn failed(error: io::Error) -> base::Error {
    match error.kind() {
        ErrorKind::StorageFull => err!(OutOfDiskSpace, "no space left for a temporary file: {error}"),
        _ => err!(FileStreamFailed, "a temporary file failed: {error}"),
    }
}

/// A file that is deleted with its last reference.
struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    /// Creates a file. Errors: OutOfDiskSpace, FileStreamFailed.
    fn create(folder: &SpillFolder) -> Result<Temporary> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let (file, path) = loop {
            let path = folder.next();
            match options.open(&path) {
                // Other folders of this process may use the system's directory too.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                file => break (file.map_err(failed)?, path),
            }
        };
        #[cfg(unix)]
        let _ = fs::remove_file(&path);
        Ok(Temporary { file, path })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)).map_err(failed)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(bytes)).map_err(failed)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if cfg!(not(unix)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A temporary file, created when the first run begins.
#[derive(Default)]
pub(crate) struct SpillFile {
    folder: SpillFolder,
    file: Option<Arc<Temporary>>,
    end: u64,
}

impl SpillFile {
    /// Returns a file in a folder.
    pub(crate) fn within(folder: &SpillFolder) -> SpillFile {
        SpillFile { folder: folder.clone(), ..SpillFile::default() }
    }

    /// Returns another file in the same folder.
    pub(crate) fn another(&self) -> SpillFile {
        SpillFile::within(&self.folder)
    }

    /// Begins a run after the existing runs. It must end before the next begins.
    ///
    /// Errors: OutOfDiskSpace, FileStreamFailed.
    pub(crate) fn begin(&mut self) -> Result<RunWriter> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.file.insert(Arc::new(Temporary::create(&self.folder)?))),
        };
        Ok(RunWriter { file, start: self.end, at: self.end, buffer: Vec::with_capacity(CHUNK) })
    }

    /// Ends a run.
    pub(crate) fn end(&mut self, mut writer: RunWriter) -> Result<Run> {
        writer.flush()?;
        self.end = writer.at;
        Ok(Run {
            file: writer.file,
            start: writer.start,
            end: writer.at,
            at: writer.start,
            chunk: CHUNK,
            buffer: Vec::new(),
            position: 0,
            empty_document: DocumentCow::Shared(DocumentBuf::empty().into_bytes().into()),
        })
    }

    /// Bytes written.
    pub(crate) fn size(&self) -> u64 {
        self.end
    }
}

/// Writer of a run.
pub(crate) struct RunWriter {
    file: Arc<Temporary>,
    start: u64,
    at: u64,
    buffer: Vec<u8>,
}

impl RunWriter {
    /// Appends a record: a key, a tag and a document.
    pub(crate) fn write(&mut self, key: &[u8], tag: u64, document: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&tag.to_le_bytes());
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(document);
        if self.buffer.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write(self.at, &self.buffer)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Sequential reader of a run.
pub(crate) struct Run {
    file: Arc<Temporary>,
    start: u64,
    end: u64,
    /// File offset of the next read. Earlier records are in the buffer or have been returned.
    at: u64,
    chunk: usize,
    buffer: Vec<u8>,
    position: usize,
    /// A shared empty document, for runs whose records have no document.
    empty_document: DocumentCow,
}

/// A record of a run.
pub(crate) struct Spilled {
    pub(crate) key: Vec<u8>,
    pub(crate) tag: u64,
    pub(crate) document: DocumentCow,
}

impl Run {
    /// Sets the size of the read buffer in bytes, within `CHUNK_MIN` and `CHUNK`.
    pub(crate) fn set_buffer_size(&mut self, bytes: usize) {
        self.chunk = bytes.clamp(CHUNK_MIN, CHUNK);
    }

    /// Returns the next record.
    pub(crate) fn next(&mut self) -> Result<Option<Spilled>> {
        if self.position == self.buffer.len() && self.at == self.end {
            self.buffer = Vec::new();
            self.position = 0;
            return Ok(None);
        }
        let key_length = u32::from_le_bytes(self.array()?) as usize;
        let tag = u64::from_le_bytes(self.array()?);
        let key = self.take(key_length)?.to_vec();
        let length: [u8; 4] = self.array()?;
        let empty_document = self.empty_document.clone();
        let rest = self.take((u32::from_le_bytes(length) as usize).saturating_sub(4))?;
        if let [_] = rest {
            return Ok(Some(Spilled { key, tag, document: empty_document }));
        }
        let mut document = Vec::with_capacity(rest.len() + 4);
        document.extend_from_slice(&length);
        document.extend_from_slice(rest);
        Ok(Some(Spilled { key, tag, document: DocumentBuf::from_valid(document).into() }))
    }

    /// Restarts at the first record.
    pub(crate) fn restart(&mut self) {
        self.at = self.start;
        self.buffer.clear();
        self.position = 0;
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| err!(FileStreamFailed, "a temporary file ends early"))
    }

    fn take(&mut self, count: usize) -> Result<&[u8]> {
        if self.buffer.len() - self.position < count {
            self.refill(count)?;
        }
        let taken = self.position..self.position + count;
        self.position += count;
        self.buffer.get(taken).ok_or_else(|| err!(FileStreamFailed, "a temporary file ends early"))
    }

    /// Reads until at least `count` bytes are in the buffer, if the run has them.
    fn refill(&mut self, count: usize) -> Result<()> {
        self.buffer.drain(..self.position);
        self.position = 0;
        let buffered = self.buffer.len();
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let more = (count.max(self.chunk) - buffered).min(left);
        self.buffer.resize(buffered + more, 0);
        if let Some(space) = self.buffer.get_mut(buffered..) {
            self.file.read(self.at, space)?;
        }
        self.at += more as u64;
        if self.buffer.len() < count {
            bail!(FileStreamFailed, "a temporary file ends early");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::Builder;

    fn write(file: &mut SpillFile, numbers: std::ops::Range<i32>) -> Run {
        let mut writer = file.begin().unwrap();
        for number in numbers {
            let mut builder = Builder::new();
            builder.append(c"n", number).append(c"pad", "x".repeat(number as usize % 300).as_str());
            writer.write(&number.to_be_bytes(), number as u64, builder.finish().bytes()).unwrap();
        }
        file.end(writer).unwrap()
    }

    fn check(run: &mut Run, numbers: std::ops::Range<i32>) {
        for number in numbers {
            let record = run.next().unwrap().unwrap();
            assert_eq!((record.key.as_slice(), record.tag), (&number.to_be_bytes()[..], number as u64));
            assert_eq!(record.document.view().get("n").unwrap().as_i64(), Some(i64::from(number)));
        }
        assert!(run.next().unwrap().is_none() && run.next().unwrap().is_none());
    }

    #[test]
    fn runs_of_one_file_are_read_side_by_side() {
        let mut file = SpillFile::default();
        let (mut first, mut second) = (write(&mut file, 0..1000), write(&mut file, 500..900));
        first.set_buffer_size(1);
        assert!(first.next().unwrap().is_some() && second.next().unwrap().is_some());
        first.restart();
        second.restart();
        check(&mut second, 500..900);
        check(&mut first, 0..1000);
        first.restart();
        check(&mut first, 0..1000);
        let mut empty = write(&mut file, 0..0);
        check(&mut empty, 0..0);
    }

    #[test]
    fn files_of_a_killed_process_are_removed() {
        let directory = std::env::temp_dir().join(format!("spill-test-{}", std::process::id()));
        prepare(&directory).unwrap();
        fs::write(directory.join(format!("{PREFIX}1-2")), b"left").unwrap();
        fs::write(directory.join("else"), b"stays").unwrap();
        prepare(&directory).unwrap();
        let names: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["else"]);
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Whether this process has the file open, with or without a name.
    #[cfg(target_os = "linux")]
    fn is_open(path: &Path) -> bool {
        let name = path.to_string_lossy().into_owned();
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|target| target.to_string_lossy().starts_with(&format!("{name} ")))
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_temporary_file_has_no_name_and_ends_with_its_runs() {
        // A dedicated directory: other tests may use equal file names elsewhere.
        let directory = std::env::temp_dir().join(format!("spill-own-{}", std::process::id()));
        let mut file = SpillFile::within(&SpillFolder::open(&directory).unwrap());
        let run = write(&mut file, 0..10);
        let path = run.file.path.clone();
        assert!(!path.exists() && is_open(&path));
        drop(file);
        assert!(is_open(&path));
        drop(run);
        assert!(!is_open(&path));
        fs::remove_dir_all(&directory).unwrap();
    }
}

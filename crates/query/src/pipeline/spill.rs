//! Runs of records in temporary files, for what blocking stages can't hold in memory.
//!
//! A file is gone when its [`Run`] is dropped, and on Unix has no name as soon as it is open, so
//! that a killed process leaves nothing behind.

use base::bson::DocumentBuf;
use base::{Result, err};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A run that is being written.
pub(crate) struct RunWriter {
    writer: BufWriter<File>,
    path: PathBuf,
    records: u64,
}

/// A run that is being read, front to back.
pub(crate) struct Run {
    reader: BufReader<File>,
    path: PathBuf,
    records: u64,
    left: u64,
}

fn failed(error: std::io::Error) -> base::Error {
    match error.kind() {
        ErrorKind::StorageFull => err!(OutOfDiskSpace, "no space left for a temporary file: {error}"),
        _ => err!(FileStreamFailed, "a temporary file failed: {error}"),
    }
}

impl RunWriter {
    /// A new temporary file.
    ///
    /// Errors: OutOfDiskSpace, FileStreamFailed.
    pub(crate) fn create() -> Result<RunWriter> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("vellum-spill-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(failed)?;
        #[cfg(unix)]
        let _ = std::fs::remove_file(&path);
        Ok(RunWriter { writer: BufWriter::with_capacity(1 << 16, file), path, records: 0 })
    }

    /// Appends a record: a key and a document.
    pub(crate) fn write(&mut self, key: &[u8], document: &[u8]) -> Result<()> {
        self.records += 1;
        self.writer.write_all(&(key.len() as u32).to_le_bytes()).map_err(failed)?;
        self.writer.write_all(key).map_err(failed)?;
        self.writer.write_all(document).map_err(failed)
    }

    /// Turns to reading from the start.
    pub(crate) fn finish(self) -> Result<Run> {
        let mut file = self.writer.into_inner().map_err(|error| failed(error.into_error()))?;
        file.rewind().map_err(failed)?;
        Ok(Run {
            reader: BufReader::with_capacity(1 << 16, file),
            path: self.path,
            records: self.records,
            left: self.records,
        })
    }
}

impl Run {
    /// The next record.
    pub(crate) fn next(&mut self) -> Result<Option<(Vec<u8>, DocumentBuf)>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let key_length = self.read_length()?;
        let mut key = vec![0; key_length];
        self.reader.read_exact(&mut key).map_err(failed)?;
        let length = self.read_length()?;
        let mut document = vec![0; length.max(4)];
        let (head, rest) = document.split_at_mut(4);
        head.copy_from_slice(&(length as u32).to_le_bytes());
        self.reader.read_exact(rest).map_err(failed)?;
        Ok(Some((key, DocumentBuf::from_valid(document))))
    }

    /// Begins again with the first record.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.left = self.records;
        self.reader.rewind().map_err(failed)
    }

    fn read_length(&mut self) -> Result<usize> {
        let mut length = [0; 4];
        self.reader.read_exact(&mut length).map_err(failed)?;
        Ok(u32::from_le_bytes(length) as usize)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if cfg!(not(unix)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::Builder;

    #[test]
    fn records_come_back_in_order() {
        let mut writer = RunWriter::create().unwrap();
        for number in 0..1000i32 {
            let mut builder = Builder::new();
            builder.append("n", number);
            writer.write(&number.to_be_bytes(), builder.finish().bytes()).unwrap();
        }
        let mut run = writer.finish().unwrap();
        for number in 0..1000i32 {
            let (key, document) = run.next().unwrap().unwrap();
            assert_eq!(key, number.to_be_bytes());
            assert_eq!(document.view().get("n").unwrap().as_i64(), Some(i64::from(number)));
        }
        assert!(run.next().unwrap().is_none());
        run.restart().unwrap();
        assert_eq!(run.next().unwrap().unwrap().0, 0i32.to_be_bytes());
    }
}

//! Files that can be written to without being changed: what is written stays in memory.
//!
//! Opening a base may write to it, and whoever salvages a directory wants to leave it as it was found.

use std::any::Any;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{File, Files};

const BLOCK: u64 = 4096;

/// A file system whose files are covered.
pub(super) struct Overlay(pub(super) Arc<dyn Files>);

impl Files for Overlay {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn open(&self, path: &Path, _create: bool) -> io::Result<Arc<dyn File>> {
        let below = self.0.open(path, false)?;
        let len = below.len()?;
        let cover = Mutex::new(Cover { len, below_len: len, blocks: HashMap::new() });
        Ok(Arc::new(Covered { below, cover }))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_directory(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.0.lock(path)
    }
}

#[derive(Debug)]
struct Covered {
    below: Arc<dyn File>,
    cover: Mutex<Cover>,
}

#[derive(Debug)]
struct Cover {
    len: u64,
    /// How much of the file below is still seen.
    below_len: u64,
    /// Blocks written to, by number.
    blocks: HashMap<u64, Vec<u8>>,
}

impl Cover {
    /// A block as it is now.
    fn block(&self, below: &dyn File, number: u64) -> io::Result<Vec<u8>> {
        if let Some(block) = self.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize];
        let there = self.below_len.saturating_sub(number * BLOCK).min(BLOCK) as usize;
        if let (true, Some(part)) = (there > 0, block.get_mut(..there)) {
            below.read_at(part, number * BLOCK)?;
        }
        Ok(block)
    }
}

/// The parts of blocks that a range covers: block, where in it, where in the range, length.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let part = (BLOCK as usize - within).min(len - done);
        done += part;
        (part > 0).then_some((at / BLOCK, within, done - part, part))
    })
}

impl File for Covered {
    fn len(&self) -> io::Result<u64> {
        Ok(self.cover.lock().len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let cover = self.cover.lock();
        if offset + buffer.len() as u64 > cover.len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for (number, within, at, part) in parts(offset, buffer.len()) {
            let block = cover.block(&*self.below, number)?;
            if let (Some(to), Some(from)) = (buffer.get_mut(at..at + part), block.get(within..within + part))
            {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut cover = self.cover.lock();
        for (number, within, at, part) in parts(offset, bytes.len()) {
            let mut block = cover.block(&*self.below, number)?;
            if let (Some(to), Some(from)) = (block.get_mut(within..within + part), bytes.get(at..at + part)) {
                to.copy_from_slice(from);
            }
            cover.blocks.insert(number, block);
        }
        cover.len = cover.len.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut cover = self.cover.lock();
        if len < cover.len {
            // What is filled up again later is zeros.
            cover.below_len = cover.below_len.min(len);
            cover.blocks.retain(|number, _| number * BLOCK < len);
            if let Some(block) = cover.blocks.get_mut(&(len / BLOCK)) {
                block.iter_mut().skip((len % BLOCK) as usize).for_each(|byte| *byte = 0);
            }
        }
        cover.len = len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FaultyFiles;

    #[test]
    fn what_is_written_is_read_and_the_file_below_stays() {
        let files = FaultyFiles::new();
        let path = Path::new("/f");
        let below = files.open(path, true).unwrap();
        below.write_at(&[1; 10_000], 0).unwrap();
        let covered = Overlay(Arc::new(files.clone())).open(path, false).unwrap();
        covered.write_at(&[2; 5000], 3000).unwrap();
        covered.set_len(9000).unwrap();
        covered.set_len(20_000).unwrap();
        covered.write_at(&[3], 19_999).unwrap();
        let mut read = vec![9; 20_000];
        covered.read_at(&mut read, 0).unwrap();
        let expected = [vec![1; 3000], vec![2; 5000], vec![1; 1000], vec![0; 10_999], vec![3]].concat();
        assert!(read == expected);
        assert!(covered.read_at(&mut [0; 2], 19_999).is_err());
        assert_eq!(files.read(path), Some(vec![1; 10_000]));
    }
}

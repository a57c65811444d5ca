//! The superblock: from where everything in the base's file is found.
//!
//! There are two slots at the front of the file, used in turn. A checkpoint writes its pages, syncs, writes its
//! superblock into the slot of the one before the last, and syncs: whatever is interrupted, one of them is whole, and
//! nothing that it leads to has been written over. Behind them lie two more with the same, in case a block goes bad.

use super::page::UNIT;
use super::tree::Tree;
use crate::disk::files::File;
use crate::disk::journal::during;
use crate::{Error, Result};

const MARK: &[u8; 8] = b"VellumB\n";
const VERSION: u32 = 1;
/// How far the slots are from one another.
const SLOT: u64 = 4096;
/// How many there are: each twice.
const SLOTS: u64 = 4;
/// How much of the file the slots take, in units.
pub(super) const SLOTS_UNITS: u64 = SLOTS * SLOT / UNIT as u64;
const BYTES: usize = 12 + 5 * 8 + 2 * (1 + Tree::BYTES) + 4;

/// What is in a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Superblock {
    /// The number of the checkpoint.
    pub(super) sequence: u64,
    /// The position of the last commit that the base holds.
    pub(super) position: u64,
    /// The greatest time of any commit up to that position.
    pub(super) time: u64,
    /// The number that the next table gets.
    pub(super) next_table: u64,
    /// How long the file is, in units.
    pub(super) end: u64,
    /// For each tree its table, the number of its entries, and the lengths of its keys and values.
    pub(super) idents: Option<Tree>,
    /// For each table where it is.
    pub(super) tables: Option<Tree>,
}

impl Superblock {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MARK.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        for number in [self.sequence, self.position, self.time, self.next_table, self.end] {
            bytes.extend(number.to_le_bytes());
        }
        for tree in [self.idents, self.tables] {
            bytes.push(u8::from(tree.is_some()));
            bytes.extend(tree.map_or([0; Tree::BYTES], Tree::encode));
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk::<4>()?;
        let rest = bytes.strip_prefix(MARK)?.strip_prefix(&VERSION.to_le_bytes())?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*sum) {
            return None;
        }
        let (numbers, trees) = rest.split_at_checked(40)?;
        let mut numbers = numbers.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut trees = trees.chunks_exact(1 + Tree::BYTES);
        let mut tree = || match trees.next()?.split_first()? {
            (0, _) => Some(None),
            (_, tree) => Some(Some(Tree::decode(tree)?)),
        };
        Some(Superblock {
            sequence: numbers.next()?,
            position: numbers.next()?,
            time: numbers.next()?,
            next_table: numbers.next()?,
            end: numbers.next()?,
            idents: tree()?,
            tables: tree()?,
        })
    }

    /// Writes it into its slot.
    pub(super) fn write(&self, file: &dyn File) -> std::io::Result<()> {
        let (bytes, slot) = (self.encode(), self.sequence % 2);
        file.write_at(&bytes, slot * SLOT)?;
        file.write_at(&bytes, (slot + 2) * SLOT)
    }

    /// Reads the latest one that is whole.
    pub(super) fn read(file: &dyn File, path: &std::path::Path) -> Result<Self> {
        let reading = |error| during("reading", path, error);
        let len = file.len().map_err(reading)?;
        let mut found: Option<Superblock> = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; BYTES];
            if slot * SLOT + BYTES as u64 <= len {
                file.read_at(&mut bytes, slot * SLOT).map_err(reading)?;
            }
            if let Some(other) = Superblock::decode(&bytes)
                && found.as_ref().is_none_or(|found| found.sequence < other.sequence)
            {
                found = Some(other);
            }
        }
        let found = found.ok_or_else(|| {
            Error::Corrupted(format!("{} has no sound superblock: it is no base, or damaged", path.display()))
        })?;
        if len < found.end * UNIT as u64 {
            let what = format!("{} has been cut: {len} bytes of {}", path.display(), found.end * UNIT as u64);
            return Err(Error::Corrupted(what));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::page::Place;
    use super::*;
    use crate::disk::files::Files;
    use crate::testing::FaultyFiles;

    #[test]
    fn the_later_one_that_is_whole_is_read() {
        let files = FaultyFiles::new();
        let path = Path::new("/base");
        let file = files.open(path, true).unwrap();
        assert!(matches!(Superblock::read(&*file, path), Err(Error::Corrupted(_))));
        let tree = Tree { place: Place { offset: 16, units: 3, sum: 7 }, height: 2, entries: 99 };
        let first = Superblock { sequence: 1, position: 5, end: SLOTS_UNITS, ..Superblock::default() };
        let second = Superblock { sequence: 2, time: 9, idents: Some(tree), ..first.clone() };
        file.set_len(SLOTS * SLOT).unwrap();
        first.write(&*file).unwrap();
        assert_eq!(Superblock::read(&*file, path), Ok(first.clone()));
        second.write(&*file).unwrap();
        assert_eq!(Superblock::read(&*file, path), Ok(second));
        files.tamper(path, |bytes| bytes[30] ^= 1);
        assert_eq!(Superblock::read(&*file, path).map(|found| found.sequence), Ok(2));
        files.tamper(path, |bytes| bytes[2 * SLOT as usize + 30] ^= 1);
        assert_eq!(Superblock::read(&*file, path), Ok(first));
        file.set_len(SLOT).unwrap();
        assert!(matches!(Superblock::read(&*file, path), Err(Error::Corrupted(_))));
    }
}

//! The superblock: the root of all data in the base's file.
//!
//! The file begins with two slots, used in turn. A checkpoint writes its pages, syncs, writes its superblock into the
//! slot of the older one, and syncs. After any interruption one of them is valid, and none of its data has been
//! overwritten. Copies of both follow, in case a block becomes unreadable.

use super::page::UNIT;
use super::tree::Tree;
use crate::disk::files::{File, during};
use crate::{Error, Result};

/// Magic of a slot.
const MARK: &[u8; 8] = b"VellumB\n";
const VERSION: u32 = 1;
/// Distance between slots.
const SLOT: u64 = 4096;
/// Number of slots, copies included.
const SLOTS: u64 = 4;
/// Length of all slots in units.
pub(super) const SLOTS_UNITS: u64 = SLOTS * SLOT / UNIT as u64;
const BYTES: usize = 12 + 5 * 8 + 2 * (1 + Tree::BYTES) + 4;

/// Contents of a slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Number of the checkpoint.
    pub(super) sequence: u64,
    /// Position of the last commit in the base.
    pub(super) position: u64,
    /// Greatest time of any commit up to that position.
    pub(super) time: u64,
    /// Number of the next table.
    pub(super) next_table: u64,
    /// Length of the file in units.
    pub(super) end: u64,
    /// For each tree: its table, the number of its entries, and the total length of its keys and values.
    pub(super) idents: Option<Tree>,
    /// For each table: its roots.
    pub(super) tables: Option<Tree>,
}

impl Superblock {
    /// Encodes the superblock with its checksum.
    fn encode(&self) -> Vec<u8> {
        debug_assert!(self.sequence > 0 && self.next_table > 0, "{self:?}");
        debug_assert!(self.end >= SLOTS_UNITS, "the file ends within the superblocks: {self:?}");
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
        debug_assert_eq!(bytes.len(), BYTES, "a reader reads as many bytes");
        bytes
    }

    /// Decodes a superblock; `None` for a wrong checksum or another version.
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

    /// Writes the superblock into its slot.
    pub(super) fn write(&self, file: &dyn File) -> std::io::Result<()> {
        let (bytes, slot) = (self.encode(), self.sequence % 2);
        debug_assert_eq!(Superblock::decode(&bytes).as_ref(), Some(self), "a reader finds something else");
        file.write_at(&bytes, slot * SLOT)?;
        file.write_at(&bytes, (slot + 2) * SLOT)
    }

    /// Reads the latest valid superblock.
    pub(super) fn read(file: &dyn File, path: &std::path::Path) -> Result<Self> {
        let reading = |error| during("reading", path, error);
        let len = file.len().map_err(reading)?;
        let mut latest: Option<Superblock> = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; BYTES];
            if slot * SLOT + BYTES as u64 <= len {
                file.read_at(&mut bytes, slot * SLOT).map_err(reading)?;
            }
            if let Some(other) = Superblock::decode(&bytes)
                && latest.as_ref().is_none_or(|latest| latest.sequence < other.sequence)
            {
                latest = Some(other);
            }
        }
        let latest = latest.ok_or_else(|| {
            let path = path.display();
            Error::Corrupted(format!(
                "{path} has no valid superblock: it is not a page store, or it is damaged"
            ))
        })?;
        if len < latest.end * UNIT as u64 {
            let message =
                format!("{} is truncated: {len} bytes of {}", path.display(), latest.end * UNIT as u64);
            return Err(Error::Corrupted(message));
        }
        Ok(latest)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::page::PageHandle;
    use super::*;
    use crate::disk::files::Files;
    use crate::testing::FaultyFiles;

    #[test]
    fn the_later_valid_superblock_is_read() {
        let files = FaultyFiles::new();
        let path = Path::new("/base");
        let file = files.open(path, true).unwrap();
        assert!(matches!(Superblock::read(&*file, path), Err(Error::Corrupted(_))));
        let tree = Tree { handle: PageHandle { offset: 16, units: 3, sum: 7 }, height: 2, entries: 99 };
        let first =
            Superblock { sequence: 1, position: 5, next_table: 1, end: SLOTS_UNITS, ..Superblock::default() };
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

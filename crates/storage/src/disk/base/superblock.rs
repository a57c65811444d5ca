//! The superblock: the root of all data in the base's file.
//!
//! The file begins with two slots, used in turn. A checkpoint writes its pages, syncs, writes its superblock into the
//! slot of the older one, and syncs. After any interruption one of them is valid, and none of its data has been
//! overwritten. Copies of both follow, in case a block becomes unreadable.
//!
//! The module also manages the free space of the file.
//!
//! Older views may still read replaced pages. Their space becomes free with the last of these views. Allocation is
//! next-fit in file order, so a checkpoint writes forwards. Each checkpoint restarts at the front of the file. Free
//! space is not stored. Before the first checkpoint it is computed from a walk over all inner pages.

use super::page::UNIT;
use super::tree::Tree;
use crate::disk::files::File;
use crate::disk::journal::during;
use crate::{Error, Result};
use std::collections::{BTreeMap, VecDeque};

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

/// Size in units from which pages have a separate search position. The search of large pages would skip holes for small
/// ones.
const LARGE: u32 = 64;

/// A range of the file in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) units: u64,
}

/// The free space.
#[derive(Debug)]
pub(super) struct FreeSpace {
    /// Free extents: length by offset, both in units.
    free: BTreeMap<u64, u64>,
    /// End of the used part of the file.
    end: u64,
    /// Offsets at which the next-fit searches continue, for small and for large pages.
    next_fits: [u64; 2],
    /// Extents that become free once no view is older than the checkpoint of this number.
    waiting: VecDeque<(u64, Vec<Extent>)>,
}

impl FreeSpace {
    /// Creates the state of a file without free space.
    pub(super) fn full(end: u64) -> Self {
        FreeSpace { free: BTreeMap::new(), end, next_fits: [0; 2], waiting: VecDeque::new() }
    }

    /// Creates the state of a partly used file: `begin` units at its front, and extents. Fails if two of them overlap
    /// or are outside of the file.
    pub(super) fn around(begin: u64, mut used: Vec<Extent>, end: u64) -> Result<Self> {
        let mut free_space = FreeSpace::full(end);
        used.sort_unstable();
        let mut at = begin;
        for extent in used {
            if extent.offset < at || extent.offset + extent.units > end {
                let message = format!("two pages of the base overlap at unit {}", extent.offset);
                return Err(Error::Corrupted(message));
            }
            free_space.free(Extent { offset: at, units: extent.offset - at });
            at = extent.offset + extent.units;
        }
        free_space.free(Extent { offset: at, units: end - at });
        free_space.shrink();
        free_space.assert_valid();
        Ok(free_space)
    }

    /// Asserts the order of all extents: free ones have gaps between them, and waiting ones overlap nothing.
    pub(super) fn assert_valid(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let mut last = None;
        for (offset, units) in &self.free {
            debug_assert!(*units > 0 && last.is_none_or(|last| last < *offset), "{last:?} {offset} {units}");
            last = Some(offset + units);
        }
        debug_assert!(last.is_none_or(|last| last <= self.end), "free space is behind the end");
        debug_assert!(
            self.waiting.iter().is_sorted_by(|(a, _), (b, _)| a < b),
            "checkpoints are out of order"
        );
        for extent in self.waiting.iter().flat_map(|(_, extents)| extents) {
            debug_assert!(!self.is_free(*extent), "{extent:?} is free, and waits to be freed");
            debug_assert!(extent.offset + extent.units <= self.end, "{extent:?} is behind the end");
        }
    }

    /// Returns true if some unit of an extent is free.
    fn is_free(&self, extent: Extent) -> bool {
        let before = self.free.range(..extent.offset + extent.units).next_back();
        before.is_some_and(|(offset, units)| offset + units > extent.offset)
    }

    /// Returns the end of the used part of the file.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of units in use, neither free nor waiting to be freed.
    pub(super) fn live(&self) -> u64 {
        let waiting = self.waiting.iter().flat_map(|(_, extents)| extents).map(|extent| extent.units);
        self.end - self.free.values().sum::<u64>() - waiting.sum::<u64>()
    }

    /// Restarts the search at the front of the file.
    pub(super) fn rewind(&mut self) {
        self.next_fits = [0; 2];
    }

    /// Allocates space for a page.
    pub(super) fn allocate(&mut self, units: u32) -> u64 {
        debug_assert!(units > 0, "a page takes no space");
        let needed = u64::from(units);
        let [small, large] = &mut self.next_fits;
        let next_fit = if units < LARGE { small } else { large };
        let hole = self.free.range(*next_fit..).find(|(_, free)| **free >= needed);
        let allocated = match hole.map(|(offset, free)| (*offset, *free)) {
            Some((offset, free)) => {
                debug_assert!(offset + free <= self.end, "free space is behind the end");
                self.free.remove(&offset);
                if free > needed {
                    self.free.insert(offset + needed, free - needed);
                }
                *next_fit = offset + needed;
                offset
            }
            None => {
                // The search has passed all smaller holes.
                *next_fit = self.end;
                self.end += needed;
                self.end - needed
            }
        };
        debug_assert!(
            !self.is_free(Extent { offset: allocated, units: needed }),
            "taken space is still free"
        );
        allocated
    }

    /// Frees an extent without readers.
    pub(super) fn free(&mut self, extent: Extent) {
        let Extent { mut offset, mut units } = extent;
        if units == 0 {
            return;
        }
        debug_assert!(offset + units <= self.end, "{extent:?} is behind the end {}", self.end);
        debug_assert!(!self.is_free(extent), "{extent:?} is freed twice");
        if let Some((before, free)) = self.free.range(..offset).next_back().map(|(at, free)| (*at, *free))
            && before + free == offset
        {
            (offset, units) = (before, units + free);
        }
        if let Some(behind) = self.free.remove(&(offset + units)) {
            units += behind;
        }
        self.free.insert(offset, units);
    }

    /// Frees extents once no state from before a checkpoint is read.
    pub(super) fn free_later(&mut self, checkpoint: u64, extents: Vec<Extent>) {
        debug_assert!(
            self.waiting.back().is_none_or(|(last, _)| *last < checkpoint),
            "checkpoint {checkpoint} is not the latest"
        );
        self.waiting.push_back((checkpoint, extents));
    }

    /// Frees extents that no reader uses. `oldest` is the oldest state in use.
    pub(super) fn free_before(&mut self, oldest: u64) {
        while let Some((checkpoint, _)) = self.waiting.front()
            && *checkpoint <= oldest
        {
            let extents = self.waiting.pop_front().map(|(_, extents)| extents).unwrap_or_default();
            extents.into_iter().for_each(|extent| self.free(extent));
        }
    }

    /// Removes free space at the end of the file.
    pub(super) fn shrink(&mut self) {
        if let Some((offset, units)) = self.free.last_key_value()
            && offset + units == self.end
        {
            self.end = *offset;
            self.free.pop_last();
        }
        debug_assert!(self.end >= SLOTS_UNITS, "the superblocks were freed");
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

#[cfg(test)]
mod free_space_tests {
    use super::*;

    fn extent(offset: u64, units: u64) -> Extent {
        Extent { offset, units }
    }

    #[test]
    fn freed_space_is_allocated_first_and_joined() {
        let mut free_space = FreeSpace::around(16, vec![extent(20, 4), extent(30, 10)], 100).unwrap();
        assert_eq!((free_space.end(), free_space.live()), (40, 30));
        assert_eq!((free_space.allocate(3), free_space.allocate(4), free_space.allocate(1)), (16, 24, 28));
        assert_eq!((free_space.allocate(2), free_space.end()), (40, 42));
        free_space.free(extent(16, 3));
        free_space.free(extent(20, 4));
        free_space.free(extent(24, 4));
        free_space.rewind();
        assert_eq!((free_space.allocate(12), free_space.allocate(64)), (16, 42));
    }

    #[test]
    fn space_with_readers_stays_allocated() {
        let mut free_space = FreeSpace::full(40);
        free_space.free_later(5, vec![extent(20, 10)]);
        free_space.free_later(6, vec![extent(30, 10)]);
        free_space.free_before(4);
        free_space.shrink();
        assert_eq!((free_space.live(), free_space.end()), (20, 40));
        free_space.free_before(5);
        free_space.rewind();
        assert_eq!((free_space.allocate(4), free_space.allocate(8)), (20, 40));
        free_space.free_before(6);
        free_space.shrink();
        assert_eq!((free_space.live(), free_space.end()), (32, 48));
    }

    #[test]
    fn overlapping_pages_are_an_error() {
        assert!(FreeSpace::around(16, vec![extent(20, 4), extent(23, 1)], 100).is_err());
        assert!(FreeSpace::around(16, vec![extent(15, 4)], 100).is_err());
        assert!(FreeSpace::around(16, vec![extent(96, 5)], 100).is_err());
    }
}

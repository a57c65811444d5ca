//! The free space of the base's file, and the allocation of pages.
//!
//! Older views may still read replaced pages. Their space becomes free with the last of these views. Allocation is
//! next-fit in file order, so a checkpoint writes forwards. Each checkpoint restarts at the front of the file. Free
//! space is not stored. Before the first checkpoint it is computed from a walk over all inner pages.

use super::superblock::SLOTS_UNITS;
use crate::{Error, Result};
use std::collections::{BTreeMap, VecDeque};

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

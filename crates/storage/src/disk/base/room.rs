//! The room in the base's file: which of it is free, and from when on.
//!
//! What a checkpoint replaces may still be read through older views, so it becomes free when the last of those has
//! gone. Pages are given room in the order of the file, in whatever holes they fit into, so that a checkpoint writes
//! forwards; the search begins at the front again with each checkpoint. Nothing of this is stored: it is found by
//! walking through all pages that have pages below them, before the first checkpoint.

use std::collections::{BTreeMap, VecDeque};

use crate::{Error, Result};

/// Pages of so many units and more look for room by themselves, so that small ones don't lose theirs to the search.
const LARGE: u32 = 64;

/// A stretch of the file, in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) units: u64,
}

/// What is free.
#[derive(Debug)]
pub(super) struct Room {
    free: BTreeMap<u64, u64>,
    /// Where the file ends, as far as it is used.
    end: u64,
    /// From where on small pages, and large ones, look for room.
    sweeps: [u64; 2],
    /// What becomes free once no view is left that is older than the checkpoint of that number.
    waiting: VecDeque<(u64, Vec<Extent>)>,
}

impl Room {
    /// A file of which nothing is free.
    pub(super) fn full(end: u64) -> Self {
        Room { free: BTreeMap::new(), end, sweeps: [0; 2], waiting: VecDeque::new() }
    }

    /// A file of which some is used: `begin` units at its front and these. Fails if two of them overlap, or lie
    /// outside.
    pub(super) fn around(begin: u64, mut used: Vec<Extent>, end: u64) -> Result<Self> {
        let mut room = Room::full(end);
        used.sort_unstable();
        let mut at = begin;
        for extent in used {
            if extent.offset < at || extent.offset + extent.units > end {
                let what = format!("two pages of the base have the same place, unit {}", extent.offset);
                return Err(Error::Corrupted(what));
            }
            room.give(Extent { offset: at, units: extent.offset - at });
            at = extent.offset + extent.units;
        }
        room.give(Extent { offset: at, units: end - at });
        room.shrink();
        Ok(room)
    }

    /// Where the file ends, as far as it is used.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The units of what is needed: of all that is neither free nor waits to become so.
    pub(super) fn live(&self) -> u64 {
        let waiting = self.waiting.iter().flat_map(|(_, extents)| extents).map(|extent| extent.units);
        self.end - self.free.values().sum::<u64>() - waiting.sum::<u64>()
    }

    /// Begins the search at the front of the file again.
    pub(super) fn rewind(&mut self) {
        self.sweeps = [0; 2];
    }

    /// Finds room for a page.
    pub(super) fn take(&mut self, units: u32) -> u64 {
        let wanted = u64::from(units);
        let [small, large] = &mut self.sweeps;
        let sweep = if units < LARGE { small } else { large };
        let found = self.free.range(*sweep..).find(|(_, free)| **free >= wanted);
        match found.map(|(offset, free)| (*offset, *free)) {
            Some((offset, free)) => {
                self.free.remove(&offset);
                if free > wanted {
                    self.free.insert(offset + wanted, free - wanted);
                }
                *sweep = offset + wanted;
                offset
            }
            None => {
                // Whatever is smaller and fits was passed.
                *sweep = self.end;
                self.end += wanted;
                self.end - wanted
            }
        }
    }

    /// Gives room back that nobody reads.
    pub(super) fn give(&mut self, extent: Extent) {
        let Extent { mut offset, mut units } = extent;
        if units == 0 {
            return;
        }
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

    /// Gives room back once nobody reads a state from before a checkpoint.
    pub(super) fn give_after(&mut self, checkpoint: u64, extents: Vec<Extent>) {
        self.waiting.push_back((checkpoint, extents));
    }

    /// Frees what nobody reads any more, `oldest` being the oldest state that is read.
    pub(super) fn free_before(&mut self, oldest: u64) {
        while let Some((checkpoint, _)) = self.waiting.front()
            && *checkpoint <= oldest
        {
            let extents = self.waiting.pop_front().map(|(_, extents)| extents).unwrap_or_default();
            extents.into_iter().for_each(|extent| self.give(extent));
        }
    }

    /// Leaves out what is free at the end of the file.
    pub(super) fn shrink(&mut self) {
        if let Some((offset, units)) = self.free.last_key_value()
            && offset + units == self.end
        {
            self.end = *offset;
            self.free.pop_last();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, units: u64) -> Extent {
        Extent { offset, units }
    }

    #[test]
    fn room_that_was_given_back_is_taken_first_and_joined() {
        let mut room = Room::around(16, vec![extent(20, 4), extent(30, 10)], 100).unwrap();
        assert_eq!((room.end(), room.live()), (40, 30));
        assert_eq!((room.take(3), room.take(4), room.take(1)), (16, 24, 28));
        assert_eq!((room.take(2), room.end()), (40, 42));
        room.give(extent(16, 3));
        room.give(extent(20, 4));
        room.give(extent(24, 4));
        room.rewind();
        assert_eq!((room.take(12), room.take(64)), (16, 42));
    }

    #[test]
    fn what_is_still_read_stays() {
        let mut room = Room::full(40);
        room.give_after(5, vec![extent(20, 10)]);
        room.give_after(6, vec![extent(30, 10)]);
        room.free_before(4);
        room.shrink();
        assert_eq!((room.live(), room.end()), (20, 40));
        room.free_before(5);
        room.rewind();
        assert_eq!((room.take(4), room.take(8)), (20, 40));
        room.free_before(6);
        room.shrink();
        assert_eq!((room.live(), room.end()), (32, 48));
    }

    #[test]
    fn pages_that_overlap_are_found() {
        assert!(Room::around(16, vec![extent(20, 4), extent(23, 1)], 100).is_err());
        assert!(Room::around(16, vec![extent(15, 4)], 100).is_err());
        assert!(Room::around(16, vec![extent(96, 5)], 100).is_err());
    }
}

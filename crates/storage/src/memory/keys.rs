//! The keys of one tree node, packed into one buffer.
//!
//! Keys that lie together begin alike: record ids count upwards, index keys repeat their leading fields. A
//! node therefore knows the length of the prefix that all its keys share, and keeps for each key the four
//! bytes behind that prefix as a number, its head. Most searches compare the prefix once and then numbers in
//! a small array; the bytes of a key are looked at only where heads are equal. The keys themselves lie in
//! full, one behind the other, so that a cursor can lend them as they are.

use std::cmp::Ordering;

/// Sorted, distinct byte strings.
#[derive(Default)]
pub(super) struct Keys {
    /// How many leading bytes all keys have in common (at least; removing keys does not lengthen it).
    shared: u32,
    slots: Vec<Slot>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The four bytes behind the shared prefix, padded with zeros, as a big-endian number.
    head: u32,
    /// Where the key ends in `bytes`; it begins where the one before ends.
    end: u32,
}

impl Keys {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The lengths of all keys.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.slots[at].end as usize]
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&[u8]> {
        (self.len() > 0).then(|| self.get(0))
    }

    #[inline]
    pub(super) fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.get(last))
    }

    #[inline]
    fn start(&self, at: usize) -> usize {
        match at.checked_sub(1) {
            Some(before) => self.slots[before].end as usize,
            None => 0,
        }
    }

    /// Where a key is, or where it would have to be inserted.
    #[inline]
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(last) = self.slots.last() else { return Err(0) };
        let prefix = &self.bytes[..self.shared as usize];
        let Some((start, rest)) = key.split_at_checked(prefix.len()) else {
            return Err(if key < prefix { 0 } else { self.len() });
        };
        match start.cmp(prefix) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal => {}
        }
        let head = head(rest);
        if head > last.head {
            return Err(self.len());
        }
        let at = self.slots.partition_point(|slot| slot.head < head);
        match self.slots[at].head == head {
            true => self.search_equal_heads(at, head, rest),
            false => Err(at),
        }
    }

    /// Searches among the keys whose heads don't tell: those from `from` on.
    #[inline]
    fn search_equal_heads(&self, from: usize, head: u32, rest: &[u8]) -> Result<usize, usize> {
        let more = match self.slots.get(from + 1) {
            Some(slot) if slot.head == head => self.slots[from..].partition_point(|slot| slot.head == head),
            _ => 1,
        };
        let (mut low, mut high) = (from, from + more);
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle)[self.shared as usize..].cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Inserts a key where [`Keys::search`] said it belongs.
    pub(super) fn insert(&mut self, at: usize, key: &[u8]) {
        debug_assert!(at == 0 || self.get(at - 1) < key);
        debug_assert!(at == self.len() || key < self.get(at));
        self.share(key);
        let start = self.start(at);
        let old = self.bytes.len();
        if start == old {
            self.bytes.extend_from_slice(key);
        } else {
            self.bytes.resize(old + key.len(), 0);
            self.bytes.copy_within(start..old, start + key.len());
            self.bytes[start..start + key.len()].copy_from_slice(key);
        }
        let slot = Slot { head: head(&key[self.shared as usize..]), end: start as u32 };
        self.slots.insert(at, slot);
        for slot in &mut self.slots[at..] {
            slot.end += key.len() as u32;
        }
    }

    /// Shortens the shared prefix to what a new key has in common with it.
    fn share(&mut self, key: &[u8]) {
        if self.slots.is_empty() {
            self.shared = key.len() as u32;
            return;
        }
        let common = common_prefix(&self.bytes[..self.shared as usize], key);
        if common < self.shared as usize {
            self.shared = common as u32;
            self.renew_heads();
        }
    }

    /// Finds the shared prefix afresh, after keys were split off.
    fn reshare(&mut self) {
        if let (Some(first), Some(last)) = (self.first(), self.last()) {
            self.shared = common_prefix(first, last) as u32;
            self.renew_heads();
        }
    }

    fn renew_heads(&mut self) {
        let mut start = self.shared as usize;
        for slot in &mut self.slots {
            let end = slot.end as usize;
            slot.head = head(&self.bytes[start..end]);
            start = end + self.shared as usize;
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.slots[at].end as usize);
        self.bytes.copy_within(end.., start);
        self.bytes.truncate(self.bytes.len() - (end - start));
        self.slots.remove(at);
        for slot in &mut self.slots[at..] {
            slot.end -= (end - start) as u32;
        }
    }

    /// Takes away the keys from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Keys {
        let start = self.start(at);
        let mut right =
            Keys { shared: 0, slots: self.slots.split_off(at), bytes: self.bytes.split_off(start) };
        for slot in &mut right.slots {
            slot.end -= start as u32;
        }
        self.reshare();
        right.reshare();
        right
    }

    /// Adds keys that all come after these.
    pub(super) fn append(&mut self, right: &Keys) {
        debug_assert!(right.len() == 0 || self.last() < right.first());
        let shift = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&right.bytes);
        self.slots.extend(right.slots.iter().map(|slot| Slot { head: 0, end: slot.end + shift }));
        self.reshare();
    }

    /// Gives back spare room: for a node that is not going to grow.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.slots.shrink_to_fit();
    }

    /// A copy with room for a few more keys, since nodes are copied in order to be changed.
    pub(super) fn clone_with_room(&self, room: usize) -> Keys {
        let spare = room * (self.bytes.len() / self.len().max(1) + 1);
        Keys {
            shared: self.shared,
            slots: clone_with_room(&self.slots, room),
            bytes: clone_with_room(&self.bytes, spare),
        }
    }
}

/// Copies a vector, leaving spare capacity.
pub(super) fn clone_with_room<T: Clone>(from: &[T], room: usize) -> Vec<T> {
    let mut copy = Vec::with_capacity(from.len() + room);
    copy.extend_from_slice(from);
    copy
}

/// The shortest key that is greater than `left` and at most `right`, as a prefix of `right`.
pub(super) fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    let end = common_prefix(left, right) + 1;
    right.get(..end).unwrap_or(right)
}

#[inline]
fn head(rest: &[u8]) -> u32 {
    if let Some(four) = rest.first_chunk::<4>() {
        return u32::from_be_bytes(*four);
    }
    let mut four = [0; 4];
    for (to, from) in four.iter_mut().zip(rest) {
        *to = *from;
    }
    u32::from_be_bytes(four)
}

#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys_of(sorted: &[Vec<u8>]) -> Keys {
        let mut keys = Keys::default();
        for key in sorted {
            keys.insert(keys.len(), key);
        }
        keys
    }

    fn listed(keys: &Keys) -> Vec<Vec<u8>> {
        (0..keys.len()).map(|at| keys.get(at).to_vec()).collect()
    }

    /// Few distinct bytes, zeros among them, so that prefixes and heads collide.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..12)
    }

    proptest! {
        #[test]
        fn search_agrees_with_a_sorted_vector(inserted in prop::collection::vec(key(), 0..60), sought in key()) {
            let mut keys = Keys::default();
            let mut model: Vec<Vec<u8>> = Vec::new();
            for key in inserted {
                let place = model.binary_search(&key);
                prop_assert_eq!(keys.search(&key), place);
                if let Err(at) = place {
                    keys.insert(at, &key);
                    model.insert(at, key);
                }
            }
            prop_assert_eq!(keys.search(&sought), model.binary_search(&sought));
            prop_assert_eq!(listed(&keys), model);
        }

        #[test]
        fn splitting_and_appending_are_inverse(
            set in prop::collection::btree_set(key(), 1..40), at in 0usize..40, removed in 0usize..40, sought in key(),
        ) {
            let mut model: Vec<Vec<u8>> = set.into_iter().collect();
            let mut left = keys_of(&model);
            if removed < model.len() {
                model.remove(removed);
                left.remove(removed);
            }
            let right = left.split_off(at.min(model.len()));
            let tail = model.split_off(at.min(model.len()));
            prop_assert_eq!(left.search(&sought), model.binary_search(&sought));
            prop_assert_eq!(right.search(&sought), tail.binary_search(&sought));
            left.append(&right);
            model.extend(tail);
            prop_assert_eq!(left.search(&sought), model.binary_search(&sought));
            prop_assert_eq!(listed(&left.clone_with_room(3)), model);
        }
    }

    #[test]
    fn a_separator_is_as_short_as_can_be() {
        assert_eq!(separator(b"apple", b"banana"), b"b");
        assert_eq!(separator(b"ab", b"abc"), b"abc");
        assert_eq!(separator(b"abx", b"abz12"), b"abz");
    }
}

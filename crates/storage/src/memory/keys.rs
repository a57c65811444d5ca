//! The keys of one tree node, packed so that a search reads few cache lines.
//!
//! Neighbouring keys have common prefixes: record ids count upwards, and index keys repeat their
//! leading fields. A node stores the prefix that all its keys share. For each key it stores the
//! four bytes after that prefix as a number, the head. A search compares the prefix once and then
//! counts the smaller heads without a branch. It reads a key's bytes only if equal heads do not
//! decide. The node itself contains prefix and heads. A separate buffer has the complete keys in
//! sequence, so that a cursor can lend them.

use std::cmp::Ordering;

/// Prefixes up to this length are copied into the node.
const PREFIX_MAX: usize = 24;

/// Up to `N` sorted, distinct byte strings.
#[repr(C)]
pub(super) struct Keys<const N: usize> {
    len: u32,
    /// Length of a common prefix of all keys. Removing keys does not lengthen it.
    shared: u32,
    /// The prefix, if it is short enough.
    prefix: [u8; PREFIX_MAX],
    /// The four bytes after the prefix of each key, padded with zeros, as a big-endian number.
    /// Unused slots hold the greatest number, so that they do not count as smaller.
    heads: [u32; N],
    /// End of each key in `bytes`. A key begins at the end of the previous key.
    ends: [u32; N],
    bytes: Vec<u8>,
}

impl<const N: usize> Default for Keys<N> {
    fn default() -> Self {
        Keys {
            len: 0,
            shared: 0,
            prefix: [0; PREFIX_MAX],
            heads: [u32::MAX; N],
            ends: [0; N],
            bytes: Vec::new(),
        }
    }
}

impl<const N: usize> Keys<N> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Asserts what a search relies on: the order of the keys, their common prefix, their heads. Reads all keys, so it
    /// is called only where all keys change.
    fn assert_valid(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let len = self.len();
        debug_assert!(len <= N, "{len} keys in a node of {N}");
        debug_assert_eq!(self.start(len), self.bytes.len(), "the last key ends elsewhere");
        for at in 0..len {
            let key = self.get(at);
            debug_assert!(at == 0 || self.get(at - 1) < key, "keys {at} of {len} are out of order");
            let rest = key.strip_prefix(self.prefix());
            debug_assert_eq!(rest.map(head), Some(self.heads[at]), "key {at} has another prefix or head");
        }
        debug_assert!(self.heads[len..].iter().all(|head| *head == u32::MAX), "an unused head counts");
    }

    /// Returns the total length of all keys.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at] as usize]
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&[u8]> {
        (self.len > 0).then(|| self.get(0))
    }

    #[inline]
    pub(super) fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.get(last))
    }

    #[inline]
    fn start(&self, at: usize) -> usize {
        match at.checked_sub(1) {
            Some(before) => self.ends[before] as usize,
            None => 0,
        }
    }

    #[inline]
    fn prefix(&self) -> &[u8] {
        let shared = self.shared as usize;
        self.prefix.get(..shared).unwrap_or_else(|| &self.bytes[..shared])
    }

    /// Returns the position of a key, or its insert position if it is missing.
    #[inline]
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        if self.len == 0 {
            return Err(0);
        }
        let prefix = self.prefix();
        let Some((start, rest)) = key.split_at_checked(prefix.len()) else {
            return Err(if key < prefix { 0 } else { self.len() });
        };
        match start.cmp(prefix) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal => {}
        }
        let head = head(rest);
        if head > self.heads[self.len() - 1] {
            return Err(self.len());
        }
        let at = self.heads.iter().map(|other| u32::from(*other < head)).sum::<u32>() as usize;
        match self.heads[at] == head {
            true => self.search_equal_heads(at, head, key),
            false => Err(at),
        }
    }

    /// Searches the keys with an equal head, from `from` on.
    #[inline]
    fn search_equal_heads(&self, from: usize, head: u32, key: &[u8]) -> Result<usize, usize> {
        let heads = &self.heads[from..self.len()];
        let equal = match heads.get(1) {
            Some(next) if *next == head => heads.partition_point(|other| *other == head),
            _ => 1,
        };
        // Keys of equal length without bytes after the head are equal.
        let length = self.ends[from] as usize - self.start(from);
        if length == key.len() && length <= self.shared as usize + size_of::<u32>() {
            return Ok(from);
        }
        let (mut low, mut high) = (from, from + equal);
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Inserts a key at the position from [`Keys::search`]. The node must not be full.
    pub(super) fn insert(&mut self, at: usize, key: &[u8]) {
        debug_assert!(at <= self.len() && self.len() < N, "key {at} of {} in a node of {N}", self.len());
        debug_assert!(at == 0 || self.get(at - 1) < key);
        debug_assert!(at == self.len() || key < self.get(at));
        self.share(key);
        let (start, old, len) = (self.start(at), self.bytes.len(), self.len());
        if start == old {
            self.bytes.extend_from_slice(key);
        } else {
            self.bytes.resize(old + key.len(), 0);
            self.bytes.copy_within(start..old, start + key.len());
            self.bytes[start..start + key.len()].copy_from_slice(key);
        }
        self.heads.copy_within(at..len, at + 1);
        self.heads[at] = head(&key[self.shared as usize..]);
        self.ends.copy_within(at..len, at + 1);
        self.ends[at] = start as u32;
        self.len += 1;
        for end in &mut self.ends[at..=len] {
            *end += key.len() as u32;
        }
        debug_assert_eq!(self.ends[len] as usize, self.bytes.len(), "the last key ends elsewhere");
    }

    /// Shortens the common prefix for a new key.
    fn share(&mut self, key: &[u8]) {
        if self.len == 0 {
            self.shared = key.len() as u32;
            return copy_prefix(&mut self.prefix, key);
        }
        debug_assert!(
            self.shared as usize <= self.ends[0] as usize,
            "the prefix is longer than the first key"
        );
        let common = common_prefix(self.prefix(), key);
        if common < self.shared as usize {
            self.shared = common as u32;
            copy_prefix(&mut self.prefix, &self.bytes[..common]);
            self.renew_heads();
        }
    }

    /// Computes the common prefix again, after many inserts or removals.
    fn update_prefix(&mut self) {
        if let (Some(first), Some(last)) = (self.first(), self.last()) {
            let common = common_prefix(first, last);
            self.shared = common as u32;
            copy_prefix(&mut self.prefix, &self.bytes[..common]);
        }
        self.renew_heads();
    }

    fn renew_heads(&mut self) {
        let len = self.len();
        let mut start = self.shared as usize;
        for (to, end) in self.heads.iter_mut().zip(&self.ends).take(len) {
            *to = head(&self.bytes[start..*end as usize]);
            start = *end as usize + self.shared as usize;
        }
        self.heads[len..].fill(u32::MAX);
    }

    pub(super) fn remove(&mut self, at: usize) {
        let (start, end, len) = (self.start(at), self.ends[at] as usize, self.len());
        debug_assert!(at < len && start <= end, "key {at} of {len} is from {start} to {end}");
        self.bytes.copy_within(end.., start);
        self.bytes.truncate(self.bytes.len() - (end - start));
        self.heads.copy_within(at + 1..len, at);
        self.heads[len - 1] = u32::MAX;
        self.ends.copy_within(at + 1..len, at);
        self.len -= 1;
        for other in &mut self.ends[at..len - 1] {
            *other -= (end - start) as u32;
        }
        debug_assert_eq!(self.start(len - 1), self.bytes.len(), "the last key ends elsewhere");
    }

    /// Removes and returns the keys from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let (start, len) = (self.start(at), self.len());
        let mut right = Keys { bytes: self.bytes.split_off(start), ..Keys::default() };
        for (to, end) in right.ends.iter_mut().zip(&self.ends[at..len]) {
            *to = end - start as u32;
        }
        right.len = (len - at) as u32;
        self.len = at as u32;
        self.update_prefix();
        right.update_prefix();
        debug_assert_eq!(self.len() + right.len(), len, "a key is lost");
        self.assert_valid();
        right.assert_valid();
        right
    }

    /// Appends keys that are greater than all present keys. The node must have room.
    pub(super) fn append(&mut self, right: &Self) {
        debug_assert!(right.len() == 0 || self.last() < right.first());
        debug_assert!(self.len() + right.len() <= N, "{} and {} keys in a node", self.len(), right.len());
        let shift = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&right.bytes);
        for (to, end) in self.ends[self.len as usize..].iter_mut().zip(&right.ends[..right.len()]) {
            *to = end + shift;
        }
        self.len += right.len;
        self.update_prefix();
        self.assert_valid();
    }

    /// Frees the spare capacity of a node that will not grow, and reserves as much in the node that
    /// will.
    pub(super) fn transfer_capacity(&mut self, next: &mut Self) {
        self.bytes.shrink_to_fit();
        next.bytes.reserve(self.bytes.len());
    }

    /// Returns a copy with capacity for a few more keys, because nodes are copied for changes.
    pub(super) fn clone_with_spare(&self, spare: usize) -> Self {
        let spare_bytes = spare * (self.bytes.len() / self.len().max(1) + 1);
        Keys { bytes: clone_with_spare(&self.bytes, spare_bytes), ..*self }
    }
}

/// Copies a vector with spare capacity.
pub(super) fn clone_with_spare<T: Clone>(from: &[T], spare: usize) -> Vec<T> {
    let mut copy = Vec::with_capacity(from.len() + spare);
    copy.extend_from_slice(from);
    copy
}

/// Returns the shortest prefix of `right` that is greater than `left`.
pub(super) fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    debug_assert!(left < right, "no key separates {left:?} and {right:?}");
    let end = common_prefix(left, right) + 1;
    right.get(..end).unwrap_or(right)
}

/// Copies a common prefix into the node if it is short enough.
fn copy_prefix(to: &mut [u8; PREFIX_MAX], prefix: &[u8]) {
    if let Some(to) = to.get_mut(..prefix.len()) {
        to.copy_from_slice(prefix);
    }
}

#[inline]
fn head(rest: &[u8]) -> u32 {
    if let Some(four) = rest.first_chunk::<4>() {
        return u32::from_be_bytes(*four);
    }
    // A copy of so few bytes into an array would be a call.
    let padding = 8 * (size_of::<u32>() - rest.len());
    rest.iter().fold(0, |head, byte| head << 8 | u32::from(*byte)).checked_shl(padding as u32).unwrap_or(0)
}

#[inline]
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Enough for heads of more than one vector register.
    const N: usize = 24;

    fn keys_of(sorted: &[Vec<u8>]) -> Keys<N> {
        let mut keys = Keys::<N>::default();
        for key in sorted {
            keys.insert(keys.len(), key);
        }
        keys
    }

    fn listed(keys: &Keys<N>) -> Vec<Vec<u8>> {
        (0..keys.len()).map(|at| keys.get(at).to_vec()).collect()
    }

    /// Few distinct bytes, including zeros, so that prefixes and heads collide.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..12)
    }

    proptest! {
        #[test]
        fn search_agrees_with_a_sorted_vector(inserted in prop::collection::vec(key(), 0..=N), searched in key()) {
            let mut keys = Keys::<N>::default();
            let mut model: Vec<Vec<u8>> = Vec::new();
            for key in inserted {
                let index = model.binary_search(&key);
                prop_assert_eq!(keys.search(&key), index);
                if let Err(at) = index {
                    keys.insert(at, &key);
                    model.insert(at, key);
                }
            }
            prop_assert_eq!(keys.search(&searched), model.binary_search(&searched));
            prop_assert_eq!(listed(&keys), model);
        }

        #[test]
        fn splitting_and_appending_are_inverse(
            set in prop::collection::btree_set(key(), 1..=N), at in 0..=N, removed in 0..=N, searched in key(),
        ) {
            let mut model: Vec<Vec<u8>> = set.into_iter().collect();
            let mut left = keys_of(&model);
            if removed < model.len() {
                model.remove(removed);
                left.remove(removed);
            }
            let right = left.split_off(at.min(model.len()));
            let tail = model.split_off(at.min(model.len()));
            prop_assert_eq!(left.search(&searched), model.binary_search(&searched));
            prop_assert_eq!(right.search(&searched), tail.binary_search(&searched));
            left.append(&right);
            model.extend(tail);
            prop_assert_eq!(left.search(&searched), model.binary_search(&searched));
            prop_assert_eq!(listed(&left.clone_with_spare(3)), model);
        }
    }

    #[test]
    fn a_separator_is_as_short_as_can_be() {
        assert_eq!(separator(b"apple", b"banana"), b"b");
        assert_eq!(separator(b"ab", b"abc"), b"abc");
        assert_eq!(separator(b"abx", b"abz12"), b"abz");
    }
}

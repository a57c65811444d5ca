//! Which records a plan has yielded already, where several keys lead to one record.

use crate::keys::RecordId;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// A set of record ids. They are given out in order, not by clients, so a simple hash serves.
#[derive(Default)]
pub(crate) struct Seen(HashSet<RecordId, BuildHasherDefault<Spread>>);

impl Seen {
    /// Notes a record; whether it is new.
    #[inline]
    pub(crate) fn insert(&mut self, id: RecordId) -> bool {
        self.0.insert(id)
    }
}

/// Spreads a number over all bits by a multiplication.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

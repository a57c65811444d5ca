//! Suppression of repeated log lines: each address is reported once for each reason.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Maximum number of entries. A full table is cleared.
const REMEMBERED: usize = 4096;

/// Reported addresses and reasons.
#[derive(Default)]
pub(crate) struct Told {
    /// Texts are stored as hashes. On a collision a reason is logged only at the debug level.
    told: Mutex<HashSet<(IpAddr, u64)>>,
    hasher: RandomState,
}

impl Told {
    /// Returns true for the first report.
    pub(crate) fn is_new(&self, address: IpAddr, what: &str) -> bool {
        let mut told = self.told.lock();
        if told.len() >= REMEMBERED {
            told.clear();
        }
        told.insert((address, self.hasher.hash_one(what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_told_once_of_each_trouble() {
        let told = Told::default();
        let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        assert!(told.is_new(one, "a") && told.is_new(one, "b") && told.is_new(other, "a"));
        assert!(!told.is_new(one, "a"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let told = Told::default();
        for number in 0..2 * REMEMBERED as u32 {
            told.is_new(IpAddr::V4(number.into()), "a");
        }
        assert!(told.told.lock().len() <= REMEMBERED);
    }
}

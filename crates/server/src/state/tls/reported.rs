//! Suppression of repeated log lines: each address is reported once for each reason.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// Maximum number of entries. A full table is cleared.
const REMEMBERED: usize = 4096;

/// Reported addresses and reasons.
#[derive(Default)]
pub(crate) struct ReportedErrors {
    /// Texts are stored as hashes. On a collision a reason is logged only at the debug level.
    reported: Mutex<HashSet<(IpAddr, u64)>>,
    hasher: RandomState,
}

impl ReportedErrors {
    /// Returns true for the first report.
    pub(crate) fn is_new(&self, address: IpAddr, message: &str) -> bool {
        let mut reported = self.reported.lock();
        if reported.len() >= REMEMBERED {
            reported.clear();
        }
        reported.insert((address, self.hasher.hash_one(message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_logged_once_per_address() {
        let reported = ReportedErrors::default();
        let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        assert!(reported.is_new(one, "a") && reported.is_new(one, "b") && reported.is_new(other, "a"));
        assert!(!reported.is_new(one, "a"));
    }

    #[test]
    fn remembered_addresses_are_bounded() {
        let reported = ReportedErrors::default();
        for number in 0..2 * REMEMBERED as u32 {
            reported.is_new(IpAddr::V4(number.into()), "a");
        }
        assert!(reported.reported.lock().len() <= REMEMBERED);
    }
}

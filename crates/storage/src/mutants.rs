//! Faults that a test switches on, to check that it detects them.
//!
//! Without the feature `mutants`, as in every ordinary build, [`mutant!`](crate::mutant) is
//! `false`, and this module is empty.

/// Returns true if the fault with this name is switched on.
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_on($name)
    };
}

/// Returns false: this build has no faults.
#[cfg(not(feature = "mutants"))]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        false
    };
}

#[cfg(feature = "mutants")]
mod switch {
    use crate::{Batch, Op};
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    static ANY: AtomicBool = AtomicBool::new(false);
    static CURRENT: Mutex<Option<&'static str>> = Mutex::new(None);

    /// Switches a fault on and the previous fault off.
    pub fn switch_on(name: Option<&'static str>) {
        *CURRENT.lock() = name;
        ANY.store(name.is_some(), Ordering::SeqCst);
    }

    /// Splits a batch into its first and second half.
    pub fn halves(batch: &Batch) -> (Batch, Batch) {
        let (mut first, mut second) = (Batch::new(), Batch::new());
        for (at, op) in batch.ops().iter().cloned().enumerate() {
            let half = if at < batch.len() / 2 { &mut first } else { &mut second };
            match op {
                Op::Put { ident, key, value } => half.put(ident, key, value),
                Op::Delete { ident, key } => half.delete(ident, key),
                Op::Create(ident) => half.create(ident),
                Op::Drop(ident) => half.drop_ident(ident),
                Op::Clear(ident) => half.clear(ident),
                Op::Fork { from, to } => half.fork(from, to),
            }
        }
        second.set_time(batch.time());
        (first, second)
    }

    /// Returns true if the fault with this name is switched on.
    pub fn is_on(name: &str) -> bool {
        ANY.load(Ordering::SeqCst) && *CURRENT.lock() == Some(name)
    }
}

#[cfg(feature = "mutants")]
pub use switch::{halves, is_on, switch_on};

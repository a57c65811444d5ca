//! Faults that a test switches on, to see that it would notice them.
//!
//! Where the feature `mutants` is off, which it is in every ordinary build, [`mutant!`](crate::mutant) is
//! `false`, and nothing of this is there.

/// Whether the fault of this name is switched on.
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mutants::is_on($name)
    };
}

/// Whether the fault of this name is switched on: it isn't.
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

    /// Switches a fault on, and whichever was on before off.
    pub fn switch_on(name: Option<&'static str>) {
        *CURRENT.lock() = name;
        ANY.store(name.is_some(), Ordering::SeqCst);
    }

    /// The first and the second half of a batch.
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

    /// Whether the fault of this name is switched on.
    pub fn is_on(name: &str) -> bool {
        ANY.load(Ordering::SeqCst) && *CURRENT.lock() == Some(name)
    }
}

#[cfg(feature = "mutants")]
pub use switch::{halves, is_on, switch_on};

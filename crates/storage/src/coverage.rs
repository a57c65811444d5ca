//! Marks of code that tests must reach, such as branches of the recovery.
//!
//! [`mark!`](crate::mark) names a place. Debug builds count its passes for each thread, release builds do not. The
//! simulation of the whole server reports the marks that its seeds reach.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static REACHED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts a pass of a place in the code, in debug builds.
#[macro_export]
macro_rules! mark {
    ($name:literal) => {
        if cfg!(debug_assertions) {
            $crate::coverage::reach($name);
        }
    };
}

/// Counts a pass of a mark by this thread.
pub fn reach(name: &'static str) {
    // A thread that ends counts nothing.
    _ = REACHED.try_with(|reached| *reached.borrow_mut().entry(name).or_default() += 1);
}

/// Returns the passes of this thread since the last call.
pub fn take() -> BTreeMap<&'static str, u64> {
    REACHED.take()
}

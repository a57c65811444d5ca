//! Buffers that connections borrow only while a request is under way.
//!
//! An idle connection holds none, so thousands of them cost little; each network thread keeps a
//! few at hand, warm from the request before.

use std::cell::RefCell;

/// The capacity of a new buffer, in bytes: enough for most requests.
const CAPACITY: usize = 8 * 1024;

/// Larger buffers are freed instead of being kept.
const KEPT_CAPACITY_MAX: usize = 64 * 1024;

/// How many each thread keeps.
const KEPT_MAX: usize = 4;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer.
pub(crate) fn take() -> Vec<u8> {
    KEPT.with_borrow_mut(|kept| kept.pop()).unwrap_or_else(|| Vec::with_capacity(CAPACITY))
}

/// Gives a buffer back, whatever it holds.
pub(crate) fn give(mut buffer: Vec<u8>) {
    if !(CAPACITY..=KEPT_CAPACITY_MAX).contains(&buffer.capacity()) {
        return;
    }
    buffer.clear();
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_come_back_and_large_ones_do_not() {
        give(Vec::with_capacity(10 * KEPT_CAPACITY_MAX));
        let mut buffer = take();
        assert!(buffer.capacity() <= KEPT_CAPACITY_MAX);
        buffer.push(1);
        let place = buffer.as_ptr();
        give(buffer);
        let again = take();
        assert!(again.is_empty() && again.as_ptr() == place);
    }
}

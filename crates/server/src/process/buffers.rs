//! Buffers that connections hold only while a request is in progress.
//!
//! An idle connection holds no buffer, so thousands of idle connections cost little. Each network
//! thread caches a few buffers, which are still in the processor's cache.

use std::cell::RefCell;

/// Capacity of a new buffer in bytes. Enough for most requests.
const CAPACITY: usize = 8 * 1024;

/// Maximum capacity of a cached buffer. Larger buffers are freed.
const KEPT_CAPACITY_MAX: usize = 64 * 1024;

/// Number of cached buffers for each thread.
const KEPT_MAX: usize = 4;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty buffer.
pub(crate) fn take() -> Vec<u8> {
    KEPT.with_borrow_mut(|kept| kept.pop()).unwrap_or_else(|| Vec::with_capacity(CAPACITY))
}

/// Returns a buffer to the cache.
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

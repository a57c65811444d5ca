//! Buffers that connections hold only while a request is in progress.
//!
//! An idle connection holds no buffer, so thousands of idle connections cost little. Each network
//! thread caches a few buffers, which are still in the processor's cache.

use std::cell::RefCell;

/// Capacity of a new buffer in bytes. Enough for most requests.
const CAPACITY: usize = 8 * 1024;

/// Maximum capacity of a cached buffer. Larger buffers are freed.
const CACHED_CAPACITY_MAX: usize = 64 * 1024;

/// Number of cached buffers for each thread.
const CACHED_MAX: usize = 4;

thread_local! {
    static CACHE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty buffer.
pub(crate) fn take() -> Vec<u8> {
    CACHE.with_borrow_mut(|cache| cache.pop()).unwrap_or_else(|| Vec::with_capacity(CAPACITY))
}

/// Returns a buffer to the cache.
pub(crate) fn release(mut buffer: Vec<u8>) {
    if !(CAPACITY..=CACHED_CAPACITY_MAX).contains(&buffer.capacity()) {
        return;
    }
    buffer.clear();
    CACHE.with_borrow_mut(|cache| {
        if cache.len() < CACHED_MAX {
            cache.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_are_reused_and_large_buffers_freed() {
        release(Vec::with_capacity(10 * CACHED_CAPACITY_MAX));
        let mut buffer = take();
        assert!(buffer.capacity() <= CACHED_CAPACITY_MAX);
        buffer.push(1);
        let address = buffer.as_ptr();
        release(buffer);
        let again = take();
        assert!(again.is_empty() && again.as_ptr() == address);
    }
}

//! Net heap memory of each thread, counted by the global allocator. Code that allocates needs no accounting.
//!
//! An operation runs on one thread at a time. Its memory is the thread's allocations minus the thread's frees since the
//! operation began. This covers parsers, arenas, accumulators and buffers alike.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes allocated minus bytes freed by this thread. A free counts here even if another thread allocated the
    /// memory.
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
}

/// Returns the bytes allocated minus the bytes freed by this thread. Only differences are meaningful. The value is
/// constant if the program does not allocate through [`CountingAllocator`].
#[inline]
pub fn allocated() -> i64 {
    ALLOCATED.with(Cell::get)
}

/// Adds memory that bypasses the allocator, such as mapped pages, in bytes; negative when the memory is freed.
pub fn count_external(bytes: i64) {
    ALLOCATED.with(|allocated| allocated.set(allocated.get().wrapping_add(bytes)));
}

/// Returns an id of this thread, unique among running threads: the address of its counter.
#[inline]
pub fn thread_id() -> usize {
    ALLOCATED.with(|allocated| std::ptr::from_ref(allocated) as usize)
}

#[inline]
fn count(bytes: usize, sign: i64) {
    // A size never exceeds isize::MAX. The cell has no destructor, so it lives as long as its thread.
    ALLOCATED.with(|allocated| allocated.set(allocated.get().wrapping_add(sign * bytes as i64)));
}

/// An allocator that counts the memory of each thread; for `#[global_allocator]`.
pub struct CountingAllocator<A = System>(pub A);

// SAFETY: every call is forwarded unchanged, and its result is returned. The count neither allocates nor unwinds. No
// safe code can count here, and counting elsewhere would miss allocations.
#[allow(unsafe_code)]
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller upholds the contract of the inner allocator.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above; the inner allocator returned this pointer.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, 1);
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: CountingAllocator = CountingAllocator(System);

    #[test]
    fn allocations_and_frees_are_counted_by_thread() {
        let before = allocated();
        let mut buffer: Vec<u8> = Vec::with_capacity(1000);
        assert_eq!(allocated() - before, 1000);
        buffer.reserve_exact(5000);
        assert_eq!(allocated() - before, 5000);
        let elsewhere = std::thread::spawn(move || {
            let before = allocated();
            drop(buffer);
            (allocated() - before, thread_id())
        });
        let (freed, other) = elsewhere.join().unwrap();
        assert_eq!(freed, -5000);
        assert_ne!(other, thread_id());
    }
}

//! How much memory each thread has taken from the heap: the allocator counts, so that nothing that allocates has
//! to.
//!
//! An operation runs on one thread at a time. What the thread has taken since the operation began, less what it
//! has freed, is what the operation holds, wherever in parser, arena, accumulator or buffer that is.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated, less those that it has freed, whoever had allocated these.
    static TAKEN: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated, less those that it has freed. Only differences mean anything; where the
/// program doesn't allocate through [`Counting`], it is always the same.
#[inline]
pub fn taken() -> i64 {
    TAKEN.with(Cell::get)
}

/// Counts what this thread has taken from elsewhere than the heap; less than zero where it gives something back.
pub fn count_elsewhere(bytes: i64) {
    TAKEN.with(|taken| taken.set(taken.get().wrapping_add(bytes)));
}

/// Tells this thread from all others that live.
#[inline]
pub fn thread() -> usize {
    TAKEN.with(|taken| std::ptr::from_ref(taken) as usize)
}

#[inline]
fn count(bytes: usize, sign: i64) {
    // A size never exceeds isize::MAX. The cell needs no destructor, so it is there for as long as its thread is.
    TAKEN.with(|taken| taken.set(taken.get().wrapping_add(sign * bytes as i64)));
}

/// An allocator that counts what each thread takes; for `#[global_allocator]`.
pub struct Counting<A = System>(pub A);

// SAFETY: every call is passed on as it came, and its result given back; counting neither allocates nor unwinds.
// Nothing safe can count at this place, and counting elsewhere would miss whatever it wasn't told of.
#[allow(unsafe_code)]
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: what the caller promises is what the inner allocator asks for.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above; the inner allocator has made this pointer.
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
    static HEAP: Counting = Counting(System);

    #[test]
    fn a_thread_is_told_what_it_has_taken() {
        let before = taken();
        let mut held: Vec<u8> = Vec::with_capacity(1000);
        assert_eq!(taken() - before, 1000);
        held.reserve_exact(5000);
        assert_eq!(taken() - before, 5000);
        let elsewhere = std::thread::spawn(move || {
            let before = taken();
            drop(held);
            (taken() - before, thread())
        });
        let (freed, other) = elsewhere.join().unwrap();
        assert_eq!(freed, -5000);
        assert_ne!(other, thread());
    }
}

//! PCRE2's memory: allocated by the program's allocator, which counts it, and freed with its owner.

use super::pcre::Failure;
use pcre2_sys::{
    pcre2_code_8, pcre2_code_free_8, pcre2_compile_context_8, pcre2_compile_context_free_8,
    pcre2_general_context_8, pcre2_general_context_create_8, pcre2_general_context_free_8, pcre2_jit_stack_8,
    pcre2_jit_stack_free_8, pcre2_match_context_8, pcre2_match_context_free_8, pcre2_match_data_8,
    pcre2_match_data_free_8,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// Bytes before each allocation that hold its size; a multiple of the strictest alignment.
const HEAD: usize = 16;

/// Allocates zeroed memory, because PCRE2's buffers may be read before they are written. Returns null without memory.
#[allow(unsafe_code)]
unsafe extern "C" fn allocate(bytes: usize, _: *mut c_void) -> *mut c_void {
    let layout = bytes.checked_add(HEAD).and_then(|total| Layout::from_size_align(total, HEAD).ok());
    let Some(layout) = layout else { return ptr::null_mut() };
    // SAFETY: the allocation has at least the head, which is large enough and aligned for a size.
    unsafe {
        let head = alloc_zeroed(layout);
        if head.is_null() {
            return ptr::null_mut();
        }
        head.cast::<usize>().write(layout.size());
        head.add(HEAD).cast()
    }
}

#[allow(unsafe_code)]
unsafe extern "C" fn release(piece: *mut c_void, _: *mut c_void) {
    if piece.is_null() {
        return;
    }
    // SAFETY: PCRE2 returns only pointers from `allocate`, whose head holds the size.
    unsafe {
        let head = piece.cast::<u8>().sub(HEAD);
        let layout = Layout::from_size_align_unchecked(head.cast::<usize>().read(), HEAD);
        dealloc(head, layout);
    }
}

/// Returns a PCRE2 context with these allocation functions.
#[allow(unsafe_code)]
pub(super) fn general() -> Result<Owned<pcre2_general_context_8>, Failure> {
    // SAFETY: both functions belong together and take no data.
    unsafe { Owned::new(pcre2_general_context_create_8(Some(allocate), Some(release), ptr::null_mut())) }
}

/// An object of PCRE2 with a single owner.
pub(super) struct Owned<T: PcreObject>(NonNull<T>);

impl<T: PcreObject> Owned<T> {
    /// Takes ownership of an object; null means a lack of memory.
    ///
    /// # Safety
    /// The pointer must be new or null.
    #[allow(unsafe_code)]
    pub(super) unsafe fn new(made: *mut T) -> Result<Owned<T>, Failure> {
        NonNull::new(made).map(Owned).ok_or(Failure::NO_MEMORY)
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: PcreObject> Drop for Owned<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: this is the only owner.
        unsafe { T::FREE(self.0.as_ptr()) }
    }
}

/// An object type that PCRE2 has a free function for.
pub(super) trait PcreObject {
    /// The free function.
    const FREE: unsafe extern "C" fn(*mut Self);
}

macro_rules! freed {
    ($($kind:ty: $free:expr),* $(,)?) => {
        $(impl PcreObject for $kind {
            const FREE: unsafe extern "C" fn(*mut Self) = $free;
        })*
    };
}

freed! {
    pcre2_general_context_8: pcre2_general_context_free_8,
    pcre2_compile_context_8: pcre2_compile_context_free_8,
    pcre2_code_8: pcre2_code_free_8,
    pcre2_match_context_8: pcre2_match_context_free_8,
    pcre2_match_data_8: pcre2_match_data_free_8,
    pcre2_jit_stack_8: pcre2_jit_stack_free_8,
}

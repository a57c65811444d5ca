//! PCRE2's memory: from the program's allocator, so that it is counted, and freed with whoever owns it.

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

/// Bytes before each piece, which keep how long it is; as many as the strictest alignment needs.
const HEAD: usize = 16;

/// Zeroed, so that what PCRE2 hasn't written to can be read; null where there is none.
#[allow(unsafe_code)]
unsafe extern "C" fn allocate(bytes: usize, _: *mut c_void) -> *mut c_void {
    let layout = bytes.checked_add(HEAD).and_then(|whole| Layout::from_size_align(whole, HEAD).ok());
    let Some(layout) = layout else { return ptr::null_mut() };
    // SAFETY: no less than the head, which is long enough for a size and aligned for it.
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
    // SAFETY: PCRE2 gives back what `allocate` has made, with its head before it and its size in there.
    unsafe {
        let head = piece.cast::<u8>().sub(HEAD);
        let layout = Layout::from_size_align_unchecked(head.cast::<usize>().read(), HEAD);
        dealloc(head, layout);
    }
}

/// How PCRE2 allocates.
#[allow(unsafe_code)]
pub(super) fn general() -> Result<Owned<pcre2_general_context_8>, Failure> {
    // SAFETY: the two functions belong together and take no data.
    unsafe { Owned::new(pcre2_general_context_create_8(Some(allocate), Some(release), ptr::null_mut())) }
}

/// Something of PCRE2's, which nobody else frees.
pub(super) struct Owned<T: Freed>(NonNull<T>);

impl<T: Freed> Owned<T> {
    /// Takes what PCRE2 has made; null is having no memory.
    ///
    /// # Safety
    /// It is new, or null.
    #[allow(unsafe_code)]
    pub(super) unsafe fn new(made: *mut T) -> Result<Owned<T>, Failure> {
        NonNull::new(made).map(Owned).ok_or(Failure::NO_MEMORY)
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: Freed> Drop for Owned<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { T::FREE(self.0.as_ptr()) }
    }
}

/// What PCRE2 has a function to free.
pub(super) trait Freed {
    /// Frees it.
    const FREE: unsafe extern "C" fn(*mut Self);
}

macro_rules! freed {
    ($($kind:ty: $free:expr),* $(,)?) => {
        $(impl Freed for $kind {
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

//! Bindings to PCRE2: compilation and a single search.
//!
//! This module calls PCRE2's functions directly. The existing crate panics if PCRE2 runs out of memory, and keeps a
//! stack for each pattern and thread. This module keeps one stack per thread. Without it, machine code runs on the
//! thread's own stack, and deeper matches are interpreted. All memory of PCRE2, including machine code, comes from
//! the program's allocator, which counts it as the thread's ([`base::memory`]). A lack of memory is a normal error.

use pcre2_sys::{
    PCRE2_ERROR_JIT_STACKLIMIT, PCRE2_ERROR_NOMATCH, PCRE2_ERROR_NOMEMORY, PCRE2_INFO_JITSIZE,
    PCRE2_JIT_COMPLETE, PCRE2_NO_JIT, PCRE2_UNSET, pcre2_code_8, pcre2_code_free_8, pcre2_compile_8,
    pcre2_compile_context_8, pcre2_compile_context_create_8, pcre2_compile_context_free_8,
    pcre2_general_context_8, pcre2_general_context_create_8, pcre2_general_context_free_8,
    pcre2_get_error_message_8, pcre2_get_ovector_count_8, pcre2_get_ovector_pointer_8, pcre2_jit_compile_8,
    pcre2_jit_stack_8, pcre2_jit_stack_assign_8, pcre2_jit_stack_create_8, pcre2_jit_stack_free_8,
    pcre2_match_8, pcre2_match_context_8, pcre2_match_context_create_8, pcre2_match_context_free_8,
    pcre2_match_data_8, pcre2_match_data_create_8, pcre2_match_data_create_from_pattern_8,
    pcre2_match_data_free_8, pcre2_pattern_info_8,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::OnceCell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

/// Maximum stack of machine code in bytes. With the default of 32 KiB, a plain pattern such as `(a|b)*c` fails on 20 KB
/// of text. Each searching thread reserves the stack but commits only what it uses.
const MACHINE_STACK_MAX: usize = 1 << 20;
/// Initial size of the stack in bytes.
const MACHINE_STACK_FIRST: usize = 32 << 10;

/// PCRE2's error code for a lack of memory during compilation.
const NO_HEAP: c_int = 121;

/// PCRE2's error code of a failed compilation or search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure(c_int);

impl Failure {
    pub(super) const NO_MEMORY: Failure = Failure(PCRE2_ERROR_NOMEMORY);

    pub(super) fn number(self) -> i32 {
        self.0
    }

    /// Whether the failure is a lack of memory.
    pub(super) fn is_for_memory(self) -> bool {
        self == Failure::NO_MEMORY || self.0 == NO_HEAP
    }

    /// PCRE2's error message.
    #[allow(unsafe_code)]
    pub(super) fn message(self) -> String {
        let mut text = [0u8; 256];
        // SAFETY: the given length is the buffer's length.
        let length = unsafe { pcre2_get_error_message_8(self.0, text.as_mut_ptr(), text.len()) };
        let text = usize::try_from(length).ok().and_then(|length| text.get(..length)).unwrap_or(&[]);
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A compiled pattern.
pub(super) struct Code {
    code: Owned<pcre2_code_8>,
    /// Size of the machine code in bytes; zero without machine code.
    machine_bytes: usize,
}

// SAFETY: PCRE2 never changes code after compilation, including machine code, and allows threads to share it.
#[allow(unsafe_code)]
unsafe impl Send for Code {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Code {}

impl Code {
    /// Compiles a pattern with PCRE2 options, to machine code if memory allows.
    #[allow(unsafe_code)]
    pub(super) fn new(pattern: &str, options: u32) -> Result<Code, Failure> {
        // SAFETY: PCRE2 copies the content of the general context.
        let context = unsafe { Owned::new(pcre2_compile_context_create_8(general()?.as_ptr())) }?;
        let (mut number, mut offset) = (0, 0);
        let (text, length) = (pattern.as_ptr(), pattern.len());
        // SAFETY: the given length is the text's length; both numbers are writable.
        let code =
            unsafe { pcre2_compile_8(text, length, options, &mut number, &mut offset, context.as_ptr()) };
        // SAFETY: the pointer is new or null.
        let code = unsafe { Owned::new(code) }.map_err(|_| Failure(number))?;
        let mut machine_bytes = 0;
        // SAFETY: no other reference to the code exists yet; the result of the query is a size.
        unsafe {
            // PCRE2 interprets the code without machine code.
            if pcre2_jit_compile_8(code.as_ptr(), PCRE2_JIT_COMPLETE) == 0 {
                let answer = ptr::from_mut(&mut machine_bytes).cast();
                pcre2_pattern_info_8(code.as_ptr(), PCRE2_INFO_JITSIZE, answer);
            }
        }
        base::memory::count_external(as_count(machine_bytes));
        Ok(Code { code, machine_bytes })
    }

    /// Whether the text matches at or after `start`.
    pub(super) fn is_match_at(&self, text: &str, start: usize) -> Result<bool, Failure> {
        on_this_thread(|thread| match thread.data() {
            Some(data) if self.machine_bytes > 0 => self.run(text, start, data, thread),
            // An interpreted match stores its stack in the match data, which is freed with it.
            _ => self.run(text, start, &one_pair()?, thread),
        })
    }

    /// Whether the text matches at or after `start`; `groups` receives the match and its groups.
    pub(super) fn find_at(&self, text: &str, start: usize, groups: &mut Groups) -> Result<bool, Failure> {
        on_this_thread(|thread| self.run(text, start, &groups.data, thread))
    }

    /// Allocates the groups of the pattern.
    #[allow(unsafe_code)]
    pub(super) fn groups(&self) -> Result<Groups, Failure> {
        // SAFETY: PCRE2 copies the content of the general context and only reads the code.
        let data = unsafe {
            Owned::new(pcre2_match_data_create_from_pattern_8(self.code.as_ptr(), general()?.as_ptr()))
        }?;
        Ok(Groups { data })
    }

    /// Runs one search. Without a stack for machine code, a search that exhausts the thread's stack is interpreted
    /// instead.
    #[allow(unsafe_code)]
    fn run(
        &self,
        text: &str,
        start: usize,
        data: &Owned<pcre2_match_data_8>,
        thread: &Thread,
    ) -> Result<bool, Failure> {
        if start > text.len() {
            return Ok(false);
        }
        let context = thread.context().map_or(ptr::null_mut(), Owned::as_ptr);
        // PCRE2 may read the start of an empty text.
        let start_of_text = if text.is_empty() { [0].as_ptr() } else { text.as_ptr() };
        // SAFETY: the given length is the text's length. Only this thread uses data and context, for one search at a
        // time. No option disables a check.
        let search = |options| unsafe {
            let (code, data) = (self.code.as_ptr(), data.as_ptr());
            pcre2_match_8(code, start_of_text, text.len(), start, options, data, context)
        };
        let outcome = match search(0) {
            PCRE2_ERROR_JIT_STACKLIMIT if thread.stack.get().is_none() => search(PCRE2_NO_JIT),
            outcome => outcome,
        };
        match outcome {
            PCRE2_ERROR_NOMATCH => Ok(false),
            // Zero means a match with more groups than allocated.
            0.. => Ok(true),
            number => Err(Failure(number)),
        }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        base::memory::count_external(-as_count(self.machine_bytes));
    }
}

fn as_count(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Positions of a match and its groups.
pub(super) struct Groups {
    data: Owned<pcre2_match_data_8>,
}

impl Groups {
    #[allow(unsafe_code)]
    fn offsets(&self) -> &[usize] {
        let data = self.data.as_ptr();
        // SAFETY: the data holds this many pairs during its lifetime, zero before the first match.
        unsafe {
            let pairs = pcre2_get_ovector_count_8(data) as usize;
            std::slice::from_raw_parts(pcre2_get_ovector_pointer_8(data), 2 * pairs)
        }
    }

    /// Returns the position of a group in the last match; group 0 is the whole match. `None` if the group took no part.
    pub(super) fn get(&self, group: usize) -> Option<(usize, usize)> {
        match self.offsets().get(2 * group..2 * group + 2) {
            Some(&[from, to]) if from != PCRE2_UNSET && to != PCRE2_UNSET => Some((from, to)),
            _ => None,
        }
    }

    /// Number of groups, including the whole match.
    pub(super) fn len(&self) -> usize {
        self.offsets().len() / 2
    }
}

/// Search state of a thread, as far as memory allowed.
struct Thread {
    /// Maximum size of the stack.
    stack_max: usize,
    data: OnceCell<Owned<pcre2_match_data_8>>,
    // The order matters: the context refers to the stack and must be dropped first.
    context: OnceCell<Owned<pcre2_match_context_8>>,
    stack: OnceCell<Owned<pcre2_jit_stack_8>>,
}

thread_local! {
    static THREAD: Thread = Thread::new(MACHINE_STACK_MAX);
}

/// Runs a search with this thread's state. Errors: a lack of memory if the thread is about to end.
fn on_this_thread<T>(search: impl FnOnce(&Thread) -> Result<T, Failure>) -> Result<T, Failure> {
    THREAD.try_with(search).unwrap_or(Err(Failure::NO_MEMORY))
}

impl Thread {
    fn new(stack_max: usize) -> Thread {
        Thread { stack_max, data: OnceCell::new(), context: OnceCell::new(), stack: OnceCell::new() }
    }

    /// Match data of searches without positions.
    fn data(&self) -> Option<&Owned<pcre2_match_data_8>> {
        made_once(&self.data, one_pair)
    }

    /// Match context, which refers machine code to the stack.
    #[allow(unsafe_code)]
    fn context(&self) -> Option<&Owned<pcre2_match_context_8>> {
        // SAFETY: PCRE2 copies the content of the general context.
        let context = made_once(&self.context, || unsafe {
            Owned::new(pcre2_match_context_create_8(general()?.as_ptr()))
        })?;
        if self.stack.get().is_none() {
            // SAFETY: as above; the context is dropped before the stack.
            made_once(&self.stack, || unsafe {
                let general = general()?;
                let stack = pcre2_jit_stack_create_8(MACHINE_STACK_FIRST, self.stack_max, general.as_ptr());
                let stack = Owned::new(stack)?;
                pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.as_ptr().cast());
                Ok(stack)
            });
        }
        Some(context)
    }
}

/// Allocates match data for a match without groups.
#[allow(unsafe_code)]
fn one_pair() -> Result<Owned<pcre2_match_data_8>, Failure> {
    // SAFETY: PCRE2 copies the content of the general context.
    unsafe { Owned::new(pcre2_match_data_create_8(1, general()?.as_ptr())) }
}

fn made_once<T>(slot: &OnceCell<T>, make: impl FnOnce() -> Result<T, Failure>) -> Option<&T> {
    match slot.get() {
        Some(made) => Some(made),
        None => make().ok().map(|made| slot.get_or_init(|| made)),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use base::memory::{CountingAllocator, allocated};
    use pcre2_sys::PCRE2_UTF;
    use std::alloc::System;

    #[global_allocator]
    static HEAP: CountingAllocator = CountingAllocator(System);

    #[test]
    fn memory_of_pcre_counts_for_the_thread() {
        let before = allocated();
        let code = Code::new("(a|b)+c{2,90}[x-z]", PCRE2_UTF).unwrap();
        assert!(allocated() - before >= code.machine_bytes as i64 + 100, "{}", allocated() - before);
        assert!(code.machine_bytes > 100, "{}", code.machine_bytes);
        let groups = code.groups().unwrap();
        drop((code, groups));
        assert_eq!(allocated(), before);
    }

    #[test]
    fn interpretation_has_equal_results_and_keeps_no_memory() {
        let compiled = Code::new("(a|b)*c", PCRE2_UTF).unwrap();
        let text = format!("{}c", "ab".repeat(200));
        assert!(compiled.is_match_at(&text, 0).unwrap());
        let interpreted = Code { machine_bytes: 0, code: plain("(a|b)*c") };
        let before = allocated();
        assert!(interpreted.is_match_at(&text, 0).unwrap());
        assert!(!interpreted.is_match_at("ab", 0).unwrap());
        assert_eq!(allocated(), before);
        let mut groups = interpreted.groups().unwrap();
        assert!(interpreted.find_at(&text, 3, &mut groups).unwrap());
        assert_eq!((groups.len(), groups.get(0), groups.get(1)), (2, Some((3, 401)), Some((399, 400))));
    }

    #[allow(unsafe_code)]
    fn plain(pattern: &str) -> Owned<pcre2_code_8> {
        let (mut number, mut offset) = (0, 0);
        // SAFETY: as in the compilation of patterns.
        unsafe {
            let context = Owned::new(pcre2_compile_context_create_8(general().unwrap().as_ptr())).unwrap();
            let (text, length) = (pattern.as_ptr(), pattern.len());
            let code = pcre2_compile_8(text, length, PCRE2_UTF, &mut number, &mut offset, context.as_ptr());
            Owned::new(code).unwrap()
        }
    }

    #[test]
    fn without_memory_for_a_stack_long_matches_are_interpreted() {
        let code = Code::new("^(a|b)*c", PCRE2_UTF).unwrap();
        let (with, without) = (Thread::new(MACHINE_STACK_MAX), Thread::new(usize::MAX / 4));
        for length in [1, 10_000] {
            let text = format!("{}c", "ab".repeat(length));
            for thread in [&with, &without] {
                assert_eq!(code.run(&text, 0, &one_pair().unwrap(), thread), Ok(true), "{length}");
                assert_eq!(code.run(&text, 1, &one_pair().unwrap(), thread), Ok(false), "{length}");
            }
        }
        assert!(with.stack.get().is_some() && without.stack.get().is_none());
    }

    #[test]
    fn failures_have_words() {
        let failure = Code::new("[)", 0).err().unwrap();
        assert_eq!(failure.message(), "missing terminating ] for character class");
        assert!(!failure.is_for_memory());
        assert!(Failure(NO_HEAP).message().contains("memory"), "{}", Failure(NO_HEAP).message());
        assert!(Failure::NO_MEMORY.message().contains("memory"));
    }
}

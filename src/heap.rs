//! Where the program's memory comes from: jemalloc on Linux, elsewhere the system's allocator.
//!
//! What a server frees lies between what it keeps. glibc's heaps hold a page for as long as any block in it is used, and
//! blocks of all sizes lie side by side: 50 minutes of `tests/soak`, with everything dropped after it, left 53 MB in
//! memory and 51 on disk, of which some 6 were in use; now they leave 29 and 27. jemalloc keeps blocks of one size
//! together, gives back pages one by one, and takes no more time for it ([measured](../docs/performance.md#the-allocator)).

use base::memory::Counting;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::ffi::{CStr, c_char};

#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Allocator = tikv_jemallocator::Jemalloc;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALLOCATOR: Allocator = tikv_jemallocator::Jemalloc;

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Allocator = std::alloc::System;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const ALLOCATOR: Allocator = std::alloc::System;

/// Counts what each operation takes.
#[global_allocator]
static HEAP: Counting<Allocator> = Counting(ALLOCATOR);

/// How jemalloc works here; `_RJEM_MALLOC_CONF` in the environment comes after it, and overrules it.
///
/// - Few arenas: what one thread allocates and another frees stays in the arena that it came from.
/// - Threads keep few free blocks for themselves, and none of more than 4 KiB: each holds the pages around it. With as many
///   as by jemalloc's default the soak's server had 4 MB more when all was dropped, and was no faster.
/// - Blocks of 512 and 1,024 bytes, which the memory engine's nodes are, lie on several pages together: what jemalloc notes
///   of each such piece it keeps for good, and pieces of one page left 30 instead of 25 MB after 4,000,000 documents of 85
///   bytes were dropped.
/// - Free pages go back within half a second, as long as others are asked for; `server/heap.rs` gives back the rest once
///   the server is quiet.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
// SAFETY: jemalloc declares a weak variable of this name and type for programs to define. It reads the text as memory is
// asked for the first time, and never writes it. The number of arenas can't be set later.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &c_char = {
    const TEXT: &CStr = c"narenas:2,lg_tcache_max:12,tcache_nslots_small_max:16,tcache_nslots_small_min:4,\
                          tcache_nslots_large:2,slab_sizes:897-1024:8|449-512:4,dirty_decay_ms:500,muzzy_decay_ms:0";
    // SAFETY: the text has at least the zero at its end.
    unsafe { &*TEXT.as_ptr() }
};

//! The allocator: jemalloc on Linux, elsewhere the system's.
//!
//! Freed blocks of a server lie between live blocks. glibc's heaps keep a page while any block in
//! it is live, and mix blocks of all sizes. After 50 minutes of `tests/soak` with all data dropped,
//! glibc left 53 MB in memory and 51 on disk, of which about 6 were in use. jemalloc leaves 29 and
//! 27. It groups blocks by size and returns single pages, at equal speed
//! ([measured](../docs/performance.md#the-allocator)).

use base::memory::CountingAllocator;
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

/// Counts the memory of each operation.
#[global_allocator]
static HEAP: CountingAllocator<Allocator> = CountingAllocator(ALLOCATOR);

/// Options of jemalloc. `_RJEM_MALLOC_CONF` in the environment overrides them.
///
/// - Few arenas: a block that another thread frees stays in its arena.
/// - Small thread caches, and none for blocks above 4 KiB, because each cached block keeps its
///   pages. With jemalloc's default the soak's server held 4 MB more after all data was dropped,
///   and was no faster.
/// - Blocks of 512 and 1,024 bytes, the nodes of the memory engine, use runs of several pages.
///   jemalloc keeps the metadata of each run forever. Runs of one page left 30 instead of 25 MB
///   after 4,000,000 documents of 85 bytes were dropped.
/// - Free pages are returned within half a second while the program allocates. `server/process/heap.rs`
///   returns the remaining pages when the server is quiet.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
// SAFETY: jemalloc declares a weak variable of this name and type for programs to define. It reads
// the text at the first allocation and never writes it. The number of arenas cannot be set later.
#[unsafe(export_name = "_rjem_malloc_conf")]
static CONFIGURATION: &c_char = {
    const TEXT: &CStr = c"narenas:2,lg_tcache_max:12,tcache_nslots_small_max:16,tcache_nslots_small_min:4,\
                          tcache_nslots_large:2,slab_sizes:897-1024:8|449-512:4,dirty_decay_ms:500,muzzy_decay_ms:0";
    // SAFETY: the text has at least its final zero byte.
    unsafe { &*TEXT.as_ptr() }
};

//! Counters of an engine, and its durability level.

/// Number of buckets of [`Statistics::sync_counts`].
pub const SYNC_SPANS: usize = 22;

/// Statistics of an engine since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Total length of all keys and values in the latest state. Forked trees count in full.
    pub bytes: u64,
    /// Pages found in the cache, including inner pages.
    pub cache_hits: u64,
    /// Pages read from the file system.
    pub cache_misses: u64,
    /// Number of file syncs.
    pub syncs: u64,
    /// Number of committed batches. Divided by `syncs`, it is the number of commits per sync.
    pub commits: u64,
    /// Pages evicted from the full cache.
    pub cache_evictions: u64,
    /// Reads of leaf pages in the data files, by successful lookups and by cursors.
    pub entry_reads: u64,
    /// Number of these reads that waited for the file system.
    pub entry_misses: u64,
    /// Bytes in the cache.
    pub cache_bytes: u64,
    /// Median duration of the journal's syncs, in microseconds.
    pub sync_micros_p50: u64,
    /// 95th percentile of the duration of the journal's syncs, in microseconds.
    pub sync_micros_p95: u64,
    /// 99th percentile of the duration of the journal's syncs, in microseconds.
    pub sync_micros_p99: u64,
    /// Total duration of all syncs of the journal, in microseconds.
    pub sync_micros: u64,
    /// Histogram of these durations: less than 16 microseconds, 16 to 31, and further doublings.
    /// The last bucket has all longer syncs.
    pub sync_counts: [u64; SYNC_SPANS],
    /// Number of completed checkpoints.
    pub checkpoints: u64,
    /// Approximate memory of the changes since the latest checkpoint, in bytes.
    pub changed_bytes: u64,
    /// Approximate memory of the changes that checkpoints have written since the start, in bytes. Older snapshots may
    /// still hold it.
    pub written_bytes: u64,
    /// Bytes of journal since the latest checkpoint.
    pub journal_bytes: u64,
    /// Size of the data files in bytes, without the journal.
    pub file_bytes: u64,
    /// The archive of the journal, if any.
    pub archive: Option<ArchiveCounts>,
}

/// State of a journal archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveCounts {
    /// Position of its last commit.
    pub position: u64,
    /// Number of failed writes since the engine was opened.
    pub failures: u64,
    /// True if the latest attempt failed, so that the journal is kept longer.
    pub failing: bool,
}

/// Default durability of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// No automatic syncs: a crash of the machine may lose a commit.
    #[default]
    None,
    /// A commit survives the end of the process, and after a short interval a crash of the machine.
    Relaxed,
    /// The caller of a commit must wait until it survives a crash of the machine.
    Journaled,
}

impl Durability {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Relaxed => "relaxed",
            Durability::Journaled => "journaled",
        }
    }
}

/// How far a wait for the journal is that holds no thread ([`await_journaled`](crate::Journaling::await_journaled)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalWait {
    /// The wait is over.
    Satisfied,
    /// No thread syncs. The caller must call [`wait_journaled`](crate::Journaling::wait_journaled) at once, since other
    /// callers rely on it from now on.
    SyncNeeded,
    /// Another thread syncs, and will call the waker.
    Pending,
}

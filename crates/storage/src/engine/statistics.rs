//! Counters of an engine, and its durability level.

/// How many spans of time [`Statistics::sync_counts`] tells apart.
pub const SYNC_SPANS: usize = 22;

/// What an engine counts about itself since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The lengths of all keys and values that the latest state holds; trees forked from one another are
    /// counted each in full.
    pub bytes: u64,
    /// Pages found in the cache, inner pages included.
    pub cache_hits: u64,
    /// Pages that had to be read from the file system.
    pub cache_misses: u64,
    /// Times a file was synced.
    pub syncs: u64,
    /// Batches committed; divided by `syncs` it tells how many commits shared one.
    pub commits: u64,
    /// Pages given up because the cache was full.
    pub cache_evictions: u64,
    /// Visits of pages of entries in the files that hold the data: by lookups that find something, and by cursors.
    pub entry_reads: u64,
    /// How many of them had to wait for the file system.
    pub entry_misses: u64,
    /// Bytes in the cache.
    pub cache_bytes: u64,
    /// Microseconds within which half of the journal's syncs were done.
    pub sync_micros_p50: u64,
    /// Microseconds within which 95 % of the journal's syncs were done.
    pub sync_micros_p95: u64,
    /// Microseconds within which 99 % of the journal's syncs were done.
    pub sync_micros_p99: u64,
    /// Microseconds spent in all syncs of the journal.
    pub sync_micros: u64,
    /// How many of them took less than 16 microseconds, 16 to 31, and so on by doublings; the last are all that took
    /// longer.
    pub sync_counts: [u64; SYNC_SPANS],
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// About how much memory the changes since the latest checkpoint take.
    pub changed_bytes: u64,
    /// Bytes of journal since the latest checkpoint.
    pub journal_bytes: u64,
    /// Bytes of the files that hold the data, without the journal.
    pub file_bytes: u64,
    /// The archive of the journal, where one is kept.
    pub archive: Option<ArchiveCounts>,
}

/// How the archive of a journal stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveCounts {
    /// The position of the last commit in it.
    pub position: u64,
    /// How often it couldn't be written since the engine was opened.
    pub failures: u64,
    /// Whether the latest attempt failed, so that the journal is kept longer.
    pub failing: bool,
}

/// What a commit survives without having asked for more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is synced unless somebody waits for it: a commit may be lost when the machine stops.
    #[default]
    None,
    /// A commit survives the end of the process, and after a short interval that of the machine.
    Relaxed,
    /// Whoever commits is to wait until it survives the end of the machine.
    Journaled,
}

impl Durability {
    /// What it is called on the command line.
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
pub enum Awaited {
    /// It is over.
    There,
    /// No thread syncs. The caller must call [`wait_journaled`](crate::Journaling::wait_journaled) at once, since other
    /// callers rely on it from now on.
    Yours,
    /// Another thread syncs, and will call the waker.
    Later,
}

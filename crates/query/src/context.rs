//! What parsing and evaluation need from outside: variables, the time, interruption, memory.

use crate::{Collation, Limits, Metadata, SpillFolder};
use base::bson::ValueBuf;
use base::{Result, err};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Asked inside every loop whether the operation must stop (maxTimeMS, killOp, shutdown).
pub trait Interrupt: Send + Sync {
    /// Errors: MaxTimeMSExpired, Interrupted, InterruptedAtShutdown.
    fn check(&self) -> Result<()>;

    /// The same before work that nothing interrupts: looks at the clock at all events, and where it
    /// may take long lets other clients have the thread first.
    ///
    /// Errors: as [`check`](Self::check).
    fn check_now(&self, _may_take_long: bool) -> Result<()> {
        self.check()
    }
}

/// Never interrupts; for tests and for work that nobody waits for.
pub struct Uninterrupted;

impl Interrupt for Uninterrupted {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Times for the empty timestamps of stored documents: no two are the same.
#[derive(Default)]
pub struct Stamps(AtomicU64);

impl Stamps {
    /// The next time, `earliest` or later.
    pub fn next(&self, earliest: u64) -> u64 {
        let after = |last: u64| last.saturating_add(1).max(earliest);
        let last = self.0.fetch_update(Relaxed, Relaxed, |last| Some(after(last)));
        after(last.unwrap_or_else(|last| last))
    }
}

/// The surroundings of one operation: the same while parsing and while evaluating. Shared by
/// reference, also between threads, since an open cursor may move from one to another.
pub struct Context {
    /// `$$NOW`: milliseconds since 1970, fixed for the whole operation.
    pub now_millis: i64,
    /// `$$CLUSTER_TIME`, where the topology has one.
    pub cluster_time: Option<u64>,
    /// The command's `let` (or a `$lookup`'s), by name. Expressions keep the position they found
    /// while parsing, so values may change between evaluations but names and order may not.
    /// `None` is a variable whose value is missing.
    pub variables: Vec<(String, Option<ValueBuf>)>,
    /// What strings are compared by: the command's collation, or that of what it reads.
    pub collation: Collation,
    /// How much memory blocking work may hold.
    pub limits: Limits,
    /// Whether the command itself asked for that collation.
    pub own_collation: bool,
    /// Whether empty timestamps at the top of documents are stored as they are, not as the time.
    pub keep_empty_timestamps: bool,
    /// Whether errors of constant parts of expressions wait until a document is there.
    pub defers_constants: bool,
    /// What empty timestamps are filled in with.
    pub stamps: Arc<Stamps>,
    /// Where temporary files are.
    pub spills: SpillFolder,
    /// What stops long loops.
    pub interrupt: Arc<dyn Interrupt>,
    /// What `$meta` tells of the document that is looked at.
    pub metadata: Metadata,
    random: AtomicU64,
    /// Steps since the interrupt was asked, in [`steps`](Context::steps).
    steps: AtomicUsize,
}

impl Context {
    /// Surroundings with no variables. `seed` starts the operation's random numbers.
    pub fn new(now_millis: i64, seed: u64, interrupt: Arc<dyn Interrupt>) -> Context {
        Context::sharing(now_millis, seed, interrupt, Arc::default(), SpillFolder::default())
    }

    /// The same with what all operations of a database share: times for empty timestamps, and where files go.
    pub fn sharing(
        now_millis: i64,
        seed: u64,
        interrupt: Arc<dyn Interrupt>,
        stamps: Arc<Stamps>,
        spills: SpillFolder,
    ) -> Context {
        Context {
            now_millis,
            cluster_time: None,
            variables: Vec::new(),
            collation: Collation::SIMPLE,
            limits: Limits::default(),
            own_collation: false,
            keep_empty_timestamps: false,
            defers_constants: false,
            stamps,
            spills,
            interrupt,
            metadata: Metadata::default(),
            random: AtomicU64::new(seed | 1),
            steps: AtomicUsize::new(0),
        }
    }

    /// Surroundings for tests: the epoch, a fixed seed, never interrupted.
    pub fn for_tests() -> Context {
        Context::new(0, 1, Arc::new(Uninterrupted))
    }

    /// The position of a variable, for parsing.
    ///
    /// Errors: 17276 as MongoDB's, where there is none.
    pub fn variable(&self, name: &str) -> Result<usize> {
        self.variables
            .iter()
            .position(|(known, _)| known == name)
            .ok_or_else(|| err!(17276, "Use of undefined variable: {name}"))
    }

    /// The same surroundings with other variables, as a sub-pipeline sees them.
    pub fn with_variables(&self, variables: Vec<(String, Option<ValueBuf>)>) -> Context {
        Context {
            now_millis: self.now_millis,
            cluster_time: self.cluster_time,
            variables,
            collation: self.collation.clone(),
            limits: self.limits,
            own_collation: self.own_collation,
            keep_empty_timestamps: self.keep_empty_timestamps,
            defers_constants: self.defers_constants,
            stamps: self.stamps.clone(),
            spills: self.spills.clone(),
            interrupt: self.interrupt.clone(),
            metadata: self.metadata.derived(),
            random: AtomicU64::new(self.random() | 1),
            steps: AtomicUsize::new(0),
        }
    }

    /// The same surroundings with another collation.
    pub fn with_collation(&self, collation: Collation) -> Context {
        Context { collation, ..self.with_variables(self.variables.clone()) }
    }

    /// Counts steps of an evaluation, weighed by what they cost, and now and then asks whether to stop.
    /// All stages of a pipeline count together.
    ///
    /// Errors: what the interrupt says.
    #[inline]
    pub(crate) fn steps(&self, steps: usize) -> Result<()> {
        // Only the thread that runs the operation counts; where two do, a lost count delays the next question.
        let taken = self.steps.load(Relaxed).saturating_add(steps);
        if taken < STEPS_PER_CHECK {
            self.steps.store(taken, Relaxed);
            return Ok(());
        }
        self.steps.store(0, Relaxed);
        self.interrupt.check()
    }

    /// The next random number (xorshift: for `$sample`, `$rand` and the like, not for secrets).
    pub fn random(&self) -> u64 {
        let mut state = self.random.load(Relaxed);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.random.store(state, Relaxed);
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A random number in `[0, 1)`.
    pub fn random_unit(&self) -> f64 {
        (self.random() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Memory for what evaluation computes: freed all at once, usually after each document.
///
/// Strings, arrays and documents made by expressions live here, so that
/// [`Value`](base::bson::Value) stays a small copyable borrow.
#[derive(Default)]
pub struct Arena {
    bump: bumpalo::Bump,
}

/// Steps between two questions whether to stop: calls of operators, or kilobytes made.
const STEPS_PER_CHECK: usize = 128;

/// What an arena keeps for the next document; what is larger goes back, or each stage of a pipeline
/// would keep as much as its largest document took.
const KEPT_BYTES: usize = 1 << 20;

impl Arena {
    /// An empty arena; allocates nothing until used.
    pub fn new() -> Arena {
        Arena::default()
    }

    /// Copies text into the arena.
    pub fn text(&self, text: &str) -> &str {
        self.bump.alloc_str(text)
    }

    /// Copies bytes into the arena.
    pub fn bytes(&self, bytes: &[u8]) -> &[u8] {
        self.bump.alloc_slice_copy(bytes)
    }

    /// Bytes held.
    pub fn allocated(&self) -> usize {
        self.bump.allocated_bytes()
    }

    /// Frees everything at once and keeps one chunk for the next document, unless it is large.
    pub fn reset(&mut self) {
        if self.bump.allocated_bytes() > KEPT_BYTES {
            self.bump = bumpalo::Bump::new();
        } else {
            self.bump.reset();
        }
    }
}

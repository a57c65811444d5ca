//! Environment of parsing and evaluation: variables, time, interruption, memory.
//!
//! An operation has one [`Context`]; a sub-pipeline has a copy with its own variables. An evaluation allocates in an
//! [`Arena`]. A new setting of an operation is a field of [`Context`], also in [`Context::with_variables`].

use crate::{Collation, Limits, Metadata, SpillFolder};
use base::bson::ValueBuf;
use base::{CompatibleWith, Error, Result, err};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

/// Interruption check, called in every loop (maxTimeMS, killOp, shutdown).
pub trait Interrupt: Send + Sync {
    /// Checks whether the operation must stop. Errors: MaxTimeMSExpired, Interrupted, InterruptedAtShutdown.
    fn check(&self) -> Result<()>;

    /// Checks before uninterruptible work. It always reads the clock. Before long work it also yields the thread to
    /// other clients.
    ///
    /// Errors: as [`check`](Self::check).
    fn check_now(&self, _may_take_long: bool) -> Result<()> {
        self.check()
    }

    /// Suspends the statement until the returned function returns true. Returns the error that ends the statement;
    /// `None` if the statement cannot continue later, so that it must hold its thread.
    fn suspend_until(&self, _ready: &mut dyn FnMut() -> Option<Ready>) -> Option<Error> {
        None
    }

    /// Suspends the statement for this delay before its next commit. Returns `Ok` if it has just waited; `None` if it
    /// must hold its thread.
    ///
    /// Errors: the error that ends the statement.
    fn suspend_for(&self, _delay: Duration) -> Option<Result<()>> {
        None
    }

    /// Notes that the statement has changed something.
    fn note_change(&self) {}
}

/// Returns true if a wait is over. Otherwise registers the waker.
pub type Ready = Box<dyn FnMut(&Waker) -> bool + Send>;

/// The owner of the threads that help an operation.
pub trait Helpers: Send + Sync {
    /// Returns true if a processor is idle.
    fn has_idle(&self) -> bool;

    /// Returns true if the processors are too busy for the threads that help now.
    fn is_busy(&self) -> bool;

    /// Runs work on another thread. Returns false, and runs nothing, if no processor is idle.
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> bool;
}

/// Never interrupts; for tests and background work.
pub struct Uninterrupted;

impl Interrupt for Uninterrupted {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Source of unique timestamps, which replace the empty timestamps of stored documents, and of the present time.
#[derive(Default)]
pub struct Timestamps {
    latest: AtomicU64,
    /// Returns milliseconds since 1970.
    clock: Option<Box<dyn Fn() -> i64 + Send + Sync>>,
}

impl Timestamps {
    /// Builds a source with a clock for `$currentDate`.
    pub fn with_clock(clock: impl Fn() -> i64 + Send + Sync + 'static) -> Timestamps {
        Timestamps { latest: AtomicU64::default(), clock: Some(Box::new(clock)) }
    }

    /// Returns the next time, at least `earliest`.
    pub fn next(&self, earliest: u64) -> u64 {
        let after = |latest: u64| latest.saturating_add(1).max(earliest);
        let latest = self.latest.fetch_update(Relaxed, Relaxed, |latest| Some(after(latest)));
        after(latest.unwrap_or_else(|latest| latest))
    }
}

/// The environment of one operation, shared by parsing and evaluation. It is shared by reference, also between threads,
/// because an open cursor may move between them.
pub struct Context {
    /// `$$NOW` in milliseconds since 1970, fixed for the whole operation.
    pub now_millis: i64,
    /// `$$CLUSTER_TIME`, if the topology has one.
    pub cluster_time: Option<u64>,
    /// The variables of the command's `let` (or a `$lookup`'s), by name. Expressions store a variable's position while
    /// parsing. Values may therefore change between evaluations; names and order may not. `None` is a missing value.
    pub variables: Vec<(String, Option<ValueBuf>)>,
    /// The collation of string comparisons: the command's, or the collection's.
    pub collation: Collation,
    /// Memory limits of blocking work.
    pub limits: Limits,
    /// The MongoDB version whose rules hold.
    pub compatible_with: CompatibleWith,
    /// `$$USER_ROLES`: the roles of the user as documents. `None` without access control is an empty array.
    pub user_roles: Option<Arc<ValueBuf>>,
    /// Whether the command specified the collation. Otherwise it is the collection's.
    pub explicit_collation: bool,
    /// Whether empty top-level timestamps are stored unchanged, as for oplog entries. Otherwise the time replaces them.
    pub keep_empty_timestamps: bool,
    /// Whether errors of constant expressions are deferred until a document exists.
    pub defers_constants: bool,
    /// Source of timestamps that replace empty timestamps.
    pub timestamps: Arc<Timestamps>,
    /// Directory of temporary files.
    pub spills: SpillFolder,
    /// Interruption check of long loops.
    pub interrupt: Arc<dyn Interrupt>,
    /// The owner of threads that may help the operation.
    pub helpers: Option<Arc<dyn Helpers>>,
    /// The metadata that the operation requires, for `$meta`.
    pub metadata: Metadata,
    random: AtomicU64,
    /// Steps since the last interruption check in [`steps`](Context::steps).
    steps: AtomicUsize,
}

impl Context {
    /// Builds an environment without variables. `seed` starts the operation's random numbers.
    pub fn new(now_millis: i64, seed: u64, interrupt: Arc<dyn Interrupt>) -> Context {
        Context::sharing(now_millis, seed, interrupt, Arc::default(), SpillFolder::default())
    }

    /// Builds an environment with the shared state of a database: the source of timestamps, and the directory of
    /// temporary files.
    #[inline]
    pub fn sharing(
        now_millis: i64,
        seed: u64,
        interrupt: Arc<dyn Interrupt>,
        timestamps: Arc<Timestamps>,
        spills: SpillFolder,
    ) -> Context {
        Context {
            now_millis,
            cluster_time: None,
            variables: Vec::new(),
            collation: Collation::SIMPLE,
            limits: Limits::default(),
            compatible_with: CompatibleWith::default(),
            user_roles: None,
            explicit_collation: false,
            keep_empty_timestamps: false,
            defers_constants: false,
            timestamps,
            spills,
            interrupt,
            helpers: None,
            metadata: Metadata::default(),
            random: AtomicU64::new(seed | 1),
            steps: AtomicUsize::new(0),
        }
    }

    /// Builds an environment for tests: the epoch, a fixed seed, no interruption.
    pub fn for_tests() -> Context {
        Context::new(0, 1, Arc::new(Uninterrupted))
    }

    /// Returns the position of a variable, for parsing.
    ///
    /// Errors: 17276 as in MongoDB for an unknown variable.
    pub fn variable(&self, name: &str) -> Result<usize> {
        self.variables
            .iter()
            .position(|(known, _)| known == name)
            .ok_or_else(|| err!(17276, "Use of undefined variable: {name}"))
    }

    /// Returns the present time in milliseconds since 1970, which may be later than `$$NOW`.
    pub fn present_millis(&self) -> i64 {
        self.timestamps.clock.as_ref().map_or(self.now_millis, |clock| clock())
    }

    /// Copies the environment with other variables, for a sub-pipeline.
    pub fn with_variables(&self, variables: Vec<(String, Option<ValueBuf>)>) -> Context {
        Context {
            now_millis: self.now_millis,
            cluster_time: self.cluster_time,
            variables,
            collation: self.collation.clone(),
            limits: self.limits,
            compatible_with: self.compatible_with,
            user_roles: self.user_roles.clone(),
            explicit_collation: self.explicit_collation,
            keep_empty_timestamps: self.keep_empty_timestamps,
            defers_constants: self.defers_constants,
            timestamps: self.timestamps.clone(),
            spills: self.spills.clone(),
            interrupt: self.interrupt.clone(),
            helpers: self.helpers.clone(),
            metadata: self.metadata.clone(),
            random: AtomicU64::new(self.random() | 1),
            steps: AtomicUsize::new(0),
        }
    }

    /// Copies the environment with the rules of another version.
    pub fn with_version(&self, compatible_with: CompatibleWith) -> Context {
        Context { compatible_with, ..self.with_variables(self.variables.clone()) }
    }

    /// Copies the environment with another collation.
    pub fn with_collation(&self, collation: Collation) -> Context {
        Context { collation, ..self.with_variables(self.variables.clone()) }
    }

    /// Copies the environment for a parser that defers errors of constant expressions.
    pub fn deferring_constants(&self) -> Context {
        Context { defers_constants: true, ..self.with_variables(self.variables.clone()) }
    }

    /// Copies the environment for another thread, whose interruption check is `interrupt`.
    pub fn for_helper(&self, interrupt: &Arc<dyn Interrupt>) -> Context {
        Context { interrupt: interrupt.clone(), helpers: None, ..self.with_variables(self.variables.clone()) }
    }

    /// Counts weighted steps of an evaluation and checks for interruption at intervals. All stages of a pipeline share
    /// the counter.
    ///
    /// Errors: interruption.
    #[inline]
    pub fn steps(&self, steps: usize) -> Result<()> {
        // Only the operation's thread counts. A count lost between two threads only delays the next check.
        let taken = self.steps.load(Relaxed).saturating_add(steps);
        if taken < STEPS_PER_CHECK {
            self.steps.store(taken, Relaxed);
            return Ok(());
        }
        self.steps.store(0, Relaxed);
        self.interrupt.check()
    }

    /// Returns the next random number (xorshift: for `$sample`, `$rand` and so on, not for secrets).
    pub fn random(&self) -> u64 {
        let mut state = self.random.load(Relaxed);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.random.store(state, Relaxed);
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a random number in `[0, 1)`.
    pub fn random_unit(&self) -> f64 {
        (self.random() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Memory for computed values, freed at once, usually after each document.
///
/// Strings, arrays and documents of expressions live here, so [`Value`](base::bson::Value) stays a small copyable
/// borrow.
#[derive(Default)]
pub struct Arena {
    bump: bumpalo::Bump,
}

/// Steps between two interruption checks: calls of operators, or kilobytes of results.
const STEPS_PER_CHECK: usize = 128;

/// Bytes that an arena retains for the next document. A larger chunk is freed; otherwise each stage of a pipeline would
/// retain the memory of its largest document.
const RETAINED_BYTES: usize = 1 << 20;

impl Arena {
    /// Creates an empty arena, which allocates nothing until used.
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

    /// Allocated bytes.
    pub fn allocated(&self) -> usize {
        self.bump.allocated_bytes()
    }

    /// Frees all values and retains one chunk for the next document, unless it is large.
    pub fn reset(&mut self) {
        if self.bump.allocated_bytes() > RETAINED_BYTES {
            self.bump = bumpalo::Bump::new();
        } else {
            self.bump.reset();
        }
    }
}

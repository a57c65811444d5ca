//! Parallel execution of a blocking stage: idle processors take over parts of its input.
//!
//! The stage begins on the thread of its operation. While a processor is idle, the running part of the input is split,
//! and another thread folds the later half into a state of its own. A thread without work asks for a part in the same
//! way, so threads of different speed end at about the same time. At the end the operation's thread joins the states in
//! the order of the parts, which is the order of the rows.
//!
//! A large scan returns its rows in sections, between which a part may be split ([`Stage::begin_section`],
//! [`Stage::split`]). The stages between it and the blocking stage pass both calls on. Without an owner of threads
//! ([`Context::helpers`]) no scan has sections, so a simulation runs in one thread.

use super::{Stage, Stream};
use crate::{Context, Helpers, Interrupt};
use base::{Result, bail, err};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The later part of a stream's rows, for another thread.
pub struct Split<S = Stream> {
    /// The rows.
    pub rows: S,
    /// Interruption check of the thread that reads the rows.
    pub interrupt: Arc<dyn Interrupt>,
    /// Moves the counts of the part to the operation. Called on the operation's thread when the part has been read.
    pub finish: Box<dyn FnOnce() + Send>,
}

impl<S> Split<S> {
    /// Passes the rows through another stage.
    pub fn through<T>(self, stage: impl FnOnce(S, &Arc<dyn Interrupt>) -> T) -> Split<T> {
        let rows = stage(self.rows, &self.interrupt);
        Split { rows, interrupt: self.interrupt, finish: self.finish }
    }
}

/// The state of a blocking stage over a part of its input.
pub(super) trait Fold: Send + Sized + 'static {
    /// Adds the rows up to the end of the section.
    fn add(&mut self, section: &mut dyn Stage) -> Result<()>;

    /// Returns true if a later state can be joined at a low cost, as far as the rows so far tell.
    fn is_worth_splitting(&self) -> bool;

    /// Ends a part, on the thread that has added its rows.
    fn end_part(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the empty state of another part, for another thread.
    fn another(&mut self, interrupt: &Arc<dyn Interrupt>) -> Self;

    /// Adds the state of the following part. Both parts have ended.
    fn join(&mut self, later: Self) -> Result<()>;
}

/// Folds the whole input, with the help of idle processors.
///
/// Its frame is small, because a pipeline has one for each of its blocking stages.
pub(super) fn fold<F: Fold>(state: &mut F, mut input: Stream, context: &Context) -> Result<()> {
    while input.begin_section() {
        state.add(&mut *input)?;
        let is_split =
            context.helpers.as_ref().is_some_and(|helpers| helpers.has_idle()) && state.is_worth_splitting();
        if is_split && let Some(first) = input.split() {
            return fold_parts(state, input, first, context);
        }
    }
    state.add(&mut *input)
}

/// Folds the rest of a split input. Its frame is not a part of the small frame of [`fold`].
#[inline(never)]
fn fold_parts<F: Fold>(state: &mut F, input: Stream, first: Split, context: &Context) -> Result<()> {
    let Some(helpers) = &context.helpers else { bail!(InternalError, "a split input has no threads") };
    let work = Arc::new(Work::new(helpers.clone()));
    let own = Part { number: 0, progress: Progress::Running, finish: Box::new(|| ()) };
    work.parts.lock().push(own);
    work.give(0, state, first);
    work.start_thread();
    let empty = state.another(&context.interrupt);
    work.run_part(0, input, std::mem::replace(state, empty), false);
    work.run_parts(false);
    *state = work.joined()?;
    Ok(())
}

/// A blocking stage that several threads run.
struct Work<F> {
    /// The parts in the order of their rows.
    parts: Mutex<Vec<Part<F>>>,
    /// Signals changes of `parts`.
    changed: Condvar,
    /// Number of threads that wait for a part.
    idle: AtomicUsize,
    /// Number of parts that wait for a thread.
    waiting: AtomicUsize,
    helpers: Arc<dyn Helpers>,
}

struct Part<F> {
    number: usize,
    progress: Progress<F>,
    finish: Box<dyn FnOnce() + Send>,
}

/// Progress of a part.
enum Progress<F> {
    Waiting(Stream, F),
    Running,
    Ended(Result<F>),
}

impl<F: Fold> Work<F> {
    fn new(helpers: Arc<dyn Helpers>) -> Work<F> {
        let (idle, waiting) = Default::default();
        Work { parts: Mutex::default(), changed: Condvar::new(), idle, waiting, helpers }
    }

    /// Adds the part behind a running one.
    fn give(&self, number: usize, state: &mut F, split: Split) {
        let state = state.another(&split.interrupt);
        let mut parts = self.parts.lock();
        let at = parts.iter().position(|part| part.number == number).map_or(parts.len(), |at| at + 1);
        let progress = Progress::Waiting(split.rows, state);
        let part = Part { number: parts.len(), progress, finish: split.finish };
        parts.insert(at, part);
        drop(parts);
        self.waiting.fetch_add(1, Relaxed);
        self.changed.notify_all();
    }

    /// Starts a thread if parts wait and a processor is idle.
    fn start_thread(self: &Arc<Self>) {
        if self.waiting.load(Relaxed) > 0 && self.idle.load(Relaxed) == 0 && self.helpers.has_idle() {
            let work = self.clone();
            // Without a thread the part waits for this one.
            self.helpers.run(Box::new(move || work.run_parts(true)));
        }
    }

    /// Runs parts until all have ended. A helper leaves while the processors are busy.
    fn run_parts(self: &Arc<Self>, helps: bool) {
        let mut parts = self.parts.lock();
        while !(helps && self.helpers.is_busy()) {
            let next = parts.iter_mut().find(|part| matches!(part.progress, Progress::Waiting(..)));
            let taken =
                next.map(|part| (part.number, std::mem::replace(&mut part.progress, Progress::Running)));
            if let Some((number, Progress::Waiting(input, state))) = taken {
                self.waiting.fetch_sub(1, Relaxed);
                MutexGuard::unlocked(&mut parts, || self.run_part(number, input, state, helps));
            } else if parts.iter().any(|part| matches!(part.progress, Progress::Running)) {
                self.idle.fetch_add(1, Relaxed);
                self.changed.wait(&mut parts);
                self.idle.fetch_sub(1, Relaxed);
            } else {
                return;
            }
        }
    }

    /// Runs a part, and gives later halves of it away while processors are idle. A helper that leaves gives it back.
    fn run_part(self: &Arc<Self>, number: usize, mut input: Stream, mut state: F, helps: bool) {
        let panics = EndOnPanic { work: self, number };
        let progress = loop {
            let is_last = !input.begin_section();
            if let Err(error) = state.add(&mut *input) {
                break Progress::Ended(Err(error));
            }
            if is_last {
                break Progress::Ended(state.end_part().map(|()| state));
            }
            if helps && self.helpers.is_busy() {
                self.waiting.fetch_add(1, Relaxed);
                break Progress::Waiting(input, state);
            }
            let is_requested = self.idle.load(Relaxed) > 0 || self.helpers.has_idle();
            if is_requested
                && self.waiting.load(Relaxed) == 0
                && state.is_worth_splitting()
                && let Some(split) = input.split()
            {
                self.give(number, &mut state, split);
            }
            self.start_thread();
        };
        std::mem::forget(panics);
        self.set(number, progress);
    }

    fn set(&self, number: usize, progress: Progress<F>) {
        if let Some(part) = self.parts.lock().iter_mut().find(|part| part.number == number) {
            part.progress = progress;
        }
        self.changed.notify_all();
    }

    /// Joins the states of all parts, which have ended.
    ///
    /// Errors: the error of the first part that failed.
    fn joined(&self) -> Result<F> {
        let mut joined: Option<F> = None;
        for part in std::mem::take(&mut *self.parts.lock()) {
            (part.finish)();
            let Progress::Ended(state) = part.progress else { continue };
            match &mut joined {
                Some(joined) => joined.join(state?)?,
                None => joined = Some(state?),
            }
        }
        joined.ok_or_else(|| err!(InternalError, "a stage lost its input"))
    }
}

/// Ends a part whose thread panics, so that the others do not wait for it.
struct EndOnPanic<'a, F: Fold> {
    work: &'a Work<F>,
    number: usize,
}

impl<F: Fold> Drop for EndOnPanic<'_, F> {
    fn drop(&mut self) {
        let panicked = Err(err!(InternalError, "a thread of the operation panicked"));
        self.work.set(self.number, Progress::Ended(panicked));
    }
}

#[cfg(test)]
#[path = "parallel_tests.rs"]
mod tests;

//! Histories on one thread. A seed alone determines the order of the sessions' operations, and the
//! operations within a statement.
//!
//! Transactions interleave statement by statement. Other sessions' statements may run before a
//! statement commits, and at the beginning of long work. No session can wait: a statement that
//! would wait fails, and the checker verifies that it had a reason to wait.

use super::check::check;
use super::client::{Mix, Session, Shared};
use super::history::History;
use super::random::Random;
use super::recorder::{Entry, Recorder};
use super::replay::Replay;
use super::statements::Ddl;
use database::{Database, ManualClock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use storage::Engine;
use storage::store::Local;

/// Maximum nesting of statements.
const DEPTH_MAX: usize = 3;

/// The sessions of this thread's history.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    sessions: Vec<Session>,
    random: Random,
    depth: Cell<usize>,
    mix: Mix,
}

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Runs other sessions' statements.
pub(crate) fn pause() {
    if let Some(world) = WORLD.with_borrow(Clone::clone) {
        world.interrupt(25, 3);
    }
}

/// Long work, such as an index build: other sessions run before it.
fn long_work(work: &mut dyn FnMut()) {
    if let Some(world) = WORLD.with_borrow(Clone::clone) {
        world.interrupt(100, 8);
    }
    work();
}

impl World {
    /// Opens a database in an engine whose state comes from these batches, or two databases on one
    /// store, and starts sessions.
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        entries: Vec<Entry>,
        two: bool,
        seed: u64,
        mix: Mix,
    ) -> Rc<World> {
        let recorder = Arc::new(Recorder::new(engine, entries, pause));
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let databases = match two {
            false => vec![Database::open(recorder.clone(), clock, seed).unwrap()],
            true => {
                let store = Arc::new(Local::new(recorder.clone(), None).unwrap());
                let open = |number: u64| {
                    let store = Arc::new(storage::testing::Shared::new(&store, Duration::ZERO));
                    Database::open_on(store, clock.clone(), seed + number).unwrap()
                };
                (0..2).map(open).collect()
            }
        };
        // On a single thread, no other session could end a wait.
        databases.iter().for_each(|database| database.set_blocking_hook(|_| {}));
        let shared = Shared::new(databases, History::new(recorder), long_work);
        let random = Random::new(seed);
        let count = 2 + random.below(4);
        let sessions =
            (0..count).map(|number| Session::new(&shared, seed.wrapping_mul(31) + number)).collect();
        Rc::new(World { shared, sessions, random, depth: Cell::new(0), mix })
    }

    /// Creates the collections.
    pub(crate) fn prepare(&self) {
        self.sessions[0].ddl(&Ddl::Ensure, 0);
        self.sessions[0].ddl(&Ddl::Ensure, 1);
    }

    /// Runs this number of steps.
    pub(crate) fn run(self: &Rc<Self>, steps: u64) {
        WORLD.set(Some(self.clone()));
        (0..steps).for_each(|_| self.step());
        WORLD.set(None);
    }

    /// Ends all operations. Index builds that could not wait for a transaction's end are removed
    /// now.
    pub(crate) fn finish(&self) {
        self.sessions.iter().for_each(Session::finish);
        for (number, namespace) in self.shared.namespaces.iter().enumerate() {
            if self.shared.databases[0].collection(namespace).is_some() {
                self.sessions[0].ddl(&Ddl::DropIndex, number);
                self.sessions[0].ddl(&Ddl::Build { unique: false }, number);
            }
        }
    }

    pub(crate) fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    fn step(&self) {
        if self.random.percent(self.mix.checkpoints) {
            let _ = self.shared.databases[0].checkpoint();
        }
        let session = self.random.pick(&self.sessions);
        if !session.busy.replace(true) {
            session.step(self.mix);
            session.busy.set(false);
        }
    }

    /// Runs up to `most` steps in `percent` percent of the calls.
    fn interrupt(&self, percent: u64, most: u64) {
        if self.depth.get() < DEPTH_MAX && self.random.percent(percent) {
            self.depth.set(self.depth.get() + 1);
            (0..1 + self.random.below(most)).for_each(|_| self.step());
            self.depth.set(self.depth.get() - 1);
        }
    }

    /// Checks everything. Returns violations as errors.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        self.check().and_then(|()| self.validate())
    }

    /// Checks the stored data.
    pub(crate) fn validate(&self) -> Result<(), String> {
        self.shared.validate()
    }

    /// Checks the commits and the results.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (entries, events) = (self.shared.history.recorder.committed(), self.shared.history.events());
        Replay::of(entries).and_then(|replay| {
            if super::shown() {
                replay.show();
                events.iter().for_each(|event| eprintln!("{event:?}"));
            }
            check(&replay, self.shared.history.before, &events)
        })
    }
}

/// Runs a history and checks it. Returns violations as errors.
pub(crate) fn history(engine: Arc<dyn Engine>, two: bool, seed: u64) -> Result<(), String> {
    let random = Random::new(!seed);
    let mix = Mix::draw(&random);
    let world = World::new(engine, Vec::new(), two, seed, mix);
    world.prepare();
    world.run(20 + random.below(40));
    world.finish();
    world.verdict()
}

//! The state of a simulation, and what all of its parts use.
//!
//! Clients interleave at four kinds of points: between the polls of a request, before a commit, where a statement waits
//! for a transaction, and during slow syncs. At all but the first kind `commits.rs` runs other clients inside of the
//! waiting request. The innermost request cannot wait for an outer one, so it fails instead.

use crate::Script;
use crate::action::{FIRST_USER, Mix, USERS};
use crate::client::Client;
use crate::model::Model;
use crate::process::{Process, Starter, verify};
use crate::trace::Trace;
use crate::watcher::Watcher;
use base::bson::DocumentBuf;
use base::random::Random;
use database::time;
use server::Server;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::testing::FaultyFiles;
use storage::{DiskEngine, Durability};

/// Time of the clock at the start.
pub(crate) const START_MILLIS: i64 = 1_700_000_000_000;

thread_local! {
    pub(crate) static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Returns the world of this thread's run.
pub(crate) fn world() -> Option<Rc<World>> {
    WORLD.with_borrow(Clone::clone)
}

/// Adds an event to the trace.
macro_rules! event {
    ($world:expr, $($text:tt)*) => { $world.trace.borrow_mut().event(format_args!($($text)*), None) };
}
pub(crate) use event;

pub(crate) struct World {
    pub(crate) script: Script,
    /// Decides the schedule. Each operation has its own generator: a dropped operation does not change later ones.
    pub(crate) random: Random,
    pub(crate) starter: Starter,
    pub(crate) mix: Mix,
    pub(crate) start: Instant,
    pub(crate) files: RefCell<FaultyFiles>,
    pub(crate) process: RefCell<Option<Process>>,
    /// Files with the directory of backups, and the number of restores.
    pub(crate) backup: RefCell<Option<(FaultyFiles, u64)>>,
    pub(crate) incarnation: Cell<u64>,
    /// True after the disk has refused a write, until the next restart.
    pub(crate) is_faulty: Cell<bool>,
    /// Difference of the wall clock to the simulated time, in milliseconds.
    pub(crate) shift: Cell<i64>,
    /// True while the background work runs.
    pub(crate) is_ticking: Cell<bool>,
    pub(crate) clients: Vec<RefCell<Client>>,
    pub(crate) watcher: RefCell<Watcher>,
    /// Number of waits of the running request.
    pub(crate) tries: Cell<u64>,
    /// Client whose request is running.
    pub(crate) current: Cell<Option<usize>>,
    pub(crate) depth: Cell<usize>,
    /// True while no new requests begin.
    pub(crate) is_finishing: Cell<bool>,
    pub(crate) model: RefCell<Model>,
    pub(crate) operations: Cell<u64>,
    pub(crate) trace: RefCell<Trace>,
    /// The first violation.
    pub(crate) violation: RefCell<Option<String>>,
}

impl World {
    /// Compares all data of the running process with the model.
    pub(crate) fn verify_present(&self) -> Result<(), String> {
        let process = self.process.borrow();
        verify(process.as_ref().ok_or("no process")?, &self.model.borrow())
    }

    /// Returns the simulated time since the start. A slow sync moves it too.
    pub(crate) fn now(&self) -> Duration {
        time::now().saturating_duration_since(self.start)
    }

    /// Returns the time of the wall clock.
    pub(crate) fn now_millis(&self) -> i64 {
        START_MILLIS + self.now().as_millis() as i64 + self.shift.get()
    }

    /// Returns the user that all clients log in as, the one that the localhost exception created.
    pub(crate) fn first_user(&self) -> Option<i64> {
        let model = self.model.borrow();
        model.versions.last()?.state.get(USERS)?.keys().copied().find(|user| *user >= FIRST_USER)
    }

    pub(crate) fn mark(&self, name: &'static str) {
        self.trace.borrow_mut().mark(name);
    }

    pub(crate) fn fail(&self, violation: String) {
        self.violation.borrow_mut().get_or_insert(violation);
    }

    /// Errors: the first violation so far.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.violation.borrow().clone().map_or(Ok(()), Err)
    }

    pub(crate) fn engine(&self) -> Option<Arc<DiskEngine>> {
        self.process.borrow().as_ref().map(|process| process.engine.clone())
    }

    pub(crate) fn server(&self) -> Option<Arc<Server>> {
        self.process.borrow().as_ref().map(|process| process.server.clone())
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.files.borrow().has_stopped()
    }

    /// Runs a command of the simulation itself.
    pub(crate) fn command(&self, text: &str) -> Result<DocumentBuf, String> {
        let process = self.process.borrow();
        process.as_ref().ok_or("no process")?.command(text)
    }

    pub(crate) fn durability(&self) -> Durability {
        self.starter.durability
    }
}

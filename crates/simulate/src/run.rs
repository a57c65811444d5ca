//! A run: one thread runs the clients, the server, time and the machine in an order that the seed decides.

use crate::Script;
use crate::action::{CAPPED_MAX, Mix};
use crate::client::Client;
use crate::commits::{meanwhile, observe, wait};
use crate::machine::JUMP_MILLIS;
use crate::model::Model;
use crate::process::Starter;
use crate::requests::WAIT_MAX;
use crate::trace::{Report, Trace};
use crate::watcher::Watcher;
use crate::world::{START_MILLIS, WORLD, World, event};
use base::random::Random;
use database::{ManualClock, time};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use storage::testing::{FaultyFiles, Loss};
use storage::{Durability, Journaling};
use wire::secret;

/// Runs a script. Errors: the first violation.
pub(crate) fn run(script: &Script) -> Result<Report, String> {
    // Later than any time that the process has read from the system's clock.
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(|| Instant::now() + Duration::from_secs(3600));
    let random = Random::new(Random::new(script.seed).draw());
    let durability = if random.below(2) == 0 { Durability::Journaled } else { Durability::Relaxed };
    let clients = 2 + random.index(4);
    let files = FaultyFiles::new();
    files.set_random(script.seed);
    let world = Rc::new(World {
        script: script.clone(),
        mix: Mix::new(&random, &Random::new(script.seed.rotate_left(24))),
        backup: RefCell::default(),
        starter: Starter {
            durability,
            // A small cache evicts pages.
            cache_bytes: if random.below(3) == 0 { 64 << 10 } else { 16 << 20 },
            clock: Arc::new(ManualClock::new(START_MILLIS)),
            // Drawn apart, so that the other seeds stay as they are.
            has_logins: script.has_logins && Random::new(script.seed.rotate_left(16)).below(8) == 0,
            observe,
            wait,
        },
        random,
        start,
        files: RefCell::new(files),
        process: RefCell::default(),
        incarnation: Cell::new(0),
        is_faulty: Cell::new(false),
        shift: Cell::new(0),
        is_ticking: Cell::new(false),
        watcher: RefCell::default(),
        tries: Cell::new(0),
        clients: (0..clients).map(|number| RefCell::new(Client { number, ..Client::default() })).collect(),
        current: Cell::new(None),
        depth: Cell::new(0),
        is_finishing: Cell::new(false),
        model: RefCell::default(),
        operations: Cell::new(0),
        trace: RefCell::new(Trace { is_shown: script.is_shown, ..Trace::default() }),
        violation: RefCell::default(),
    });
    let _guard = Guard;
    WORLD.set(Some(world.clone()));
    storage::coverage::take();
    time::simulate(Some(start));
    time::simulate_meanwhile(Some(meanwhile));
    secret::simulate(Some(script.seed));
    world.run().map_err(|violation| format!("after {:?}: {violation}", world.now()))?;
    let code = storage::coverage::take();
    Ok(Report { code, ..world.trace.borrow().report.clone() })
}

/// Returns the thread to its own time, even after a panic.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(world) = WORLD.take() {
            // A process that is dropped here must not write: its files are gone.
            let _ = world.files.borrow().restart(Loss::Nothing);
            world
                .clients
                .iter()
                .for_each(|client| _ = client.try_borrow_mut().map(|mut c| c.connection = None));
            _ = world.watcher.try_borrow_mut().map(|mut watcher| watcher.lose());
            _ = world.process.try_borrow_mut().map(|mut process| process.take());
        }
        time::simulate(None);
        time::simulate_meanwhile(None);
        secret::simulate(None);
    }
}

impl World {
    fn run(&self) -> Result<(), String> {
        self.open()?;
        self.prepare()?;
        for _ in 0..self.script.steps {
            self.step();
            self.crash_if_stopped()?;
            self.check()?;
        }
        self.is_finishing.set(true);
        self.files.borrow().heal();
        for _ in 0..4 * WAIT_MAX {
            let is_idle = self.clients.iter().all(|client| {
                let client = client.borrow();
                client.request.is_none() && client.transaction.is_none()
            });
            if is_idle && self.watcher.borrow_mut().has_all(&self.model.borrow()) {
                break;
            }
            self.step();
            self.crash_if_stopped()?;
            self.check()?;
        }
        if let Some(client) = self.clients.iter().find(|client| client.borrow().request.is_some()) {
            return Err(format!("a request does not end: {:?}", client.borrow().request));
        }
        if !self.watcher.borrow_mut().has_all(&self.model.borrow()) {
            return Err("the change stream lacks events".to_string());
        }
        self.expire_all()?;
        self.verify_present()?;
        self.crash(Loss::Everything)
    }

    /// Lets all documents of `t` expire. Errors: some do not.
    fn expire_all(&self) -> Result<(), String> {
        if let Some(engine) = self.engine() {
            engine.checkpoint().map_err(|error| format!("the last checkpoint: {error}"))?;
        }
        self.shift.set(self.shift.get() + 4 * JUMP_MILLIS as i64);
        // Sessions end too. Their records are removed every five minutes.
        for _ in 0..7 {
            self.move_to(self.now() + Duration::from_secs(60));
        }
        self.check()?;
        match self.model.borrow().expiring() {
            ids if ids.is_empty() => Ok(()),
            ids => Err(format!("the documents {ids:?} do not expire")),
        }
    }

    /// Creates the collections, and the first version of the model.
    fn prepare(&self) -> Result<(), String> {
        let process = self.process.borrow();
        let process = process.as_ref().ok_or("no process")?;
        let expiring = "{key: {at: 1}, name: 'at', expireAfterSeconds: 20}";
        process.command("{create: 'a', $db: 'test'}")?;
        process.command(
            "{createIndexes: 'a', indexes: [{key: {u: 1}, name: 'u', unique: true}], $db: 'test'}",
        )?;
        process.command("{createIndexes: 'p', indexes: [{key: {u: 1}, name: 'u'}], $db: 'test'}")?;
        process.command("{collMod: 'p', index: {name: 'u', prepareUnique: true}, $db: 'test'}")?;
        process.command(&format!("{{createIndexes: 't', indexes: [{expiring}], $db: 'test'}}"))?;
        process.command("{create: 's', $db: 'slate'}")?;
        process
            .command(&format!("{{create: 'k', capped: true, size: 4096, max: {CAPPED_MAX}, $db: 'test'}}"))?;
        process.command("{create: 'c', $db: 'test', writeConcern: {w: 1, j: true}}")?;
        let state = ["a", "c", "k", "p", "s", "t"]
            .map(|collection| (collection, Rc::default()))
            .into_iter()
            .collect();
        *self.model.borrow_mut() = Model::new(process.engine.durable().0, state);
        let opened = process.command(&Watcher::first_request())?;
        self.watcher.borrow_mut().take(opened.view(), &mut self.model.borrow_mut()).map(drop)
    }

    /// One step of the machine.
    fn step(&self) {
        if self.random.below(3) == 0 {
            self.pass_time();
        }
        let (files, Some(engine)) = (self.files.borrow().clone(), self.engine()) else { return };
        match self.random.below(400) {
            0..=39 => engine.step_flush(false),
            40..=47 => {
                self.mark("checkpoint step");
                _ = engine.step_checkpoint();
            }
            48..=51 => {
                self.mark("checkpoint");
                _ = engine.checkpoint();
            }
            52..=54 => files.set_free_bytes(None),
            55 => files.slow_syncs(Duration::ZERO),
            // No faults at the end.
            52..80 if self.is_finishing.get() => {}
            56..=57 => {
                event!(self, "the machine stops");
                files.stop();
            }
            58..=59 => files.stop_at_write(files.counts().0 + 1 + self.random.below(20)),
            60..=61 => files.stop_at_sync(files.counts().1 + 1 + self.random.below(6)),
            62 => {
                self.mark("full disks");
                event!(self, "the disk becomes full");
                self.is_faulty.set(true);
                files.set_free_bytes(Some(self.random.below(20_000)));
            }
            63 => {
                self.mark("failing syncs");
                event!(self, "the next sync fails");
                self.is_faulty.set(true);
                files.fail_syncs(1);
            }
            64 => {
                self.mark("slow syncs");
                files.slow_syncs(Duration::from_millis(self.random.below(500)));
            }
            65 => {
                self.mark("clock jumps");
                self.shift.set(self.random.below(2 * JUMP_MILLIS) as i64 - JUMP_MILLIS as i64);
                event!(self, "the clock is shifted by {} ms", self.shift.get());
            }
            66 if !self.is_faulty.get() => {
                if let Err(violation) = self.back_up(false)
                    && !self.has_stopped()
                {
                    self.fail(violation);
                }
            }
            67 if !self.is_faulty.get() && !self.is_finishing.get() => self.lock_writes(),
            68..=69 if self.starter.has_logins => self.check_guest(),
            _ => self.step_client(self.random.index(self.clients.len() + 1)),
        }
    }
}

//! The scheduler: one thread runs the clients, the server, time and the machine in an order that the seed decides.
//!
//! Clients interleave at four kinds of points: between the polls of a request, before a commit, where a statement waits
//! for a transaction, and during slow syncs. At all but the first kind the hooks of this file run other clients inside
//! of the waiting request. The innermost request cannot wait for an outer one, so it fails instead.

use crate::Script;
use crate::action::{Action, Outcome, cursor, failure};
use crate::check::{is_refused, verify};
use crate::client::{Client, Step};
use crate::model::Model;
use crate::trace::{Report, Trace};
use crate::watcher::Watcher;
use base::bson::{DocumentBuf, Value, extended_json};
use base::random::Random;
use database::{Database, ManualClock, time};
use server::{Advance, Server, Settings, SimulatedBackground, SimulatedConnection};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use storage::store::LogOptions;
use storage::testing::{FaultyFiles, Loss};
use storage::{
    BackupDirectory, Batch, DiskEngine, DiskOptions, Durability, Engine, Journaling, Op, Position, Restore,
};

/// Maximum nesting of requests.
const DEPTH_MAX: usize = 3;
/// Number of steps after which a waiting request counts as lost.
const WAIT_MAX: u64 = 2000;
/// Time of the clock at the start.
const START_MILLIS: i64 = 1_700_000_000_000;

/// Greatest difference of the wall clock. Sessions must not time out after a jump.
const JUMP_MILLIS: u64 = 600_000;
/// Number of waits of one request after which it counts as endless.
const TRIES_MAX: u64 = 1000;

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Returns the world of this thread's run.
fn world() -> Option<Rc<World>> {
    WORLD.with_borrow(Clone::clone)
}

/// A server process.
pub(crate) struct Process {
    engine: Arc<DiskEngine>,
    server: Arc<Server>,
    background: SimulatedBackground,
}

pub(crate) struct World {
    script: Script,
    /// Decides the schedule. Each operation has its own generator: a dropped operation does not change later ones.
    random: Random,
    durability: Durability,
    clock: Arc<ManualClock>,
    start: Instant,
    files: RefCell<FaultyFiles>,
    process: RefCell<Option<Process>>,
    pub(crate) incarnation: Cell<u64>,
    /// True after the disk has refused a write, until the next restart.
    pub(crate) is_faulty: Cell<bool>,
    /// Difference of the wall clock to the simulated time, in milliseconds.
    shift: Cell<i64>,
    /// True while the background work runs.
    is_ticking: Cell<bool>,
    pub(crate) clients: Vec<RefCell<Client>>,
    watcher: RefCell<Watcher>,
    /// Number of waits of the running request.
    tries: Cell<u64>,
    /// Client whose request is running.
    current: Cell<Option<usize>>,
    depth: Cell<usize>,
    /// True while no new requests begin.
    is_finishing: Cell<bool>,
    pub(crate) model: RefCell<Model>,
    operations: Cell<u64>,
    trace: RefCell<Trace>,
    /// The first violation.
    violation: RefCell<Option<String>>,
}

/// Passes on everything to the engine. Shows commits to the world.
struct Observer(Arc<DiskEngine>);

impl storage::Wrapper for Observer {
    type Beneath = DiskEngine;

    fn beneath(&self) -> &DiskEngine {
        &self.0
    }

    fn commit(&self, batch: Batch) -> storage::Result<Position> {
        let Some(world) = world() else { return self.beneath().commit(batch) };
        let (stores, expired) = (world.stores(&batch), world.expired(&batch));
        let position = self.beneath().commit(batch)?;
        world.committed(position.0, stores);
        if !expired.is_empty()
            && let Err(what) = world.model.borrow_mut().expire(&expired, position.0, world.now_millis())
        {
            world.fail(what);
        }
        Ok(position)
    }

    fn wait_for_room(&self, should_continue: &mut dyn FnMut() -> bool) -> storage::Result<()> {
        if let Some(world) = world() {
            world.pause();
        }
        self.beneath().wait_for_room(should_continue)
    }
}

/// Runs a wait of a statement, or other long work.
fn wait(work: &mut dyn FnMut()) {
    match world() {
        Some(world) => world.wait(work),
        None => work(),
    }
}

/// Lets clients run during a slow sync.
fn meanwhile() {
    if let Some(world) = world() {
        world.run_clients();
    }
}

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
        random,
        durability,
        clock: Arc::new(ManualClock::new(START_MILLIS)),
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
    time::simulate(Some(start));
    time::simulate_meanwhile(Some(meanwhile));
    world.run().map_err(|what| format!("after {:?}: {what}", world.now()))?;
    let report = world.trace.borrow().report.clone();
    Ok(report)
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
    }
}

macro_rules! event {
    ($world:expr, $($text:tt)*) => { $world.trace.borrow_mut().event(format_args!($($text)*), None) };
}

impl Process {
    /// Runs a command of the simulation itself to its end.
    pub(crate) fn command(&self, text: &str) -> Result<DocumentBuf, String> {
        let mut connection = SimulatedConnection::new(&self.server);
        connection.receive(&encode(text)?);
        for _ in 0..100 {
            match connection.advance() {
                Advance::Reply(bytes) => {
                    let reply = wire::message::document(&bytes).ok_or("no reply")?;
                    return match failure(reply.view()) {
                        Some(error) => Err(format!("{text}: {error:?}")),
                        None => Ok(reply),
                    };
                }
                Advance::Waiting => self.engine.step_flush(true),
                other => return Err(format!("{text}: {other:?}")),
            }
        }
        Err(format!("{text}: it never ends"))
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
        self.move_to(self.now() + Duration::from_secs(60));
        self.check()?;
        match self.model.borrow().expiring() {
            ids if ids.is_empty() => Ok(()),
            ids => Err(format!("the documents {ids:?} do not expire")),
        }
    }

    /// Compares all data of the running process with the model.
    fn verify_present(&self) -> Result<(), String> {
        let process = self.process.borrow();
        verify(process.as_ref().ok_or("no process")?, &self.model.borrow())
    }

    /// Returns the simulated time since the start. A slow sync moves it too.
    pub(crate) fn now(&self) -> Duration {
        time::now().saturating_duration_since(self.start)
    }

    /// Returns the time of the wall clock.
    fn now_millis(&self) -> i64 {
        START_MILLIS + self.now().as_millis() as i64 + self.shift.get()
    }

    pub(crate) fn mark(&self, name: &'static str) {
        self.trace.borrow_mut().mark(name);
    }

    fn fail(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    /// Errors: the first violation so far.
    fn check(&self) -> Result<(), String> {
        self.violation.borrow().clone().map_or(Ok(()), Err)
    }

    fn engine(&self) -> Option<Arc<DiskEngine>> {
        self.process.borrow().as_ref().map(|process| process.engine.clone())
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.process.borrow().as_ref().map(|process| process.server.clone())
    }

    fn has_stopped(&self) -> bool {
        self.files.borrow().has_stopped()
    }

    /// Starts a server process on the files.
    fn open(&self) -> Result<(), String> {
        let files = self.files.borrow().clone();
        let process = self.start(files, &|position| self.recovered(position))?;
        process.command("{setParameter: 1, ttlMonitorSleepSecs: 5, $db: 'admin'}")?;
        *self.process.borrow_mut() = Some(process);
        self.incarnation.set(self.incarnation.get() + 1);
        self.is_faulty.set(false);
        Ok(())
    }

    /// Starts a server process on some files. `recovered` gets the position of the recovered state.
    fn start(
        &self,
        files: FaultyFiles,
        recovered: &dyn Fn(u64) -> Result<(), String>,
    ) -> Result<Process, String> {
        let options =
            DiskOptions { durability: self.durability, cache_bytes: 16 << 20, ..DiskOptions::new("/data") };
        let engine = DiskEngine::open_stepped(Arc::new(files), &options);
        let engine = Arc::new(engine.map_err(|error| format!("opening: {error}"))?);
        recovered(engine.durable().0)?;
        let observer: Arc<dyn Engine> = Arc::new(Observer(engine.clone()));
        let log = Some(LogOptions { bytes: 1 << 20 });
        let seed = self.random.draw();
        let database = Database::open_with(observer, self.clock.clone(), seed, log);
        let database = database.map_err(|error| format!("opening the database: {error}"))?;
        database.set_blocking_hook(wait);
        let settings = Settings {
            replica_set: Some("rs".to_string()),
            engine: "disk",
            ephemeral: false,
            ..Settings::default()
        };
        let server = Arc::new(Server::with_seed(settings, database, seed));
        Ok(Process { engine, server, background: SimulatedBackground::default() })
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
        process.command(&format!("{{createIndexes: 't', indexes: [{expiring}], $db: 'test'}}"))?;
        process.command("{create: 's', $db: 'slate'}")?;
        process.command("{create: 'c', $db: 'test', writeConcern: {w: 1, j: true}}")?;
        let state = ["a", "c", "s", "t"].map(|place| (place, Rc::default())).into_iter().collect();
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
            52..=54 => files.set_room(None),
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
                files.set_room(Some(self.random.below(20_000)));
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
                if let Err(what) = self.back_up()
                    && !self.has_stopped()
                {
                    self.fail(what);
                }
            }
            _ => self.step_client(self.random.index(self.clients.len() + 1)),
        }
    }

    /// Moves the clock, and runs what is due then.
    fn pass_time(&self) {
        let millis = match self.random.below(100) {
            0..=69 => self.random.below(5),
            70..=94 => self.random.below(200),
            95..=98 => self.random.below(3000),
            _ => self.random.below(70_000),
        };
        self.move_to(self.now() + Duration::from_millis(millis));
    }

    /// Moves the clock to a time.
    fn move_to(&self, now: Duration) {
        let before = std::mem::replace(&mut self.trace.borrow_mut().report.simulated, now);
        time::simulate(Some(self.start + now));
        self.clock.set(self.now_millis());
        let Some(engine) = self.engine() else { return };
        if before.as_millis() / 100 != now.as_millis() / 100 {
            engine.step_flush(true);
        }
        if before.as_secs() != now.as_secs() && self.depth.get() == 0 {
            let mut process = self.process.borrow_mut().take();
            if let Some(Process { background, server, .. }) = &mut process {
                self.is_ticking.set(true);
                background.tick(server);
                self.is_ticking.set(false);
            }
            *self.process.borrow_mut() = process;
        }
    }

    /// Backs up while clients write, and checks the data of a server on the restored backup.
    fn back_up(&self) -> Result<(), String> {
        let before = self.model.borrow().latest();
        let first = self.command("{vellumBackup: 1, cursor: {batchSize: 1}, $db: 'admin'}")?;
        // Clients run while the state of the backup is synced.
        let possible = self.model.borrow().views(before).views;
        let (files, directory) = (FaultyFiles::new(), Path::new("/backup"));
        files.set_random(self.script.seed);
        let shared: Arc<dyn storage::disk::Files> = Arc::new(files.clone());
        let failed = |error: storage::Error| format!("backup: {error}");
        let mut target = BackupDirectory::open(shared.clone(), directory).map_err(failed)?;
        let mut part = target.begin().map_err(failed)?;
        let mut reply = first;
        loop {
            let (id, batch) = cursor(reply.view())?;
            for piece in batch.iter().filter_map(|document| document.get("data")) {
                let Value::Binary { bytes, .. } = piece else { return Err("no bytes".to_string()) };
                part.write(bytes).map_err(failed)?;
            }
            if id == 0 {
                break;
            }
            for _ in 0..self.random.below(4) {
                self.step_client(self.random.index(self.clients.len() + 1));
            }
            let get_more = format!("getMore: {{$numberLong: '{id}'}}, collection: '$cmd.vellumBackup'");
            reply = self.command(&format!("{{{get_more}, batchSize: 1, $db: 'admin'}}"))?;
        }
        part.finish().map_err(failed)?;
        drop(target);
        let (from, to) = (directory.to_path_buf(), "/data".into());
        let restore = Restore { from, archives: Vec::new(), until: None, to, cache_bytes: 16 << 20 };
        storage::restore(&shared, &restore).map_err(failed)?;
        let process = self.start(files, &|_| Ok(()))?;
        self.mark("backups");
        let checks = possible.into_iter().map(|(_, state)| verify(&process, &Model::new(0, state)));
        checks.reduce(Result::or).unwrap_or(Ok(())).map_err(|what| format!("the restored backup: {what}"))
    }

    /// Runs a command of the simulation itself.
    fn command(&self, text: &str) -> Result<DocumentBuf, String> {
        let process = self.process.borrow();
        process.as_ref().ok_or("no process")?.command(text)
    }

    /// Continues a client: begins a request, sends it again, or lets the server continue it.
    fn step_client(&self, number: usize) {
        if number == self.clients.len() {
            return self.step_watcher();
        }
        let mut client = self.clients[number].borrow_mut();
        if client.is_running || self.has_stopped() {
            return;
        }
        if client.request.is_none() {
            if self.is_finishing.get() {
                // Others may wait for the transaction.
                match &mut client.transaction {
                    Some(transaction) => transaction.is_lost = true,
                    None => return,
                }
            }
            let w = self.operations.get();
            self.operations.set(w + 1);
            if self.script.dropped.contains(&w) {
                return;
            }
            let mixed = Random::new(self.script.seed.rotate_left(32) ^ w).draw();
            let from = self.model.borrow().latest();
            let at = (from, self.now(), self.incarnation.get());
            let is_journaled = self.durability == Durability::Journaled;
            let request = client.draw(&Random::new(mixed), (w as i64, self.now_millis()), at, is_journaled);
            client.request = Some(request);
            client.is_sent = false;
        }
        if !client.is_sent {
            self.send(&mut client);
            return;
        }
        if self.random.below(40) == 0 {
            self.mark("cut connections");
            event!(self, "c{number} is cut off");
            self.lose_reply(&mut client);
            return;
        }
        drop(client);
        self.advance(number);
    }

    /// Continues the client of the change stream.
    fn step_watcher(&self) {
        let Ok(mut watcher) = self.watcher.try_borrow_mut() else { return };
        let Some(server) = self.server().filter(|_| !self.has_stopped()) else { return };
        if self.random.below(30) == 0 {
            self.mark("cut connections");
            return watcher.lose();
        }
        let mut connection = watcher.connection.take().unwrap_or_else(|| SimulatedConnection::new(&server));
        if !watcher.is_sent {
            watcher.is_sent = true;
            match encode(&watcher.request(&self.random)) {
                Ok(bytes) => connection.receive(&bytes),
                Err(what) => self.fail(what),
            }
        }
        let before = self.current.replace(None);
        let advance = if connection.can_advance() { connection.advance() } else { Advance::Waiting };
        self.current.set(before);
        watcher.connection = Some(connection);
        match advance {
            Advance::Waiting => {}
            Advance::Reply(bytes) => {
                let Some(reply) = wire::message::document(&bytes) else {
                    return self.fail("the change stream gets an invalid reply".to_string());
                };
                self.trace.borrow_mut().event(format_args!("stream"), Some(reply.view()));
                watcher.is_sent = false;
                if self.has_stopped() || self.is_faulty.get() && is_refused(reply.view()) {
                    return watcher.lose();
                }
                match watcher.take(reply.view(), &mut self.model.borrow_mut()) {
                    Ok(0) => {}
                    Ok(_) => self.mark("replies with events of a change stream"),
                    Err(what) => self.fail(format!("{what}\n{}", extended_json::to_relaxed(reply.view()))),
                }
            }
            other => self.fail(format!("the change stream gets {other:?}")),
        }
    }

    fn send(&self, client: &mut Client) {
        let (Some(server), Some(request)) = (self.server(), &mut client.request) else { return };
        event!(self, "c{} sends {}", client.number, request.text);
        match encode(&request.text) {
            Ok(bytes) => {
                let connection = client.connection.get_or_insert_with(|| SimulatedConnection::new(&server));
                connection.receive(&bytes);
                (client.is_sent, client.waited) = (true, 0);
            }
            Err(what) => self.fail(what),
        }
    }

    /// The client does not learn the result: its connection was cut.
    fn lose_reply(&self, client: &mut Client) {
        client.connection = None;
        client.is_sent = false;
        client.waited = 0;
        let Some(request) = &client.request else { return };
        if request.is_repeated {
            self.mark("repeated requests");
            return;
        }
        if matches!(request.step, Step::More) {
            client.reading = None;
        }
        if let (Step::Statement(_) | Step::Abort, Some(transaction)) =
            (&request.step, &mut client.transaction)
        {
            transaction.is_lost = true;
        }
        client.request = None;
    }

    /// Lets the server continue a request.
    fn advance(&self, number: usize) {
        let mut client = self.clients[number].borrow_mut();
        client.waited += 1;
        if client.waited > WAIT_MAX {
            self.fail(format!("c{number} waits forever: {:?}", client.request));
            return;
        }
        let Some(mut connection) = client.connection.take_if(|connection| connection.can_advance()) else {
            return;
        };
        client.is_running = true;
        if let Some(request) = &mut client.request {
            request.is_nested |= self.depth.get() > 0;
        }
        drop(client);
        let before = self.current.replace(Some(number));
        let tries = self.tries.replace(0);
        let advance = connection.advance();
        self.current.set(before);
        self.tries.set(tries);
        let mut client = self.clients[number].borrow_mut();
        client.is_running = false;
        // The end of the machine: no client gets a reply any more.
        if self.has_stopped() {
            return;
        }
        client.connection = Some(connection);
        match advance {
            Advance::Waiting => self.mark("waits"),
            Advance::Reply(bytes) => {
                let Some(reply) = wire::message::document(&bytes) else {
                    return self.fail(format!("c{number}: an invalid reply"));
                };
                self.trace.borrow_mut().event(format_args!("c{number} gets"), Some(reply.view()));
                if self.random.below(12) == 0 {
                    self.mark("lost replies");
                    event!(self, "c{number} does not get it");
                    return self.lose_reply(&mut client);
                }
                client.is_sent = false;
                let Some(request) = client.request.take() else { return };
                let checked = self.check_reply(&mut client, &request, &reply);
                if let Err(what) = checked {
                    self.fail(format!("c{number}: {what}\n  {request:?}\n  {:?}", client.transaction));
                }
                if matches!(request.step, Step::Commit | Step::Abort) {
                    client.transaction = None;
                }
            }
            other => self.fail(format!("c{number}: {other:?} instead of a reply: {:?}", client.request)),
        }
    }

    /// Returns true if a batch stores a document of the running request.
    fn stores(&self, batch: &Batch) -> bool {
        let Some(number) = self.current.get() else { return false };
        let client = self.clients[number].borrow();
        let Some(request) = &client.request else { return false };
        if !request.action().is_some_and(|(action, ..)| action.stores()) {
            return false;
        }
        let mut marker = b"\x10w\0".to_vec();
        marker.extend((request.w as i32).to_le_bytes());
        contains(batch, &marker)
    }

    /// Returns the ids of the documents of `t` that a batch of the background work removes.
    fn expired(&self, batch: &Batch) -> Vec<i64> {
        if !self.is_ticking.get() || self.current.get().is_some() {
            return Vec::new();
        }
        let mut ids = self.model.borrow().expiring();
        ids.retain(|id| {
            let mut marker = b"\x10_id\0".to_vec();
            marker.extend((*id as i32).to_le_bytes());
            contains(batch, &marker)
        });
        ids
    }

    /// Applies a commit of the engine to the model.
    fn committed(&self, position: u64, stores: bool) {
        let Some(number) = self.current.get() else { return };
        event!(self, "commit {position} of c{number}{}", if stores { ", a document" } else { "" });
        let mut client = self.clients[number].borrow_mut();
        let Client { request, transaction, .. } = &mut *client;
        let Some(request) = request else { return };
        let mut model = self.model.borrow_mut();
        let result = match (&request.step, request.action()) {
            (Step::Single(_), Some(_)) if request.applied.is_some() => match stores {
                true => Err("it is applied twice".to_string()),
                false => Ok(None),
            },
            (Step::Single(action), Some((_, place, _))) if action.stores() && !stores => {
                if matches!(action, Action::Insert(_)) {
                    model.create(place, position);
                }
                Ok(None)
            }
            // Only the first commit creates the collection. The last one ends the build, perhaps after a rename.
            (Step::Single(Action::Index), _) if request.has_committed => Ok(None),
            (Step::Single(_), Some(statement)) => model.commit_statement(statement, position),
            (Step::Statement(_), _) if stores => Err("it is stored before the commit".to_string()),
            (Step::Commit, _) => match transaction {
                Some(transaction) if transaction.incarnation == self.incarnation.get() => {
                    match &transaction.views {
                        _ if request.applied.is_some() => Ok(None),
                        Some(views) if !views.changes.is_empty() => {
                            model.commit_transaction(views, position).map(|()| Some(Outcome::Done))
                        }
                        _ => Ok(None),
                    }
                }
                _ => Err("it commits a transaction of an earlier process".to_string()),
            },
            _ => Ok(None),
        };
        request.has_committed = true;
        match result {
            Ok(None) => {}
            Ok(Some(outcome)) => request.applied = Some((position, outcome)),
            Err(what) => self.fail(format!("c{number}: {what}: {request:?}")),
        }
    }

    /// Lets other clients run before a commit.
    fn pause(&self) {
        if self.current.get().is_some() && self.random.below(4) == 0 {
            self.run_clients();
        }
    }

    /// Lets some clients run inside of other work.
    fn run_clients(&self) {
        let depth = self.depth.get();
        if depth >= DEPTH_MAX {
            return;
        }
        self.depth.set(depth + 1);
        for _ in 0..1 + self.random.below(6) {
            self.step_client(self.random.index(self.clients.len() + 1));
        }
        self.depth.set(depth);
    }

    /// Ends the transactions of other clients, so that a statement need not wait for them. A nested request cannot
    /// wait: the outer one may have what it waits for.
    fn wait(&self, work: &mut dyn FnMut()) {
        if self.current.get().is_none() {
            return work();
        }
        if self.depth.get() > 0 {
            return;
        }
        self.mark("waits for transactions");
        self.tries.set(self.tries.get() + 1);
        assert!(self.tries.get() < TRIES_MAX, "a request waits forever");
        self.depth.set(1);
        for _ in 0..WAIT_MAX {
            let is_open = |client: &RefCell<Client>| {
                let client = client.borrow();
                client.transaction.is_some() && !client.is_running
            };
            let open: Vec<usize> = (0..self.clients.len()).filter(|at| is_open(&self.clients[*at])).collect();
            if open.is_empty() || self.has_stopped() || self.violation.borrow().is_some() {
                break;
            }
            self.step_client(open[self.random.index(open.len())]);
            if let Some(engine) = self.engine() {
                engine.step_flush(true);
            }
        }
        self.depth.set(0);
        if !self.has_stopped() {
            work();
        }
    }

    fn crash_if_stopped(&self) -> Result<(), String> {
        if !self.has_stopped() {
            return Ok(());
        }
        let loss = match self.random.below(4) {
            0 => Loss::Nothing,
            1 => Loss::Everything,
            2 => Loss::Some(self.random.draw()),
            _ => Loss::Blocks(self.random.draw()),
        };
        self.crash(loss)
    }

    /// Stops the machine, starts it again, and checks all data.
    fn crash(&self, loss: Loss) -> Result<(), String> {
        self.mark("crashes");
        event!(self, "crash: {loss:?}");
        for client in &self.clients {
            let mut client = client.borrow_mut();
            self.lose_reply(&mut client);
            (client.reading, client.seen_time) = (None, 0);
        }
        let files = self.files.borrow().restart(loss);
        self.watcher.borrow_mut().lose();
        // Dropped without a borrow: a slow sync at its end lets clients run.
        let process = self.process.take();
        drop(process);
        *self.files.borrow_mut() = files;
        if loss == Loss::Nothing && self.durability == Durability::Relaxed {
            // Only the process has ended.
            let mut model = self.model.borrow_mut();
            model.promised = model.promised.max(model.answered);
        }
        self.open()?;
        self.verify_present()
    }

    /// Takes over what the engine has recovered. Errors: it has lost a promised commit.
    fn recovered(&self, position: u64) -> Result<(), String> {
        event!(self, "recovered up to {position}");
        let mut model = self.model.borrow_mut();
        if model.versions.is_empty() {
            return Ok(());
        }
        if position < model.promised {
            return Err(format!("commit {} is lost, recovered up to {position}", model.promised));
        }
        model.recover(position);
        self.watcher.borrow_mut().recover(model.versions.len());
        for client in &self.clients {
            let mut client = client.borrow_mut();
            if let Some(request) = &mut client.request
                && request.applied.as_ref().is_some_and(|(applied, _)| *applied > position)
            {
                self.mark("undone commits");
                request.applied = None;
            }
        }
        Ok(())
    }
}

/// Returns true if a value of a batch contains some bytes.
fn contains(batch: &Batch, marker: &[u8]) -> bool {
    batch.ops().iter().any(|op| match op {
        Op::Put { value, .. } => value.windows(marker.len()).any(|window| window == marker),
        _ => false,
    })
}

/// Encodes a command as a message.
fn encode(text: &str) -> Result<Vec<u8>, String> {
    let command = extended_json::parse(text).map_err(|error| format!("{text}: {error}"))?;
    Ok(wire::message::encode(1, 0, command.view()))
}

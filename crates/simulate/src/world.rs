//! The scheduler: one thread runs the clients, the server, time and the machine in an order that the seed decides.
//!
//! Clients interleave at three kinds of points: between the polls of a request, before a commit, and where a statement
//! waits for a transaction. At the second and third kind the hooks of this file run other clients inside of the
//! waiting request. The innermost request cannot wait for an outer one, so it fails instead.

use crate::Script;
use crate::action::{Action, COLLECTIONS, Doc, Outcome, failure};
use crate::client::{Client, Request, Step, Transaction};
use crate::model::Model;
use crate::trace::{Report, Trace};
use base::bson::{DocumentBuf, extended_json};
use base::random::Random;
use database::{Database, ManualClock, time};
use server::{Advance, Server, Settings, SimulatedBackground, SimulatedConnection};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use storage::store::LogOptions;
use storage::testing::{FaultyFiles, Loss};
use storage::{Batch, DiskEngine, DiskOptions, Durability, Engine, Journaling, Op, Position};

/// Maximum nesting of requests.
const DEPTH_MAX: usize = 3;
/// Number of steps after which a waiting request counts as lost.
const WAIT_MAX: u64 = 2000;
/// Lifetime of transactions, the default of transactionLifetimeLimitSeconds.
const LIFETIME: Duration = Duration::from_secs(60);
/// Time of the clock at the start.
const START_MILLIS: i64 = 1_700_000_000_000;

const INTERNAL_ERROR: i32 = 1;
const NO_SUCH_TRANSACTION: i32 = 251;
const WRITE_CONFLICT: i32 = 112;
const QUERY_PLAN_KILLED: i32 = 175;
const DUPLICATE_KEY: i32 = 11_000;
/// Error text of a request that cannot wait.
const RAN_NO_WORK: &str = "ran no work";

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Returns the world of this thread's run.
fn world() -> Option<Rc<World>> {
    WORLD.with_borrow(Clone::clone)
}

/// A server process.
struct Process {
    engine: Arc<DiskEngine>,
    server: Arc<Server>,
    background: SimulatedBackground,
}

struct World {
    script: Script,
    /// Decides the schedule. Each operation has its own generator: a dropped operation does not change later ones.
    random: Random,
    durability: Durability,
    clock: Arc<ManualClock>,
    start: Instant,
    files: RefCell<FaultyFiles>,
    process: RefCell<Option<Process>>,
    incarnation: Cell<u64>,
    clients: Vec<RefCell<Client>>,
    /// Client whose request is running.
    current: Cell<Option<usize>>,
    depth: Cell<usize>,
    /// True while no new requests begin.
    is_finishing: Cell<bool>,
    model: RefCell<Model>,
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
        let stores = world.stores(&batch);
        let position = self.beneath().commit(batch)?;
        world.committed(position.0, stores);
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
    world.run()?;
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
            _ = world.process.try_borrow_mut().map(|mut process| process.take());
        }
        time::simulate(None);
    }
}

macro_rules! event {
    ($world:expr, $($text:tt)*) => { $world.trace.borrow_mut().event(format_args!($($text)*)) };
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
        for _ in 0..4 * WAIT_MAX {
            if self.clients.iter().all(|client| client.borrow().request.is_none()) {
                break;
            }
            self.step();
            self.crash_if_stopped()?;
            self.check()?;
        }
        self.verify()?;
        self.crash(Loss::Everything)
    }

    fn mark(&self, name: &'static str) {
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
        let options =
            DiskOptions { durability: self.durability, cache_bytes: 16 << 20, ..DiskOptions::new("/data") };
        let files = Arc::new(self.files.borrow().clone());
        let engine =
            DiskEngine::open_stepped(files, &options).map_err(|error| format!("opening: {error}"))?;
        let engine = Arc::new(engine);
        let position = engine.durable().0;
        self.recovered(position)?;
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
        let background = SimulatedBackground::default();
        *self.process.borrow_mut() = Some(Process { engine, server, background });
        self.incarnation.set(self.incarnation.get() + 1);
        Ok(())
    }

    /// Creates the collections, and the first version of the model.
    fn prepare(&self) -> Result<(), String> {
        self.command("{create: 'a', $db: 'test'}")?;
        self.command("{createIndexes: 'a', indexes: [{key: {u: 1}, name: 'u', unique: true}], $db: 'test'}")?;
        self.command("{create: 'c', $db: 'test', writeConcern: {w: 1, j: true}}")?;
        let position = self.engine().map_or(0, |engine| engine.durable().0);
        let state = ["a", "c"].map(|place| (place, Rc::default())).into_iter().collect();
        *self.model.borrow_mut() = Model::new(position, state);
        Ok(())
    }

    /// Runs a command of the simulation itself to its end.
    fn command(&self, text: &str) -> Result<DocumentBuf, String> {
        let (Some(server), Some(engine)) = (self.server(), self.engine()) else {
            return Err("no server".to_string());
        };
        let mut connection = SimulatedConnection::new(&server);
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
                Advance::Waiting => engine.step_flush(true),
                other => return Err(format!("{text}: {other:?}")),
            }
        }
        Err(format!("{text}: it never ends"))
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
            52..=53 if !self.is_finishing.get() => {
                event!(self, "the machine stops");
                files.stop();
            }
            54..=55 if !self.is_finishing.get() => {
                files.stop_at_write(files.counts().0 + 1 + self.random.below(20));
            }
            56..=57 if !self.is_finishing.get() => {
                files.stop_at_sync(files.counts().1 + 1 + self.random.below(6));
            }
            _ => self.step_client(self.random.index(self.clients.len())),
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
        let before = self.trace.borrow().report.simulated;
        let now = before + Duration::from_millis(millis);
        self.trace.borrow_mut().report.simulated = now;
        time::simulate(Some(self.start + now));
        self.clock.set(START_MILLIS + now.as_millis() as i64);
        let Some(engine) = self.engine() else { return };
        if before.as_millis() / 100 != now.as_millis() / 100 {
            engine.step_flush(true);
        }
        if before.as_secs() != now.as_secs() && self.depth.get() == 0 {
            let mut process = self.process.borrow_mut().take();
            if let Some(Process { background, server, .. }) = &mut process {
                background.tick(server);
            }
            *self.process.borrow_mut() = process;
        }
    }

    /// Continues a client: begins a request, sends it again, or lets the server continue it.
    fn step_client(&self, number: usize) {
        let mut client = self.clients[number].borrow_mut();
        if client.is_running || self.has_stopped() {
            return;
        }
        if client.request.is_none() {
            // Other clients may wait for this client's transaction.
            if self.is_finishing.get() && client.transaction.is_none() {
                return;
            }
            let w = self.operations.get();
            self.operations.set(w + 1);
            if self.script.dropped.contains(&w) {
                return;
            }
            let mixed = Random::new(self.script.seed.rotate_left(32) ^ w).draw();
            let from = self.model.borrow().latest();
            let now = self.trace.borrow().report.simulated;
            let at = (from, now, self.incarnation.get());
            let request =
                client.draw(&Random::new(mixed), w as i64, at, self.durability == Durability::Journaled);
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
        let Some(request) = &client.request else { return };
        if request.is_repeated {
            self.mark("repeated requests");
            return;
        }
        if let (Step::Statement(_), Some(transaction)) = (&request.step, &mut client.transaction) {
            transaction.is_lost = true;
        } else if matches!(request.step, Step::Abort) {
            client.transaction = None;
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
        let advance = connection.advance();
        self.current.set(before);
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
                event!(self, "c{number} gets {}", extended_json::to_relaxed(reply.view()));
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

    /// Checks a reply. Errors: why it is wrong.
    fn check_reply(&self, client: &mut Client, request: &Request, reply: &DocumentBuf) -> Result<(), String> {
        match &request.step {
            Step::Single(action) => {
                let outcome = action.outcome(reply.view())?;
                self.check_single(request, &outcome)
            }
            Step::Statement(action) => {
                let outcome = action.outcome(reply.view())?;
                let Some(mut transaction) = client.transaction.take() else { return Ok(()) };
                if self.check_statement(&mut transaction, request, &outcome)? {
                    client.transaction = Some(transaction);
                }
                Ok(())
            }
            Step::Abort => match failure(reply.view()) {
                None => Ok(()),
                Some(Outcome::Error(NO_SUCH_TRANSACTION, _)) => Ok(()),
                Some(other) => Err(format!("{other:?}")),
            },
            Step::Commit => {
                let Some(transaction) = &client.transaction else { return Ok(()) };
                let has_changes = transaction.views.as_ref().is_some_and(|views| !views.changes.is_empty());
                match (failure(reply.view()), &request.applied) {
                    (None, Some((position, _))) => {
                        self.mark("committed transactions");
                        self.model.borrow_mut().answer(*position, request.is_durable);
                        Ok(())
                    }
                    (None, None) if has_changes => Err("the transaction was not committed".to_string()),
                    (None, None) => Ok(()),
                    (Some(error), Some(_)) => Err(format!("the transaction was committed: {error:?}")),
                    (Some(Outcome::Error(NO_SUCH_TRANSACTION, _)), None) if self.is_over(transaction) => {
                        self.mark("transactions that a restart or their age ended");
                        Ok(())
                    }
                    (Some(error), None) => Err(format!("{error:?}")),
                }
            }
        }
    }

    /// Returns true if the server may have forgotten a transaction.
    fn is_over(&self, transaction: &Transaction) -> bool {
        let age = self.trace.borrow().report.simulated.saturating_sub(transaction.began);
        transaction.incarnation != self.incarnation.get() || age >= LIFETIME
    }

    fn check_single(&self, request: &Request, outcome: &Outcome) -> Result<(), String> {
        let Some(statement) = request.action() else { return Ok(()) };
        let mut model = self.model.borrow_mut();
        if let Some((position, expected)) = &request.applied {
            self.mark("writes");
            model.answer(*position, request.is_durable);
            return match expected.is_like(outcome) {
                true => Ok(()),
                false => Err(format!("{outcome:?} instead of {expected:?}")),
            };
        }
        if let Some(position) = model.explain(statement, request.from, outcome) {
            self.mark(if statement.0.is_read() { "reads" } else { "writes without an effect" });
            model.answer(position, request.is_durable);
            return Ok(());
        }
        match outcome {
            Outcome::Error(INTERNAL_ERROR, why) if request.is_nested && why.contains(RAN_NO_WORK) => {
                self.mark("requests that could not wait");
                Ok(())
            }
            Outcome::Error(QUERY_PLAN_KILLED, _)
                if model.has_catalog_changed(request.from, request.place) =>
            {
                Ok(())
            }
            other => {
                Err(format!("no version explains {other:?}; now {:?}", model.state().get(request.place)))
            }
        }
    }

    /// Checks a statement of a transaction. Returns false if it has ended the transaction.
    fn check_statement(
        &self,
        transaction: &mut Transaction,
        request: &Request,
        outcome: &Outcome,
    ) -> Result<bool, String> {
        let Some(statement) = request.action() else { return Ok(true) };
        match outcome {
            Outcome::Error(NO_SUCH_TRANSACTION, _) if self.is_over(transaction) => {
                self.mark("transactions that a restart or their age ended");
                return Ok(false);
            }
            Outcome::Error(INTERNAL_ERROR, why) if request.is_nested && why.contains(RAN_NO_WORK) => {
                return Ok(false);
            }
            Outcome::Error(WRITE_CONFLICT, _) => {
                self.mark("write conflicts");
                let latest = self.model.borrow().latest();
                let others = self.clients.iter().enumerate().any(|(number, other)| {
                    // The client itself is borrowed.
                    other.try_borrow().is_ok_and(|other| {
                        other.number == number && (other.transaction.is_some() || other.is_running)
                    })
                });
                return match latest > transaction.from || others {
                    true => Ok(false),
                    false => Err("a write conflict with nothing".to_string()),
                };
            }
            _ => {}
        }
        let from = transaction.from;
        let views = transaction.views.get_or_insert_with(|| self.model.borrow().views(from));
        if !views.statement(statement, outcome) {
            return Err(format!("no read view explains {outcome:?}"));
        }
        self.mark("statements of transactions");
        // An error ends the transaction.
        Ok(!matches!(outcome, Outcome::Error(DUPLICATE_KEY, _)))
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
        batch.ops().iter().any(|op| match op {
            Op::Put { value, .. } => value.windows(marker.len()).any(|window| window == marker),
            _ => false,
        })
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
            (Step::Single(action), Some(_)) if action.stores() && !stores => Ok(None),
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
        match result {
            Ok(None) => {}
            Ok(Some(outcome)) => request.applied = Some((position, outcome)),
            Err(what) => self.fail(format!("c{number}: {what}: {request:?}")),
        }
    }

    /// Lets other clients run before a commit.
    fn pause(&self) {
        let depth = self.depth.get();
        if self.current.get().is_none() || depth >= DEPTH_MAX || self.random.below(4) != 0 {
            return;
        }
        self.depth.set(depth + 1);
        for _ in 0..1 + self.random.below(6) {
            self.step_client(self.random.index(self.clients.len()));
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
            self.lose_reply(&mut client.borrow_mut());
        }
        let files = self.files.borrow().restart(loss);
        drop(self.process.borrow_mut().take());
        *self.files.borrow_mut() = files;
        if loss == Loss::Nothing && self.durability == Durability::Relaxed {
            // Only the process has ended.
            let mut model = self.model.borrow_mut();
            model.promised = model.promised.max(model.answered);
        }
        self.open()?;
        self.verify()
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

    /// Compares all stored data with the model.
    fn verify(&self) -> Result<(), String> {
        let state = self.model.borrow().state().clone();
        let names = self.command("{listCollections: 1, $db: 'test'}")?;
        let names = extended_json::to_relaxed(names.view());
        for place in COLLECTIONS {
            if names.contains(&format!("\"name\":\"{place}\"")) != state.contains_key(place) {
                return Err(format!("{place} exists or not: {names}"));
            }
            if !state.contains_key(place) {
                continue;
            }
            let docs: Vec<Doc> =
                state.get(place).into_iter().flat_map(|docs| docs.values().copied()).collect();
            let ways: &[&str] = if place == "a" { &["$natural", "_id", "u"] } else { &["$natural", "_id"] };
            for way in ways {
                let reply = self.command(&format!("{{find: '{place}', hint: {{{way}: 1}}, $db: 'test'}}"))?;
                let found = Action::Find(None).outcome(reply.view())?;
                if found != Outcome::Docs(docs.clone()) {
                    return Err(format!("{place} by {way} has {found:?}, expected {docs:?}"));
                }
            }
            let reply = self.command(&format!("{{count: '{place}', $db: 'test'}}"))?;
            let count = Action::Count.outcome(reply.view())?;
            if count != Outcome::Count(docs.len() as i64) {
                return Err(format!("{place} has {} documents, and counts {count:?}", docs.len()));
            }
            let reply = self.command(&format!("{{validate: '{place}', $db: 'test'}}"))?;
            if reply.view().get("valid").and_then(|valid| valid.as_bool()) != Some(true) {
                return Err(format!("{place} is not valid: {}", extended_json::to_relaxed(reply.view())));
            }
        }
        Ok(())
    }
}

/// Encodes a command as a message.
fn encode(text: &str) -> Result<Vec<u8>, String> {
    let command = extended_json::parse(text).map_err(|error| format!("{text}: {error}"))?;
    Ok(wire::message::encode(1, 0, command.view()))
}

//! The clients' requests: sent, continued, cut off and repeated, and clients that run inside of other requests.

use crate::action::cursor;
use crate::check::{Check, is_refused};
use crate::client::{Client, Request, Step, Transaction};
use crate::process::encode;
use crate::world::{World, event};
use base::bson::{DocumentBuf, Value, extended_json};
use base::random::Random;
use server::{Advance, SimulatedConnection};
use std::cell::RefCell;
use storage::Durability;

/// Maximum nesting of requests.
const DEPTH_MAX: usize = 3;
/// Number of steps after which a waiting request counts as lost.
pub(crate) const WAIT_MAX: u64 = 2000;
/// Number of waits of one request after which it counts as endless.
const TRIES_MAX: u64 = 1000;

impl World {
    /// Continues a client: begins a request, sends it again, or lets the server continue it.
    pub(crate) fn step_client(&self, number: usize) {
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
            let is_journaled = self.durability() == Durability::Journaled;
            let request = client.draw(
                (&Random::new(mixed), &self.mix),
                (w as i64, self.now_millis()),
                at,
                (is_journaled, self.starter.has_logins.then(|| self.first_user().is_some())),
            );
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
    pub(crate) fn step_watcher(&self) {
        let Ok(mut watcher) = self.watcher.try_borrow_mut() else { return };
        let Some(server) = self.server().filter(|_| !self.has_stopped()) else { return };
        if self.random.below(30) == 0 {
            self.mark("cut connections");
            return watcher.lose();
        }
        let mut connection =
            watcher.connection.take().unwrap_or_else(|| SimulatedConnection::of_server(&server));
        if !watcher.is_sent {
            watcher.is_sent = true;
            match encode(&watcher.request(&self.random)) {
                Ok(bytes) => connection.receive(&bytes),
                Err(violation) => self.fail(violation),
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
                    Err(violation) => {
                        self.fail(format!("{violation}\n{}", extended_json::to_relaxed(reply.view())))
                    }
                }
            }
            other => self.fail(format!("the change stream gets {other:?}")),
        }
    }

    pub(crate) fn send(&self, client: &mut Client) {
        let (Some(server), Some(request)) = (self.server(), &mut client.request) else { return };
        let must_log_in = self.starter.has_logins && !client.is_logged_in && self.first_user().is_some();
        let connection = match client.connection.take().filter(|_| !must_log_in) {
            Some(connection) => connection,
            None => match self.connect(&server) {
                Ok((connection, is_logged_in)) => {
                    client.is_logged_in = is_logged_in;
                    connection
                }
                Err(violation) => return self.fail(violation),
            },
        };
        let connection = client.connection.insert(connection);
        event!(self, "c{} sends {}", client.number, request.text);
        match encode(&request.text) {
            Ok(bytes) => {
                connection.receive(&bytes);
                (client.is_sent, client.waited) = (true, 0);
            }
            Err(violation) => self.fail(violation),
        }
    }

    /// The client does not learn the result: its connection was cut.
    pub(crate) fn lose_reply(&self, client: &mut Client) {
        (client.connection, client.is_logged_in) = (None, false);
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
    pub(crate) fn advance(&self, number: usize) {
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
                let has_rivals = self.clients.iter().any(|other| {
                    // The client itself is borrowed.
                    let is_busy = |other: &Client| other.transaction.is_some() || other.is_running;
                    other.try_borrow().is_ok_and(|other| is_busy(&other))
                });
                let check = Check {
                    model: &self.model,
                    trace: &self.trace,
                    now: self.now(),
                    incarnation: self.incarnation.get(),
                    is_faulty: self.is_faulty.get(),
                    has_rivals,
                    history: self.mix.history,
                };
                let is_begun = matches!(request.step, Step::Statement(_));
                let checked = check.reply(&mut client, &request, &reply);
                let timed = match &client.transaction {
                    _ if !is_begun => Ok(()),
                    Some(_) => self.check_read_time(&client),
                    None => self.check_end(&client),
                };
                if let Err(violation) = checked.and(timed) {
                    self.fail(format!("c{number}: {violation}\n  {request:?}\n  {:?}", client.transaction));
                }
                if matches!(request.step, Step::Commit | Step::Abort) {
                    client.transaction = None;
                }
            }
            other => self.fail(format!("c{number}: {other:?} instead of a reply: {:?}", client.request)),
        }
    }

    /// Checks the time of an open transaction that `currentOp` shows, now and then. Errors: the transaction reads the
    /// state of another time.
    fn check_read_time(&self, client: &Client) -> Result<(), String> {
        let Some(Transaction { number, views: Some(views), .. }) = &client.transaction else { return Ok(()) };
        if self.random.below(4) != 0 {
            return Ok(());
        }
        let reply = self.open_transactions(client, *number)?;
        let (_, operations) = cursor(reply.view())?;
        let shown = operations.first().and_then(|operation| operation.get("transaction")?.as_document());
        let Some(Value::Timestamp(time)) = shown.and_then(|shown| shown.get("readTimestamp")) else {
            return Ok(());
        };
        self.mark("times of transactions");
        let model = self.model.borrow();
        match views.views.iter().any(|(version, _)| model.is_at(*version, time)) {
            true => Ok(()),
            false => Err(format!("the transaction has the time {time:#x} of another state")),
        }
    }

    /// Checks that a failed statement has ended its transaction. Errors: the transaction is still open.
    fn check_end(&self, client: &Client) -> Result<(), String> {
        let reply = self.open_transactions(client, client.transaction_number)?;
        let (_, operations) = cursor(reply.view())?;
        match operations.is_empty() {
            true => Ok(()),
            false => Err("a statement has failed, and its transaction is still open".to_string()),
        }
    }

    /// Returns the reply of `currentOp` that shows a client's transaction if it is open.
    fn open_transactions(&self, client: &Client, number: i64) -> Result<DocumentBuf, String> {
        let filter = format!("{{'transaction.parameters.txnNumber': {number}, {}}}", client.session_filter());
        let stages =
            format!("[{{$currentOp: {{idleSessions: true, allUsers: true}}}}, {{$match: {filter}}}]");
        self.command(&format!("{{aggregate: 1, pipeline: {stages}, cursor: {{}}, $db: 'admin'}}"))
    }

    /// Lets other clients run before a commit.
    pub(crate) fn pause(&self) {
        let (percent, steps) = self.mix.pause;
        if self.current.get().is_some() && self.random.below(100) < percent && !self.changes_users() {
            self.run_some_clients(steps);
        }
    }

    /// Lets other clients run during a slow sync.
    pub(crate) fn pause_for_sync(&self) {
        self.run_clients();
    }

    /// Returns true if the running request may hold the lock of the users. Another request would wait for it forever.
    fn changes_users(&self) -> bool {
        let Some(number) = self.current.get() else { return false };
        let client = self.clients[number].borrow();
        client.request.as_ref().is_some_and(Request::changes_users)
    }

    /// Lets some clients run inside of other work.
    pub(crate) fn run_clients(&self) {
        self.run_some_clients(6);
    }

    /// Lets clients run, at most for this number of steps.
    pub(crate) fn run_some_clients(&self, steps_max: u64) {
        let depth = self.depth.get();
        if depth >= DEPTH_MAX {
            return;
        }
        self.depth.set(depth + 1);
        for _ in 0..1 + self.random.below(steps_max) {
            self.step_client(self.random.index(self.clients.len() + 1));
        }
        self.depth.set(depth);
    }

    /// Ends the transactions of other clients, so that a statement need not wait for them. A nested request cannot
    /// wait: the outer one may have what it waits for.
    pub(crate) fn wait(&self, work: &mut dyn FnMut()) {
        if self.current.get().is_none() {
            return work();
        }
        if self.depth.get() > 0 {
            return;
        }
        self.mark("waits for transactions");
        self.run_clients();
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
}

//! What each connection is doing, for currentOp and killOp; and what it did, for top.
//!
//! One [`Activity`] lives as long as its connection, so that starting a command allocates
//! nothing; the registry is locked only when a connection comes or goes, or is looked at.

use crate::names::UserName;
use crate::usage::Usage;
use base::ErrorCode;
use base::bson::Document;
use database::{Database, Operation, SessionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Commands that nobody but their client would miss.
const READS: [&str; 7] = ["aggregate", "count", "dbHash", "distinct", "explain", "find", "getMore"];

/// Buffers up to so many bytes aren't told of.
const FEW: usize = 64 * 1024;

/// The longest command kept for currentOp, in bytes.
const BODY_MAX: usize = 16 * 1024;

/// The way to a client, for those who neither read from it nor write to it.
pub(crate) trait Link: Send + Sync {
    /// Whether the client has gone, or says nothing more.
    fn is_gone(&self) -> bool;

    /// Ends it: whoever reads or writes finds its end.
    fn cut(&self);
}

/// A connection, and what it runs now.
pub(crate) struct Activity {
    /// The connection's number.
    pub(crate) connection_id: i32,
    /// Who is connected.
    pub(crate) client: SocketAddr,
    /// Whether replies are being sent unasked: those of hello.
    pub(crate) streams: AtomicBool,
    /// Bytes of a message that hasn't ended or a reply that nobody has read, where they are many.
    pub(crate) buffered: AtomicU64,
    link: OnceLock<Box<dyn Link>>,
    current: Mutex<Current>,
    usage: Mutex<Usage>,
    /// What closed connections did.
    past: Arc<Mutex<Usage>>,
}

/// The operation that a connection runs now.
#[derive(Clone)]
pub(crate) struct Current {
    /// The number by which killOp knows it; 0 while nothing runs.
    pub(crate) operation_id: u64,
    /// The command's name.
    pub(crate) command: &'static str,
    /// Its database, and its collection where it names one.
    pub(crate) namespace: String,
    /// The logical session that it runs in.
    pub(crate) session: Option<SessionId>,
    /// Who runs it.
    pub(crate) user: Option<UserName>,
    /// The command itself, unless it is long.
    pub(crate) body: Vec<u8>,
    /// When it began.
    pub(crate) started: Instant,
    /// Why it has been told to stop, if it has.
    killed: Option<ErrorCode>,
    /// Wakes it where it waits without a thread.
    waiting: Option<Waker>,
    /// What stops it, where it is one that can take long.
    pub(crate) operation: Option<Arc<Operation>>,
    /// What that had examined before: keys and documents. It may be a cursor's.
    examined: (i64, i64),
}

/// The operation that a command has used.
pub(crate) struct Used {
    pub(crate) operation: Arc<Operation>,
    before: (i64, i64),
}

impl Used {
    /// How many keys and documents it has examined for this command.
    pub(crate) fn examined(&self) -> (i64, i64) {
        let (keys, documents) = examined(&self.operation);
        (keys - self.before.0, documents - self.before.1)
    }
}

fn examined(operation: &Operation) -> (i64, i64) {
    (operation.keys_examined.load(Ordering::Relaxed), operation.docs_examined.load(Ordering::Relaxed))
}

impl Current {
    /// Whether it is about what each member of a set has to itself.
    pub(crate) fn is_local(&self) -> bool {
        self.namespace.starts_with("local.")
    }
}

impl Activity {
    /// Says which way leads to the client; once.
    pub(crate) fn put_on(&self, link: Box<dyn Link>) {
        let _ = self.link.set(link);
    }

    /// Ends the connection.
    pub(crate) fn cut(&self) {
        if let Some(link) = self.link.get() {
            link.cut();
        }
    }

    /// Notes how many bytes the connection's buffers take while it waits for its client, for all who want to know how
    /// much there is.
    pub(crate) fn hold(&self, bytes: usize, database: &Database) {
        let many = if bytes > FEW { bytes as u64 } else { 0 };
        let before = self.buffered.load(Ordering::Relaxed);
        if before != many {
            self.buffered.store(many, Ordering::Relaxed);
            database.count_messages(many.cast_signed().wrapping_sub(before.cast_signed()));
        }
    }

    /// Ends what runs for a client who has gone, if that has run for so long and only the client would miss it.
    pub(crate) fn end_if_gone(&self, after: Duration) {
        let runs = |current: &Current| {
            let is_read = READS.contains(&current.command)
                && current.operation.as_ref().is_some_and(|operation| !operation.writes());
            is_read && current.started.elapsed() >= after
        };
        let is_due = {
            let current = self.current.lock();
            current.operation_id != 0 && current.killed.is_none() && runs(&current)
        };
        if is_due && self.link.get().is_some_and(|link| link.is_gone()) {
            self.kill_if(ErrorCode::ClientDisconnect, runs);
        }
    }

    /// Marks the beginning of an operation.
    pub(crate) fn begin(
        &self,
        operation_id: u64,
        command: &'static str,
        session: Option<SessionId>,
        (database, collection): (&str, &str),
        body: Document<'_>,
    ) {
        let mut current = self.current.lock();
        current.body.clear();
        if body.bytes().len() <= BODY_MAX {
            current.body.extend_from_slice(body.bytes());
        }
        current.operation_id = operation_id;
        current.command = command;
        current.session = session;
        current.killed = None;
        current.started = Instant::now();
        // The text's memory serves again and again.
        current.namespace.clear();
        current.namespace.push_str(database);
        current.namespace.push('.');
        current.namespace.push_str(collection);
    }

    /// Says who is on the connection from now on.
    pub(crate) fn belongs_to(&self, user: Option<&UserName>) {
        let mut current = self.current.lock();
        if current.user.as_ref() != user {
            current.user = user.cloned();
        }
    }

    /// Who is on the connection.
    pub(crate) fn user(&self) -> Option<UserName> {
        self.current.lock().user.clone()
    }

    /// Says what killOp has to stop.
    pub(crate) fn adopt(&self, operation: Arc<Operation>) {
        let mut current = self.current.lock();
        if let Some(reason) = current.killed {
            operation.kill_with(reason);
        }
        current.examined = examined(&operation);
        current.operation = Some(operation);
    }

    /// The operation that the present command uses, if it has begun one.
    pub(crate) fn operation(&self) -> Option<Used> {
        let current = self.current.lock();
        Some(Used { operation: current.operation.clone()?, before: current.examined })
    }

    /// Why it has been told to stop, if it has; if not, the waker is woken once it is.
    pub(crate) fn killed(&self, waker: &Waker) -> Option<ErrorCode> {
        let mut current = self.current.lock();
        if current.killed.is_none() {
            current.waiting = Some(waker.clone());
        }
        current.killed
    }

    /// Why what runs is to end, if it is, for whoever waits.
    pub(crate) fn ending(&self) -> Option<ErrorCode> {
        let current = self.current.lock();
        current.killed.or_else(|| current.operation.as_ref()?.ending())
    }

    /// Marks its end.
    pub(crate) fn end(&self) {
        let mut current = self.current.lock();
        if current.operation_id != 0 {
            self.count(&current);
        }
        current.operation_id = 0;
        current.operation = None;
        current.waiting = None;
    }

    fn count(&self, current: &Current) {
        let micros = current.started.elapsed().as_micros() as i64;
        let mut usage = self.usage.lock();
        if usage.record(&current.namespace, current.command, micros) {
            self.past.lock().add(&std::mem::take(&mut usage));
        }
    }

    /// Interrupts what runs now, if it is this.
    fn kill_if(&self, reason: ErrorCode, is_wanted: impl FnOnce(&Current) -> bool) {
        let mut current = self.current.lock();
        if current.operation_id == 0 || !is_wanted(&current) {
            return;
        }
        current.killed = Some(reason);
        if let Some(operation) = &current.operation {
            operation.kill_with(reason);
        }
        if let Some(waiting) = current.waiting.take() {
            waiting.wake();
        }
    }

    /// The command that runs now, without all else of it.
    pub(crate) fn command(&self) -> Option<&'static str> {
        let current = self.current.lock();
        (current.operation_id != 0).then_some(current.command)
    }

    /// What is running now.
    pub(crate) fn current(&self) -> Option<Current> {
        let current = self.current.lock();
        (current.operation_id != 0).then(|| current.clone())
    }
}

/// All open connections.
#[derive(Default)]
pub(crate) struct Activities {
    open: Mutex<BTreeMap<i32, Arc<Activity>>>,
    connections: AtomicU64,
    operations: AtomicU64,
    past: Arc<Mutex<Usage>>,
}

impl Activities {
    /// Registers a connection under the next number.
    pub(crate) fn open(&self, client: SocketAddr) -> Arc<Activity> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let connection_id = (number % i32::MAX as u64) as i32;
        let activity = Arc::new(Activity {
            connection_id,
            client,
            streams: AtomicBool::new(false),
            buffered: AtomicU64::new(0),
            link: OnceLock::new(),
            current: Mutex::new(Current {
                operation_id: 0,
                command: "",
                namespace: String::new(),
                session: None,
                user: None,
                body: Vec::new(),
                started: Instant::now(),
                killed: None,
                waiting: None,
                operation: None,
                examined: (0, 0),
            }),
            usage: Mutex::default(),
            past: self.past.clone(),
        });
        self.open.lock().insert(connection_id, activity.clone());
        activity
    }

    /// Forgets a connection.
    pub(crate) fn close(&self, activity: &Activity) {
        self.open.lock().remove(&activity.connection_id);
        let usage = std::mem::take(&mut *activity.usage.lock());
        self.past.lock().add(&usage);
    }

    /// What all connections did, open and closed.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        usage.add(&self.past.lock());
        for activity in self.all() {
            usage.add(&activity.usage.lock());
        }
        usage
    }

    /// How many connections are open, and how many there have been.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.open.lock().len(), self.connections.load(Ordering::Relaxed))
    }

    /// The number for the next operation.
    pub(crate) fn next_operation_id(&self) -> u64 {
        self.operations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Every connection, with what it runs now.
    pub(crate) fn all(&self) -> Vec<Arc<Activity>> {
        self.open.lock().values().cloned().collect()
    }

    /// Whether this user runs the operation with this number.
    pub(crate) fn is_of(&self, operation_id: u64, user: Option<&UserName>) -> bool {
        self.all().iter().any(|activity| {
            let current = activity.current.lock();
            operation_id != 0
                && current.operation_id == operation_id
                && user.is_some()
                && current.user.as_ref() == user
        })
    }

    /// Interrupts the operation with this number, if it still runs.
    pub(crate) fn kill(&self, operation_id: u64) {
        for activity in self.all() {
            activity.kill_if(ErrorCode::Interrupted, |current| current.operation_id == operation_id);
        }
    }

    /// Interrupts what runs in sessions for which `is_wanted` holds, but for the operation that asks.
    pub(crate) fn kill_sessions(&self, asking: u64, is_wanted: impl Fn(&SessionId) -> bool) {
        for activity in self.all() {
            activity.kill_if(ErrorCode::Interrupted, |current| {
                current.operation_id != asking && current.session.as_ref().is_some_and(&is_wanted)
            });
        }
    }

    /// Interrupts the commands for which `is_wanted` holds, since the member is no longer the primary.
    pub(crate) fn kill_at_step_down(&self, is_wanted: impl Fn(&Current) -> bool) {
        for activity in self.all() {
            activity.kill_if(ErrorCode::InterruptedDueToReplStateChange, &is_wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_killed_by_number() {
        let activities = Activities::default();
        let activity = activities.open(([127, 0, 0, 1], 1).into());
        let operation = Arc::new(Operation::new(7));
        activity.begin(7, "find", Some(SessionId::of_nobody([1; 16])), ("d", "c"), Document::EMPTY);
        activity.adopt(operation.clone());
        assert_eq!(activity.current().unwrap().namespace, "d.c");
        activities.kill(8);
        activities.kill_sessions(7, |_| true);
        activities.kill_sessions(8, |session| session.uuid == [2; 16]);
        assert!(activity.killed(Waker::noop()).is_none());
        assert_eq!(Arc::strong_count(&operation), 2);
        activities.kill(7);
        assert_eq!(activity.killed(Waker::noop()), Some(ErrorCode::Interrupted));
        activity.begin(8, "find", Some(SessionId::of_nobody([1; 16])), ("d", "c"), Document::EMPTY);
        assert!(activity.killed(Waker::noop()).is_none());
        activities.kill_sessions(7, |session| session.uuid == [1; 16]);
        assert_eq!(activity.killed(Waker::noop()), Some(ErrorCode::Interrupted));
        activity.end();
        assert!(activity.current().is_none());
        assert_eq!(Arc::strong_count(&operation), 1);
        activities.close(&activity);
        assert_eq!(activities.counts(), (0, 1));
    }
}

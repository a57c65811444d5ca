//! Current operation of each connection for currentOp and killOp, and its usage for top.
//!
//! An [`Activity`] lives as long as its connection, so a command needs no allocation for it. The
//! registry's lock is taken only when a connection opens or closes, or when the registry is read.
//!
//! A field of `currentOp` is a field of [`Current`], which the command `currentOp` prints. A new reason to interrupt
//! operations is a function of [`Activities`] that calls [`Activity::kill_if`].

use crate::observe::usage::Usage;
use crate::protocol::names::UserName;
use base::ErrorCode;
use base::bson::{Document, DocumentBuf};
use base::namespace::INTERNAL_NAMESPACE_MAX;
use database::time;
use database::{Database, Operation, SessionId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Commands without side effects. They may end if their client has disconnected.
const READS: [&str; 7] = ["aggregate", "count", "dbHash", "distinct", "explain", "find", "getMore"];

/// Buffers up to this size are not reported, in bytes.
const UNREPORTED_MAX: usize = 64 * 1024;

/// Time for a client to read a reply, also while memory is short.
const UNREAD_MAX: Duration = Duration::from_secs(1);

/// Maximum size of a command for currentOp, in bytes.
const BODY_MAX: usize = 16 * 1024;

/// Maximum size of the buffer for commands that an idle connection keeps, in bytes.
const IDLE_BODY_MAX: usize = 1024;

/// Returns the part of a requested collection name that counts and reports keep. No collection has a longer name.
pub(crate) fn recorded_name(collection: &str) -> &str {
    collection.get(..collection.floor_char_boundary(INTERNAL_NAMESPACE_MAX)).unwrap_or_default()
}

/// A handle on a client's connection for code that neither reads nor writes.
pub(crate) trait ConnectionHandle: Send + Sync {
    /// Returns true if the client has closed its sending side.
    fn is_disconnected(&self) -> bool;

    /// Closes the connection. Reads and writes then find its end.
    fn disconnect(&self);
}

/// A connection and its current operation.
pub(crate) struct Activity {
    /// Number of the connection.
    pub(crate) connection_id: i32,
    /// Address of the client.
    pub(crate) client: SocketAddr,
    /// True while hello sends replies without further requests.
    pub(crate) streams: AtomicBool,
    /// Bytes of an incomplete message, an unread reply or a waiting request. Zero for small buffers.
    pub(crate) buffered: AtomicU64,
    /// Time when a reply began to wait for the client. `None` while the client sends a message.
    pub(crate) unread_since: Mutex<Option<Instant>>,
    handle: OnceLock<Box<dyn ConnectionHandle>>,
    metadata: OnceLock<Box<DocumentBuf>>,
    current: Mutex<Current>,
    /// Usage since the last transfer to `total_usage`.
    usage: OwnUsage,
    total_usage: Arc<Mutex<TotalUsage>>,
}

/// Usage of a connection; `None` after its transfer.
type OwnUsage = Arc<Mutex<Option<Box<Usage>>>>;

/// Usage of all connections. Its lock precedes the locks of `own`.
#[derive(Default)]
struct TotalUsage {
    transferred: Usage,
    /// Usage that is not transferred, by connection. A removal visits only these connections.
    own: BTreeMap<i32, OwnUsage>,
}

/// The operation that a connection runs.
#[derive(Clone)]
pub(crate) struct Current {
    /// Operation id for killOp; 0 while no operation runs.
    pub(crate) operation_id: u64,
    /// Name of the command.
    pub(crate) command: &'static str,
    /// Database and, if the command names one, collection.
    pub(crate) namespace: String,
    /// Logical session of the operation.
    pub(crate) session: Option<SessionId>,
    /// User of the operation.
    pub(crate) user: Option<UserName>,
    /// The command, unless it is too large.
    pub(crate) body: Vec<u8>,
    pub(crate) started: Instant,
    /// True after a command, until the connection is idle.
    is_active: bool,
    /// True if the command has dropped its collection. Its usage would count for a later collection of that name.
    skips_usage: bool,
    /// Reason of an interruption.
    killed: Option<ErrorCode>,
    /// Waker of a command that waits without a thread.
    waiting: Option<Waker>,
    /// Handle that interrupts a long operation.
    pub(crate) operation: Option<Arc<Operation>>,
    /// Keys and documents that the handle had examined before this command. A cursor's handle
    /// serves several commands.
    examined: (i64, i64),
}

impl Current {
    /// Returns the operation id that clients see: 32 bits, as in MongoDB.
    pub(crate) fn shown_id(&self) -> i32 {
        self.operation_id as i32
    }

    /// Returns true if the command waits without a thread, such as for the next event of a change stream.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }
}

/// The operation of a command, with its counts before the command.
pub(crate) struct OperationUse {
    pub(crate) operation: Arc<Operation>,
    before: (i64, i64),
}

impl OperationUse {
    /// Returns the numbers of keys and documents examined for this command.
    pub(crate) fn examined(&self) -> (i64, i64) {
        let (keys, documents) = examined(&self.operation);
        (keys - self.before.0, documents - self.before.1)
    }
}

fn examined(operation: &Operation) -> (i64, i64) {
    (operation.keys_examined.load(Ordering::Relaxed), operation.docs_examined.load(Ordering::Relaxed))
}

impl Current {
    /// Returns true if the operation is on the database `local`, which each member of a set has for
    /// itself.
    pub(crate) fn is_local(&self) -> bool {
        self.namespace.starts_with("local.")
    }
}

impl Activity {
    /// Sets the handle on the client's connection, once.
    pub(crate) fn set_handle(&self, handle: Box<dyn ConnectionHandle>) {
        let _ = self.handle.set(handle);
    }

    /// Sets the client metadata of the first hello. Returns false if the connection has metadata.
    pub(crate) fn set_metadata(&self, metadata: Document<'_>) -> bool {
        self.metadata.set(Box::new(metadata.to_owned())).is_ok()
    }

    /// Returns the client metadata, if the client has sent any.
    pub(crate) fn metadata(&self) -> Option<Document<'_>> {
        self.metadata.get().map(|metadata| metadata.view())
    }

    /// Returns the application's name in the client metadata, empty if missing.
    pub(crate) fn app_name(&self) -> &str {
        self.metadata().map_or("", app_name)
    }

    /// Returns true if the client has closed its sending side.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.handle.get().is_some_and(|handle| handle.is_disconnected())
    }

    /// Closes the connection.
    pub(crate) fn disconnect(&self) {
        if let Some(handle) = self.handle.get() {
            handle.disconnect();
        }
    }

    /// Records the bytes of the buffers while the client reads a reply: see
    /// [`record_buffers`](Self::record_buffers).
    pub(crate) fn record_reply(&self, bytes: usize, database: &Database) {
        if bytes > UNREPORTED_MAX {
            *self.unread_since.lock() = Some(time::now());
        }
        self.record_buffers(bytes, database);
    }

    /// Records the end of a reply.
    pub(crate) fn end_reply(&self, database: &Database) {
        if self.buffered.load(Ordering::Relaxed) > 0 {
            *self.unread_since.lock() = None;
        }
        self.record_buffers(0, database);
    }

    /// Returns true if the connection holds an incomplete message or an old reply.
    ///
    /// Operations reserve their replies within the limit. An error may have the buffer of a large batch. Its client
    /// must receive it.
    pub(crate) fn is_stalled(&self) -> bool {
        self.unread_since.lock().is_none_or(|since| time::since(since) >= UNREAD_MAX)
    }

    /// Records the bytes of the connection's buffers while it waits for its client. All connections
    /// count towards the total of the database.
    pub(crate) fn record_buffers(&self, bytes: usize, database: &Database) {
        let reported = if bytes > UNREPORTED_MAX { bytes as u64 } else { 0 };
        let before = self.buffered.load(Ordering::Relaxed);
        if before != reported {
            self.buffered.store(reported, Ordering::Relaxed);
            database.count_messages(reported.cast_signed().wrapping_sub(before.cast_signed()));
        }
    }

    /// Interrupts the current operation if its client has disconnected, if it has run for this long, and if it has no
    /// side effects.
    pub(crate) fn interrupt_if_disconnected(&self, after: Duration) {
        let runs = |current: &Current| {
            let is_read = READS.contains(&current.command)
                && current.operation.as_ref().is_some_and(|operation| !operation.writes());
            is_read && time::since(current.started) >= after
        };
        let is_due = {
            let current = self.current.lock();
            current.operation_id != 0 && current.killed.is_none() && runs(&current)
        };
        if is_due && self.is_disconnected() {
            self.kill_if(ErrorCode::ClientDisconnect, runs);
        }
    }

    /// Marks the start of an operation with this id and time.
    pub(crate) fn begin(
        &self,
        (operation_id, started): (u64, Instant),
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
        current.skips_usage = false;
        current.started = started;
        // Reuses the allocation of the text.
        current.namespace.clear();
        current.namespace.push_str(database);
        current.namespace.push('.');
        current.namespace.push_str(recorded_name(collection));
    }

    /// Sets the connection's user.
    pub(crate) fn set_user(&self, user: Option<&UserName>) {
        let mut current = self.current.lock();
        if current.user.as_ref() != user {
            current.user = user.cloned();
        }
    }

    /// Returns the connection's user.
    pub(crate) fn user(&self) -> Option<UserName> {
        self.current.lock().user.clone()
    }

    /// Sets the operation that killOp interrupts.
    pub(crate) fn set_operation(&self, operation: Arc<Operation>) {
        let mut current = self.current.lock();
        if let Some(reason) = current.killed {
            operation.kill_with(reason);
        }
        current.examined = examined(&operation);
        current.operation = Some(operation);
    }

    /// Returns the current command's operation, if the command has begun one.
    pub(crate) fn operation(&self) -> Option<OperationUse> {
        let current = self.current.lock();
        Some(OperationUse { operation: current.operation.clone()?, before: current.examined })
    }

    /// Returns the reason of an interruption. Otherwise registers the waker for one.
    pub(crate) fn killed(&self, waker: &Waker) -> Option<ErrorCode> {
        let mut current = self.current.lock();
        if current.killed.is_none() {
            current.waiting = Some(waker.clone());
        }
        current.killed.or_else(|| current.operation.as_ref()?.killed_while_suspended(waker))
    }

    /// Returns the reason of an interruption for a waiting command.
    pub(crate) fn kill_reason(&self) -> Option<ErrorCode> {
        let current = self.current.lock();
        current.killed.or_else(|| current.operation.as_ref()?.kill_reason())
    }

    /// Marks the end of the operation.
    pub(crate) fn end(&self) {
        let mut locked = self.current.lock();
        let current = &mut *locked;
        if current.operation_id != 0 && !current.skips_usage {
            self.count(&mut current.is_active, &current.namespace, current.command, current.started);
        }
        current.operation_id = 0;
        current.operation = None;
        current.waiting = None;
        if current.body.capacity() > IDLE_BODY_MAX {
            current.body = Vec::new();
        }
    }

    /// Omits the current command from the usage.
    pub(crate) fn skip_usage(&self) {
        self.current.lock().skips_usage = true;
    }

    /// Counts a part of the current command as a command of its own.
    pub(crate) fn count_part(&self, namespace: &str, command: &str, started: Instant) {
        self.count(&mut self.current.lock().is_active, recorded_name(namespace), command, started);
    }

    fn count(&self, is_active: &mut bool, namespace: &str, command: &str, started: Instant) {
        let micros = time::since(started).as_micros() as i64;
        // A rarely used connection has no sums of its own.
        if !std::mem::replace(is_active, true) {
            self.total_usage.lock().transferred.record(namespace, command, micros);
            return;
        }
        let own = self.usage.lock().as_mut().map(|usage| usage.record(namespace, command, micros));
        let is_full = own.unwrap_or_else(|| {
            let mut total = self.total_usage.lock();
            total.own.insert(self.connection_id, self.usage.clone());
            self.usage.lock().get_or_insert_default().record(namespace, command, micros)
        });
        if is_full {
            self.transfer_usage();
        }
    }

    /// Adds the connection's usage to the total.
    fn transfer_usage(&self) {
        let mut total = self.total_usage.lock();
        total.own.remove(&self.connection_id);
        if let Some(usage) = self.usage.lock().take() {
            total.transferred.add(&usage);
        }
    }

    /// Frees memory of a connection whose last command began longer ago than this.
    pub(crate) fn release_idle(&self, after: Duration) {
        let mut current = self.current.lock();
        if current.operation_id != 0 || time::since(current.started) < after {
            return;
        }
        current.body = Vec::new();
        current.namespace = String::new();
        current.is_active = false;
        drop(current);
        self.transfer_usage();
    }

    /// Interrupts the current operation if it matches.
    fn kill_if(&self, reason: ErrorCode, matches: impl FnOnce(&Current) -> bool) {
        let mut current = self.current.lock();
        if current.operation_id == 0 || !matches(&current) {
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

    /// Returns only the name of the current command.
    pub(crate) fn command(&self) -> Option<&'static str> {
        let current = self.current.lock();
        (current.operation_id != 0).then_some(current.command)
    }

    /// Returns the current operation.
    pub(crate) fn current(&self) -> Option<Current> {
        let current = self.current.lock();
        (current.operation_id != 0).then(|| current.clone())
    }
}

/// Returns the application's name in client metadata, empty if missing.
pub(crate) fn app_name(metadata: Document<'_>) -> &str {
    let application = metadata.get("application").and_then(|value| value.as_document());
    application.and_then(|document| document.get("name")).and_then(|name| name.as_str()).unwrap_or("")
}

/// All open connections.
#[derive(Default)]
pub(crate) struct Activities {
    open: Mutex<BTreeMap<i32, Arc<Activity>>>,
    connections: AtomicU64,
    operations: AtomicU64,
    total_usage: Arc<Mutex<TotalUsage>>,
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
            unread_since: Mutex::default(),
            handle: OnceLock::new(),
            metadata: OnceLock::new(),
            current: Mutex::new(Current {
                operation_id: 0,
                command: "",
                namespace: String::new(),
                session: None,
                user: None,
                body: Vec::new(),
                started: time::now(),
                is_active: false,
                skips_usage: false,
                killed: None,
                waiting: None,
                operation: None,
                examined: (0, 0),
            }),
            usage: OwnUsage::default(),
            total_usage: self.total_usage.clone(),
        });
        self.open.lock().insert(connection_id, activity.clone());
        activity
    }

    /// Removes a connection.
    pub(crate) fn close(&self, activity: &Activity) {
        self.open.lock().remove(&activity.connection_id);
        activity.transfer_usage();
    }

    /// Returns the usage of all connections, open and closed.
    pub(crate) fn usage(&self) -> Usage {
        // The lock keeps transfers out, so each count is read once.
        let total = self.total_usage.lock();
        let mut usage = Usage::default();
        usage.add(&total.transferred);
        for own in total.own.values() {
            if let Some(own) = own.lock().as_deref() {
                usage.add(own);
            }
        }
        usage
    }

    /// Removes collections from the usage of all connections.
    pub(crate) fn remove_usage(&self, remove: impl Fn(&mut Usage)) {
        let mut total = self.total_usage.lock();
        remove(&mut total.transferred);
        for own in total.own.values() {
            if let Some(own) = own.lock().as_deref_mut() {
                remove(own);
            }
        }
    }

    /// Returns true if the usage of a collection was omitted.
    pub(crate) fn is_usage_overfull(&self) -> bool {
        self.total_usage.lock().transferred.is_overfull()
    }

    /// Removes the usage of collections that do not exist.
    pub(crate) fn remove_dropped_usage(&self, exists: impl Fn(&str) -> bool) {
        self.total_usage.lock().transferred.remove_dropped(exists);
    }

    /// Returns the number of open connections and of all connections since the start.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.open.lock().len(), self.connections.load(Ordering::Relaxed))
    }

    /// Returns the latest operation id.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Returns the next operation id.
    pub(crate) fn next_operation_id(&self) -> u64 {
        self.operations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns all connections with their current operations.
    pub(crate) fn all(&self) -> Vec<Arc<Activity>> {
        self.open.lock().values().cloned().collect()
    }

    /// Returns true if this user runs the operation with this shown id.
    pub(crate) fn is_owned_by(&self, shown_id: i32, user: Option<&UserName>) -> bool {
        self.all().iter().any(|activity| {
            let current = activity.current.lock();
            current.operation_id != 0
                && current.shown_id() == shown_id
                && user.is_some()
                && current.user.as_ref() == user
        })
    }

    /// Interrupts the operation with this shown id if it still runs.
    pub(crate) fn kill(&self, shown_id: i32) {
        for activity in self.all() {
            activity.kill_if(ErrorCode::Interrupted, |current| current.shown_id() == shown_id);
        }
    }

    /// Interrupts operations in matching sessions, except for the calling operation.
    pub(crate) fn kill_sessions(&self, caller: u64, matches: impl Fn(&SessionId) -> bool) {
        for activity in self.all() {
            activity.kill_if(ErrorCode::Interrupted, |current| {
                current.operation_id != caller && current.session.as_ref().is_some_and(&matches)
            });
        }
    }

    /// Interrupts matching commands, because the member is no longer the primary.
    pub(crate) fn kill_at_step_down(&self, matches: impl Fn(&Current) -> bool) {
        for activity in self.all() {
            activity.kill_if(ErrorCode::InterruptedDueToReplStateChange, &matches);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_recorded_by_their_start() {
        let activities = Activities::default();
        let activity = activities.open(([127, 0, 0, 1], 1).into());
        for number in 0..3 {
            let name = format!("{}{number}", "é".repeat(300));
            activity.begin((7, time::now()), "find", None, ("d", &name), Document::EMPTY);
            activity.end();
        }
        let usage = activities.usage();
        assert_eq!(usage.of(&format!("d.{}", "é".repeat(256))).map(|usage| usage.total().count), Some(3));
    }

    #[test]
    fn an_idle_connection_transfers_its_counts_once() {
        let activities = Activities::default();
        let activity = activities.open(([127, 0, 0, 1], 1).into());
        let count = || activities.usage().of("d.c").map_or(0, |usage| usage.total().count);
        let run = || {
            activity.begin((7, time::now()), "find", None, ("d", "c"), Document::EMPTY);
            activity.end();
        };
        run();
        assert!(activity.usage.lock().is_none(), "the first command counts in the total");
        run();
        activity.release_idle(Duration::from_secs(3600));
        assert!(activity.usage.lock().is_some(), "too early");
        activity.release_idle(Duration::ZERO);
        assert!(activity.usage.lock().is_none());
        assert_eq!(count(), 2);
        run();
        activity.begin((8, time::now()), "find", None, ("d", "c"), Document::EMPTY);
        activity.release_idle(Duration::ZERO);
        assert_eq!(activity.current().unwrap().namespace, "d.c", "it runs");
        assert_eq!(count(), 3);
        activity.end();
        activities.close(&activity);
        assert_eq!(count(), 4);
    }

    #[test]
    fn removed_collections_begin_again() {
        let activities = Activities::default();
        let connections: Vec<_> = (0..2).map(|_| activities.open(([127, 0, 0, 1], 1).into())).collect();
        let run = |activity: &Activity, namespace: (&str, &str), drops: bool| {
            activity.begin((7, time::now()), "find", None, namespace, Document::EMPTY);
            if drops {
                activities.remove_usage(|usage| usage.remove(&format!("{}.{}", namespace.0, namespace.1)));
                activity.skip_usage();
            }
            activity.end();
        };
        let count = |name: &str| activities.usage().of(name).map_or(0, |usage| usage.total().count);
        // The first command of a connection counts in the total, the others in its own usage.
        for activity in &connections {
            (0..3).for_each(|_| run(activity, ("d", "c"), false));
            run(activity, ("d", "other"), false);
            run(activity, ("d2", "c"), false);
        }
        assert_eq!((count("d.c"), count("d.other"), count("d2.c")), (6, 2, 2));
        run(&connections[0], ("d", "c"), true);
        assert_eq!((count("d.c"), count("d.other"), count("d2.c")), (0, 2, 2));
        connections.iter().for_each(|activity| run(activity, ("d", "c"), false));
        assert_eq!(count("d.c"), 2);
        activities.remove_usage(|usage| usage.remove_database("d"));
        assert_eq!((count("d.c"), count("d.other"), count("d2.c")), (0, 0, 2));
        connections.iter().for_each(|activity| activities.close(activity));
        assert_eq!((count("d.c"), count("d.other"), count("d2.c")), (0, 0, 2));
        assert!(activities.total_usage.lock().own.is_empty());
    }

    #[test]
    fn operations_are_killed_by_number() {
        let activities = Activities::default();
        let activity = activities.open(([127, 0, 0, 1], 1).into());
        let operation = Arc::new(Operation::new(7));
        let session = Some(SessionId::without_user([1; 16]));
        activity.begin((7, time::now()), "find", session, ("d", "c"), Document::EMPTY);
        activity.set_operation(operation.clone());
        assert_eq!(activity.current().unwrap().namespace, "d.c");
        activities.kill(8);
        activities.kill_sessions(7, |_| true);
        activities.kill_sessions(8, |session| session.uuid == [2; 16]);
        assert!(activity.killed(Waker::noop()).is_none());
        assert_eq!(Arc::strong_count(&operation), 2);
        activities.kill(7);
        assert_eq!(activity.killed(Waker::noop()), Some(ErrorCode::Interrupted));
        activity.begin(((1 << 32) + 7, time::now()), "find", None, ("d", "c"), Document::EMPTY);
        activities.kill(7);
        assert_eq!(activity.killed(Waker::noop()), Some(ErrorCode::Interrupted), "32 bits are compared");
        activity.begin((8, time::now()), "find", session, ("d", "c"), Document::EMPTY);
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

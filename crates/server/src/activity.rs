//! What each connection is doing: for currentOp and killOp, and to interrupt long work.
//!
//! One [`Activity`] lives as long as its connection, so that starting a command allocates
//! nothing; the registry is locked only when a connection comes or goes, or is looked at.

use base::{Result, err};
use database::Operation;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A connection's present operation, and the means to stop it.
pub(crate) struct Activity {
    /// The connection's number.
    pub(crate) connection_id: i32,
    /// Who is connected.
    pub(crate) client: SocketAddr,
    current: Mutex<Current>,
    opened: Instant,
    /// Microseconds after `opened` at which the operation has taken too long; 0 is never.
    deadline_micros: AtomicU64,
    killed: AtomicBool,
    stopping: Arc<AtomicBool>,
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
    /// When it began.
    pub(crate) started: Instant,
    /// What the database runs for it.
    operation: Option<Arc<Operation>>,
}

impl Activity {
    /// Marks the beginning of an operation.
    pub(crate) fn begin(
        &self,
        operation_id: u64,
        command: &'static str,
        (database, collection): (&str, &str),
        limit: Option<Duration>,
    ) {
        let deadline = limit.map_or(0, |limit| (self.opened.elapsed() + limit).as_micros() as u64);
        self.deadline_micros.store(deadline, Ordering::Relaxed);
        self.killed.store(false, Ordering::Relaxed);
        let mut current = self.current.lock();
        current.operation_id = operation_id;
        current.command = command;
        current.started = Instant::now();
        // The text's memory serves again and again.
        current.namespace.clear();
        current.namespace.push_str(database);
        current.namespace.push('.');
        current.namespace.push_str(collection);
    }

    /// Marks its end.
    pub(crate) fn end(&self) {
        let mut current = self.current.lock();
        current.operation_id = 0;
        current.operation = None;
    }

    /// The number of the operation that runs now.
    pub(crate) fn operation_id(&self) -> u64 {
        self.current.lock().operation_id
    }

    /// Notes what the database runs for the present operation, so that it can be interrupted.
    pub(crate) fn attach(&self, operation: &Arc<Operation>) {
        if self.killed.load(Ordering::Relaxed) {
            operation.kill();
        }
        self.current.lock().operation = Some(operation.clone());
    }

    /// What is running now.
    pub(crate) fn current(&self) -> Option<Current> {
        let current = self.current.lock();
        (current.operation_id != 0).then(|| current.clone())
    }

    /// Whether the operation may go on; cheap enough to be asked in every loop.
    ///
    /// Errors: MaxTimeMSExpired, Interrupted, InterruptedAtShutdown.
    pub(crate) fn check(&self) -> Result<()> {
        if self.killed.load(Ordering::Relaxed) {
            return Err(err!(Interrupted, "operation was interrupted"));
        }
        if self.stopping.load(Ordering::Relaxed) {
            return Err(err!(InterruptedAtShutdown, "interrupted at shutdown"));
        }
        let deadline = self.deadline_micros.load(Ordering::Relaxed);
        if deadline != 0 && self.opened.elapsed().as_micros() as u64 >= deadline {
            return Err(err!(MaxTimeMSExpired, "operation exceeded time limit"));
        }
        Ok(())
    }
}

/// All open connections.
#[derive(Default)]
pub(crate) struct Activities {
    open: Mutex<BTreeMap<i32, Arc<Activity>>>,
    connections: AtomicU64,
    operations: AtomicU64,
    stopping: Arc<AtomicBool>,
}

impl Activities {
    /// Registers a connection under the next number.
    pub(crate) fn open(&self, client: SocketAddr) -> Arc<Activity> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let connection_id = (number % i32::MAX as u64) as i32;
        let activity = Arc::new(Activity {
            connection_id,
            client,
            current: Mutex::new(Current {
                operation_id: 0,
                command: "",
                namespace: String::new(),
                started: Instant::now(),
                operation: None,
            }),
            opened: Instant::now(),
            deadline_micros: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            stopping: self.stopping.clone(),
        });
        self.open.lock().insert(connection_id, activity.clone());
        activity
    }

    /// Forgets a connection.
    pub(crate) fn close(&self, activity: &Activity) {
        self.open.lock().remove(&activity.connection_id);
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

    /// Interrupts the operation with this number, if it still runs.
    pub(crate) fn kill(&self, operation_id: u64) {
        for activity in self.all() {
            let current = activity.current.lock();
            if current.operation_id == operation_id {
                activity.killed.store(true, Ordering::Relaxed);
                if let Some(operation) = &current.operation {
                    operation.kill();
                }
            }
        }
    }

    /// Interrupts everything that runs, now and later.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for activity in self.all() {
            if let Some(operation) = &activity.current.lock().operation {
                operation.kill();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_killed_by_number_and_time_out() {
        let activities = Activities::default();
        let activity = activities.open(([127, 0, 0, 1], 1).into());
        activity.begin(7, "find", ("d", "c"), None);
        assert_eq!(activity.current().unwrap().namespace, "d.c");
        activities.kill(8);
        assert!(activity.check().is_ok());
        activities.kill(7);
        assert_eq!(activity.check().unwrap_err().code().number(), 11601);
        activity.begin(9, "find", ("d", "c"), Some(Duration::from_micros(1)));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(activity.check().unwrap_err().code().number(), 50);
        activity.end();
        activities.close(&activity);
        assert_eq!(activities.counts(), (0, 1));
    }
}

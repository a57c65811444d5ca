//! State of a request between its waits, which handlers see.

use crate::observe::profiler::Notes;
use crate::state::fail_point::Failure;
use database::{Database, LargePlace, Position, Queue, RecordTicket, Ticket};
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State of a request between waits.
#[derive(Default)]
pub(crate) struct Progress {
    /// Operation id and start, constant over all waits.
    pub(crate) began: Option<RequestStart>,
    /// Ticket of the session's queue of statements.
    pub(crate) ticket: Option<Ticket<Arc<Queue>>>,
    /// Execution ticket, until the handler's first call begins.
    pub(crate) execution: Option<Ticket<Arc<Queue>>>,
    /// True once the handler has been called.
    pub(crate) has_run: bool,
    /// The handler's state between its calls, after a statement was suspended.
    pub(crate) suspended: Option<Box<SuspendedCommand>>,
    /// Deadline of the handler's wait, after its first call.
    pub(crate) waiting_until: Option<Instant>,
    /// Effect of fail points, kept during waits.
    pub(crate) failure: Option<Box<Failure>>,
    /// Set by a statement of a transaction whose reply has errors. They abort the transaction.
    pub(crate) statement_failed: bool,
    /// Last reply, if further replies follow without requests.
    pub(crate) stream: Option<Stream>,
}

impl Progress {
    /// Returns the state of the handler before its statement was suspended.
    pub(crate) fn take_state(&mut self) -> Option<HandlerState> {
        self.suspended.as_mut()?.handler_state.take()
    }

    /// Returns true if the handler keeps its state while its statement waits.
    pub(crate) fn is_kept(&self) -> bool {
        self.suspended.as_ref().is_some_and(|suspended| suspended.handler_state.is_some())
    }

    /// Returns true if the command may have changed something before its statement was suspended.
    pub(crate) fn has_changes(&self, database: &Database) -> bool {
        let began = self.suspended.as_ref().and_then(|suspended| suspended.began);
        began.is_some_and(|(_, before)| database.latest_position() != before)
    }
}

/// What a handler keeps between its calls.
pub(crate) type HandlerState = Box<dyn Any + Send>;

/// State of a command whose statement waits without a thread.
#[derive(Default)]
pub(crate) struct SuspendedCommand {
    /// Context of the statement's errors.
    pub(crate) context: Option<String>,
    /// Time limit of the command, from its arguments or from query settings.
    pub(crate) max_time: Option<Duration>,
    /// Ticket of the statement in the queue of its record.
    pub(crate) ticket: Cell<Option<RecordTicket>>,
    /// Place of a read among the operations that hold much memory.
    pub(crate) place: Cell<Option<Arc<LargePlace>>>,
    /// State of the handler. Without it, the handler begins again.
    pub(crate) handler_state: Option<HandlerState>,
    /// First call of the handler, and the latest commit before it.
    pub(crate) began: Option<(Instant, Position)>,
    /// Results of single statements, while the profiler is on.
    pub(crate) notes: Option<Notes>,
}

/// Start of a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestStart {
    /// Operation id for killOp.
    pub(crate) operation_id: u64,
    /// Arrival time.
    pub(crate) at: Instant,
}

/// A series of replies to one request (exhaust).
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    /// Id of the last reply. The next reply refers to it.
    pub(crate) last_reply: i32,
    /// Topology version in the last reply.
    pub(crate) topology_version: i64,
}

//! State of a request between its waits, which handlers see.

use crate::state::fail_point::Failure;
use database::{Queue, RecordTicket, Ticket};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// State of a request between waits.
#[derive(Default)]
pub(crate) struct Progress {
    /// Operation id and start, constant over all waits.
    pub(crate) began: Option<RequestStart>,
    /// Place in the session's queue of statements.
    pub(crate) ticket: Option<Ticket<Arc<Queue>>>,
    /// True if a statement of the command has waited without a thread.
    pub(crate) was_suspended: bool,
    /// Context of this statement's errors.
    pub(crate) suspended_in: Option<String>,
    /// Place of this statement in the queue of its record.
    pub(crate) turn: Cell<Option<RecordTicket>>,
    /// Deadline of the handler's wait, after its first call.
    pub(crate) waiting_until: Option<Instant>,
    /// Effect of fail points, kept during waits.
    pub(crate) failure: Option<Box<Failure>>,
    /// Set by a statement of a transaction whose reply has errors. They abort the transaction.
    pub(crate) statement_failed: bool,
    /// Last reply, if further replies follow without requests.
    pub(crate) stream: Option<Stream>,
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

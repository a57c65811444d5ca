//! One command on its way: what a handler works with.

use crate::arguments::{Arguments, is_generic};
use crate::command::Command;
use crate::connection::ConnectionState;
use crate::dispatch::Hold;
use crate::event::Event;
use crate::fields::Fields;
use crate::profiler::Notes;
use crate::request::Progress;
use crate::server::Server;
use base::bson::{Builder, Document};
use database::{OpenTransaction, Operation};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use wire::request::Request;

/// The surroundings of one command while its handler runs.
pub(crate) struct Call<'a> {
    /// What all connections share.
    pub(crate) server: &'a Server,
    /// The connection that asks.
    pub(crate) connection: &'a mut ConnectionState,
    /// What is known of the request since it began.
    pub(crate) progress: &'a mut Progress,
    /// What is asked.
    pub(crate) request: &'a Request<'a>,
    /// The row of the table that is running.
    pub(crate) command: &'static Command,
    /// The general arguments.
    pub(crate) arguments: Arguments<'a>,
    /// The reply so far; `ok` and what every reply carries are appended afterwards.
    pub(crate) reply: &'a mut Builder,
    /// The transaction that it is a statement of.
    pub(crate) transaction: Option<Arc<OpenTransaction>>,
    /// The number by which killOp knows this command.
    pub(crate) operation_id: u64,
    /// Whether the client takes further replies unasked.
    pub(crate) exhaust_allowed: bool,
    /// Set by a handler that goes on replying, to the topology's version that it told: the same
    /// request is then handled again.
    pub(crate) streams: Option<i64>,
    /// What the command's statements did each, where the profiler listens.
    pub(crate) notes: Option<Notes>,
    /// Set by a handler that reads a change stream.
    pub(crate) reads_stream: bool,
    /// Whether the cursor that it reads may show only what no crash undoes.
    pub(crate) durable: bool,
    /// What has to happen before the reply goes out.
    pub(crate) hold: Option<Hold>,
}

/// How a handler ends, and a request, errors apart.
pub(crate) enum Answer {
    /// The reply is written.
    Done,
    /// There is nothing to say yet: the handler is called again, and the request polled, after the event.
    Wait(Event),
    /// The connection is to be closed without a reply.
    Close,
}

impl<'a> Call<'a> {
    /// The command's own fields, to be taken one by one.
    pub(crate) fn fields(&self) -> Fields<'a> {
        Fields::of_command(self.request, is_generic)
    }

    /// Notes a statement that has ended, where the profiler listens.
    pub(crate) fn note(
        &mut self,
        statement: Document<'_>,
        operation: &Operation,
        count: impl FnOnce(&mut Builder),
    ) {
        if let Some(notes) = &mut self.notes {
            notes.add(statement, operation, count);
        }
    }

    /// What the database is given for work that may take long: it stops at maxTimeMS, killOp and
    /// shutdown.
    ///
    /// Its `blocking` runs work so that other clients aren't kept waiting: the network thread
    /// gives its other connections away meanwhile. That costs some ten microseconds, so the
    /// database does it only around plans expected to read many documents.
    pub(crate) fn operation(&self) -> Arc<Operation> {
        let mut operation = self.server.database.operation(self.operation_id);
        operation.no_table_scan = self.server.parameters.no_table_scan();
        operation.limit_memory(self.server.parameters.operation_memory());
        let operation = Arc::new(operation);
        if let Some(limit) = self.arguments.max_time {
            // Time spent waiting for others counts.
            let waited = self.progress.began.map_or(Duration::ZERO, |began| began.at.elapsed());
            let left = limit.saturating_sub(waited).as_micros().div_ceil(1000);
            operation.set_max_time((left as u64).max(1));
        }
        if let Some(transaction) = &self.transaction {
            operation.join(transaction.clone());
        }
        self.adopt(&operation);
        operation
    }

    /// Says that this command carries an operation on, such as a cursor's.
    pub(crate) fn adopt(&self, operation: &Arc<Operation>) {
        self.connection.activity.adopt(operation.clone());
    }

    /// Waits at most this long since the handler was first called: `None` once the time is over
    /// and the handler must answer.
    pub(crate) fn wait(
        &mut self,
        at_most: Duration,
        ready: impl FnMut(&Waker) -> bool + Send + 'static,
    ) -> Option<Answer> {
        let now = Instant::now();
        let until = *self.progress.waiting_until.get_or_insert(now + at_most);
        (now < until).then(|| Answer::Wait(Event::Other { until, ready: Box::new(ready) }))
    }
}

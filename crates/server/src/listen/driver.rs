//! Serves a connection without a socket: bytes come in, replies go out, and events are awaited.
//!
//! [`Driver::advance`] continues until it needs the socket. Both network threads and dedicated
//! threads drive it, and may alternate, because the driver has all state of the connection.
//!
//! `net.rs` and the simulator call the driver. A rule about frames belongs to [`Driver::frame`], a rule about requests
//! to [`dispatch`](crate::dispatch).

use crate::call::HandlerStatus;
use crate::dispatch::request::Request;
use crate::process::blocking::{in_place, network_threads};
use crate::process::event::Event;
use crate::process::memory;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use std::num::NonZeroI64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::header::{FrameError, frame_length};

/// Next action of the driver's caller.
pub(crate) enum DriverAction {
    /// Read more bytes into `input`.
    Read,
    /// Send the [`unsent`](Driver::unsent) bytes.
    Send,
    /// Take `event` and wait for it.
    Wait,
    /// Close the connection: these bytes are not a request.
    Refuse(Box<str>),
    /// Close the connection.
    Close,
}

/// Kind of thread that runs a driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// A thread that also serves other connections.
    Shared,
    /// A thread dedicated to this connection.
    Dedicated,
}

/// Protocol state of a connection: received bytes, current request, unsent reply.
pub(crate) struct Driver {
    pub(crate) server: Arc<Server>,
    pub(crate) state: ConnectionState,
    /// Received bytes: first the handled, then the unhandled bytes.
    pub(crate) input: Vec<u8>,
    /// Number of handled bytes in `input`.
    handled: usize,
    /// Request that waits or has further replies.
    request: Option<Box<Request>>,
    /// Event that the request waits for.
    pub(crate) event: Option<Event>,
    /// Bytes of the current reply.
    out: Vec<u8>,
    /// Number of sent bytes of the reply.
    sent: usize,
    /// True while the server counts the connection as busy: from a frame to its reply, except
    /// during waits.
    is_busy: bool,
    /// True if the connection closes after the unsent bytes.
    closes: bool,
}

impl Driver {
    /// Returns true if the request that waits for this event ends without its client: it waits only for the journal, or
    /// in the middle of its writes, or it is a write without a reply.
    pub(crate) fn ignores_disconnects(&self, event: &Event) -> bool {
        matches!(event, Event::Journaled { .. })
            || self.request.as_ref().is_some_and(|request| request.is_kept() || request.is_unacknowledged())
    }

    /// Creates the driver of a new connection.
    pub(crate) fn new(server: Arc<Server>, state: ConnectionState) -> Driver {
        Driver {
            server,
            state,
            input: Vec::new(),
            handled: 0,
            request: None,
            event: None,
            out: Vec::new(),
            sent: 0,
            is_busy: false,
            closes: false,
        }
    }

    /// Continues as far as possible.
    pub(crate) fn advance(&mut self, thread_kind: ThreadKind) -> DriverAction {
        loop {
            if !self.unsent().is_empty() {
                return DriverAction::Send;
            }
            if self.out.capacity() != 0 {
                self.sent = 0;
                memory::release_buffer(std::mem::take(&mut self.out));
            }
            if self.closes {
                return DriverAction::Close;
            }
            if let Some(event) = &self.event {
                // A request that waits only for the journal will reply soon.
                self.set_busy(matches!(event, Event::Journaled { .. }));
                return DriverAction::Wait;
            }
            let work = match self.request.take() {
                Some(request) => Work::Resume(request),
                None => match self.frame() {
                    Ok(frame) => Work::Begin(frame),
                    Err(next) => {
                        self.set_busy(false);
                        return next;
                    }
                },
            };
            self.set_busy(true);
            self.out = match &work {
                // The reply has its buffer already.
                Work::Resume(request) if request.has_pending_reply() => Vec::new(),
                _ => memory::take_buffer(),
            };
            let Driver { server, state, out, .. } = self;
            let done = match thread_kind {
                ThreadKind::Dedicated => work.run(state, server, out),
                ThreadKind::Shared => run_shared(work, state, server, out),
            };
            self.store_result(done);
        }
    }

    /// Returns the next frame of the input, or the action that it requires.
    fn frame(&mut self) -> Result<Vec<u8>, DriverAction> {
        let rest = self.input.get(self.handled..).unwrap_or_default();
        let length = match frame_length(rest) {
            Ok(Some(length))
                if length > self.state.largest_message(&self.server.auth, &self.server.parameters) =>
            {
                let why = "before authentication, a message of";
                return Err(DriverAction::Refuse(format!("{why} {length} bytes is too large").into()));
            }
            Ok(length) => length.filter(|length| *length <= rest.len()),
            Err(FrameError::Malformed(reason)) => return Err(DriverAction::Refuse(reason.into())),
            Err(FrameError::Refused(_)) => return Err(DriverAction::Close),
        };
        match length {
            Some(length) if self.handled == 0 && length == self.input.len() => {
                Ok(std::mem::take(&mut self.input))
            }
            Some(length) => {
                let mut frame = memory::take_buffer();
                frame.extend_from_slice(rest.get(..length).unwrap_or_default());
                self.handled += length;
                Ok(frame)
            }
            None => {
                self.input.drain(..self.handled);
                self.handled = 0;
                if self.input.is_empty() && self.input.capacity() != 0 {
                    memory::release_buffer(std::mem::take(&mut self.input));
                }
                Err(DriverAction::Read)
            }
        }
    }

    /// Stores the result of a request.
    fn store_result(&mut self, done: Result<(HandlerStatus, Option<Box<Request>>), FrameError>) {
        let mut is_stopping = self.server.network.is_stopping();
        match done {
            Ok((HandlerStatus::Done, request)) => self.request = request.filter(|request| request.streams()),
            Ok((HandlerStatus::Wait(event), request)) => {
                // A finished command still gets its reply during a shutdown.
                is_stopping &= !matches!(event, Event::Journaled { .. });
                self.event = Some(event);
                self.request = request;
            }
            Ok((HandlerStatus::Close, _)) => self.closes = true,
            Err(error) => {
                let activity = &self.state.activity;
                let reason = match error {
                    FrameError::Malformed(reason) => reason,
                    FrameError::Refused(error) => error.to_string(),
                };
                log::warn!(
                    "closing connection {} from {}: {reason}",
                    activity.connection_id,
                    activity.client
                );
                self.closes = true;
            }
        }
        // The request was refused, or it was the last of this connection.
        self.closes |= is_stopping;
    }

    /// Returns the bytes to be sent to the client.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// Records sent bytes.
    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        self.server.counters.bytes_out.add(bytes as u64);
    }

    /// Returns the memory of the buffers and of a waiting request in bytes.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let request = self.request.as_ref().map_or(0, |request| request.frame_bytes());
        self.out.capacity() + self.input.capacity() + request
    }

    /// Returns true if the client receives further replies without requests.
    pub(crate) fn streams(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.streams())
    }

    /// Closes the connection after the unsent bytes are sent.
    pub(crate) fn close(&mut self) {
        self.closes = true;
    }

    fn set_busy(&mut self, is_busy: bool) {
        match (self.is_busy, is_busy) {
            (false, true) => _ = self.server.network.active_requests.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.server.network.active_requests.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        self.is_busy = is_busy;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.set_busy(false);
        if self.state.is_load_balanced {
            // A request that waits uses them.
            self.request = None;
            in_place(|| end_load_balanced(&self.server, &self.state));
        }
    }
}

/// Lets the transaction expire and kills the cursor of a load-balanced connection that closes. Another front could not
/// end them, and a transaction would keep its locks until transactionLifetimeLimitSeconds.
fn end_load_balanced(server: &Server, state: &ConnectionState) {
    if let Some(session) = &state.session {
        session.close_transaction_connection(state.activity.connection_id);
    }
    if let Some(id) = state.cursor.map(NonZeroI64::get) {
        server.database.kill_cursor(id);
    }
}

/// The next work on a request.
enum Work {
    Begin(Vec<u8>),
    Resume(Box<Request>),
}

impl Work {
    fn run(
        self,
        state: &mut ConnectionState,
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<(HandlerStatus, Option<Box<Request>>), FrameError> {
        match self {
            Work::Begin(frame) => Request::begin(state, server, frame, out),
            Work::Resume(mut request) => Ok((request.poll(state, server, out), Some(request))),
        }
    }
}

/// Runs work on a shared thread.
///
/// The last idle network thread first hands over its connections. New requests therefore find a
/// thread, however long the running requests take.
fn run_shared(
    work: Work,
    state: &mut ConnectionState,
    server: &Server,
    out: &mut Vec<u8>,
) -> Result<(HandlerStatus, Option<Box<Request>>), FrameError> {
    let others = server.network.active_threads.fetch_add(1, Ordering::Relaxed);
    if others + 1 < network_threads() {
        state.is_on_network_thread = true;
        let done = work.run(state, server, out);
        state.leave_network_thread(&server.network);
        return done;
    }
    server.network.active_threads.fetch_sub(1, Ordering::Relaxed);
    in_place(|| work.run(state, server, out))
}

//! Serves one connection without a socket: bytes come in, replies go out, events are waited for.
//!
//! [`Driver::advance`] goes on until it needs something of the socket. A network thread and the thread of a single client
//! drive it alike, and may take turns: all that is under way is in the driver.

use crate::blocking::{in_place, network_threads};
use crate::buffers;
use crate::call::Answer;
use crate::connection::ConnectionState;
use crate::event::Event;
use crate::request::Request;
use crate::server::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::header::{Trouble, frame_length};

/// What a driver needs.
pub(crate) enum Next {
    /// More bytes in `input`.
    Read,
    /// That the client gets what is [`unsent`](Driver::unsent).
    Send,
    /// That its `event` is waited for, and taken away.
    Wait,
    /// The end: these bytes are no request.
    Refuse(String),
    /// The end.
    Close,
}

/// Whose thread a driver runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// One that serves other connections too.
    SharedThread,
    /// One of this connection alone.
    OwnThread,
}

/// One connection.
pub(crate) struct Driver {
    pub(crate) server: Arc<Server>,
    pub(crate) state: ConnectionState,
    /// What has come of the client and isn't handled yet, behind what is.
    pub(crate) input: Vec<u8>,
    /// How much of the input is handled.
    handled: usize,
    /// The request that waits, or that has further replies.
    request: Option<Box<Request>>,
    /// What the request waits for.
    pub(crate) event: Option<Event>,
    /// A reply.
    out: Vec<u8>,
    /// How much of the reply the client has got.
    sent: usize,
    /// Whether the server counts it as busy: from a frame to its reply, but for waits.
    is_busy: bool,
    closes: bool,
}

impl Driver {
    /// A connection that has heard nothing yet.
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

    /// Goes on as far as it can.
    pub(crate) fn advance(&mut self, on: On) -> Next {
        loop {
            if !self.unsent().is_empty() {
                return Next::Send;
            }
            if self.out.capacity() != 0 {
                self.sent = 0;
                buffers::give(std::mem::take(&mut self.out));
            }
            if self.closes {
                return Next::Close;
            }
            if let Some(event) = &self.event {
                // Whoever only waits for the journal is about to get a reply.
                self.set_busy(matches!(event, Event::Journaled { .. }));
                return Next::Wait;
            }
            let work = match self.request.take() {
                Some(request) => Work::GoOn(request),
                None => match self.frame() {
                    Ok(frame) => Work::Begin(frame),
                    Err(next) => {
                        self.set_busy(false);
                        return next;
                    }
                },
            };
            self.set_busy(true);
            self.out = buffers::take();
            let Driver { server, state, out, .. } = self;
            let done = match on {
                On::OwnThread => work.run(state, server, out),
                On::SharedThread => run_shared(work, state, server, out),
            };
            self.note(done);
        }
    }

    /// The next frame of the input, or what is needed first.
    fn frame(&mut self) -> Result<Vec<u8>, Next> {
        let rest = self.input.get(self.handled..).unwrap_or_default();
        let length = match frame_length(rest) {
            Ok(Some(length)) if length > self.state.largest_message(&self.server) => {
                let why = "nobody has logged in, and a message of";
                return Err(Next::Refuse(format!("{why} {length} bytes is too large for that")));
            }
            Ok(length) => length.filter(|length| *length <= rest.len()),
            Err(Trouble::Malformed(what)) => return Err(Next::Refuse(what)),
            Err(Trouble::Refused(_)) => return Err(Next::Close),
        };
        match length {
            Some(length) if self.handled == 0 && length == self.input.len() => {
                Ok(std::mem::take(&mut self.input))
            }
            Some(length) => {
                let mut frame = buffers::take();
                frame.extend_from_slice(rest.get(..length).unwrap_or_default());
                self.handled += length;
                Ok(frame)
            }
            None => {
                self.input.drain(..self.handled);
                self.handled = 0;
                if self.input.is_empty() && self.input.capacity() != 0 {
                    buffers::give(std::mem::take(&mut self.input));
                }
                Err(Next::Read)
            }
        }
    }

    /// Takes up what came of a request.
    fn note(&mut self, done: Result<(Answer, Option<Box<Request>>), Trouble>) {
        let mut is_stopping = self.server.stopping.load(Ordering::Acquire);
        match done {
            Ok((Answer::Done, request)) => self.request = request.filter(|request| request.streams()),
            Ok((Answer::Wait(event), request)) => {
                // What is done is still replied to.
                is_stopping &= !matches!(event, Event::Journaled { .. });
                self.event = Some(event);
                self.request = request;
            }
            Ok((Answer::Close, _)) => self.closes = true,
            Err(trouble) => {
                let activity = &self.state.activity;
                let what = match trouble {
                    Trouble::Malformed(what) => what,
                    Trouble::Refused(error) => error.to_string(),
                };
                log::warn!("closing connection {} from {}: {what}", activity.connection_id, activity.client);
                self.closes = true;
            }
        }
        // It has been refused, or was the last that is answered here.
        self.closes |= is_stopping;
    }

    /// What is to be sent to the client.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// Notes that so many bytes more have been sent.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        self.server.counters.bytes_out.add(bytes as u64);
    }

    /// How many bytes of memory its buffers take.
    pub(crate) fn held(&self) -> usize {
        self.out.capacity() + self.input.capacity()
    }

    /// Whether the client gets further replies unasked.
    pub(crate) fn streams(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.streams())
    }

    /// Ends the connection as soon as the client has got what is unsent.
    pub(crate) fn close(&mut self) {
        self.closes = true;
    }

    fn set_busy(&mut self, is_busy: bool) {
        match (self.is_busy, is_busy) {
            (false, true) => _ = self.server.busy.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.server.busy.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        self.is_busy = is_busy;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.set_busy(false);
    }
}

/// What is to be done next.
enum Work {
    Begin(Vec<u8>),
    GoOn(Box<Request>),
}

impl Work {
    fn run(
        self,
        state: &mut ConnectionState,
        server: &Server,
        out: &mut Vec<u8>,
    ) -> Result<(Answer, Option<Box<Request>>), Trouble> {
        match self {
            Work::Begin(frame) => Request::begin(state, server, frame, out),
            Work::GoOn(mut request) => Ok((request.poll(state, server, out), Some(request))),
        }
    }
}

/// Works on a thread that serves others too. The last idle thread hands its connections on first. So new requests find
/// a thread, however long the others take.
fn run_shared(
    work: Work,
    state: &mut ConnectionState,
    server: &Server,
    out: &mut Vec<u8>,
) -> Result<(Answer, Option<Box<Request>>), Trouble> {
    let others = server.occupied.fetch_add(1, Ordering::Relaxed);
    // What a server of another machine has to be asked always takes long.
    if others + 1 < network_threads() && !server.settings.shared {
        let done = work.run(state, server, out);
        server.occupied.fetch_sub(1, Ordering::Relaxed);
        return done;
    }
    server.occupied.fetch_sub(1, Ordering::Relaxed);
    let (mut work, mut done) = (Some(work), Ok((Answer::Close, None)));
    in_place(&mut || {
        if let Some(work) = work.take() {
            done = work.run(state, server, out);
        }
    });
    done
}

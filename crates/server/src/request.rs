//! A request on its way: its message, taken apart once, and what is known of it between its waits.
//!
//! [`Request::poll`] knows no socket. Whoever serves the connection waits for the event that it returns, without a
//! thread, and polls again. It never panics outwards: a panic in a handler becomes an InternalError for that client and
//! the end of its connection.

use crate::call::Answer;
use crate::connection::ConnectionState;
use crate::dispatch::{self, Held};
use crate::fail_point::Failure;
use crate::server::Server;
use crate::session::Session;
use crate::turn::Turn;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Error, err};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;
use wire::frame::Frame;
use wire::header::{Opcode, Trouble};
use wire::{compression, message, query};

/// One request, from its frame to its reply.
pub(crate) struct Request {
    frame: Frame,
    progress: Progress,
}

/// What is known of a request between its waits.
#[derive(Default)]
pub(crate) struct Progress {
    /// Its number and beginning, which it keeps however often it waits.
    pub(crate) began: Option<Began>,
    /// Its place among the statements of its session, where they wait for one another.
    pub(crate) turn: Option<Turn<Session>>,
    /// Until when its handler waits, once that has begun to.
    pub(crate) waiting_until: Option<Instant>,
    /// What fail points make of it, while it waits.
    pub(crate) failure: Option<Box<Failure>>,
    /// Set by a statement of a transaction that has replied with errors: they abort the transaction.
    pub(crate) statement_failed: bool,
    /// The reply sent last, where further ones follow unasked.
    pub(crate) stream: Option<Stream>,
    /// What is left of it where its handler is done and the journal doesn't have its commit yet.
    pub(crate) held: Option<Box<Held>>,
}

/// The beginning of a request.
#[derive(Clone, Copy)]
pub(crate) struct Began {
    /// The number by which killOp knows it.
    pub(crate) operation_id: u64,
    /// When it came.
    pub(crate) at: Instant,
}

/// A series of replies to one request.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    /// The number of the reply sent last, which the next one answers.
    last_reply: i32,
    /// The topology's version that the client has been told.
    pub(crate) topology_version: i64,
}

/// A reply's document behind its header, and how it is to be sent.
pub(crate) struct Reply {
    /// The document, complete once the answer is [`Answer::Done`].
    pub(crate) document: Builder,
    /// How many bytes the header takes, to which a failed reply is cut back.
    pub(crate) header_size: usize,
    /// Whether it may be compressed; handshakes may not.
    pub(crate) compressible: bool,
    /// The topology's version just told, where further replies follow unasked.
    pub(crate) streams: Option<i64>,
}

impl Reply {
    /// One with nothing behind its header.
    fn new(header: Vec<u8>) -> Reply {
        let header_size = header.len();
        Reply { document: Builder::with_buffer(header), header_size, compressible: true, streams: None }
    }

    /// Begins anew behind the header.
    pub(crate) fn clear(&mut self) {
        let mut buffer = std::mem::take(&mut self.document).into_buffer();
        buffer.truncate(self.header_size);
        self.document = Builder::with_buffer(buffer);
    }
}

impl Request {
    /// Takes a whole frame of a connection apart.
    ///
    /// Errors: what is wrong with it, where there is nothing to be replied to.
    pub(crate) fn open(state: &ConnectionState, server: &Server, frame: Vec<u8>) -> Result<Request, Trouble> {
        let frame = Frame::open(frame, state.largest_message(server))?;
        Ok(Request { frame, progress: Progress::default() })
    }

    /// Whether further replies follow those that there were.
    pub(crate) fn streams(&self) -> bool {
        self.progress.stream.is_some()
    }

    /// The memory of its frame, to be used again.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.frame.into_buffer()
    }

    /// Goes on until the request is answered or has to wait. The reply is in `out`, which is empty before: none where
    /// the client wants none.
    pub(crate) fn poll(&mut self, state: &mut ConnectionState, server: &Server, out: &mut Vec<u8>) -> Answer {
        let caught = catch_unwind(AssertUnwindSafe(|| self.advance(state, server, out)));
        let answer = caught.unwrap_or_else(|_| {
            server.counters.panics.add(1);
            log::error!("closing connection {} after a panic", state.activity.connection_id);
            self.panic_reply(server, out);
            Answer::Close
        });
        if matches!(answer, Answer::Wait(_)) {
            return answer;
        }
        let stream = self.progress.stream.take();
        self.progress = Progress { stream, ..Progress::default() };
        state.activity.end();
        answer
    }

    fn advance(&mut self, state: &mut ConnectionState, server: &Server, out: &mut Vec<u8>) -> Answer {
        let Request { frame, progress } = self;
        let (reply_id, mut reply) = match progress.held.as_mut().and_then(|held| held.reply.take()) {
            Some(reply) => reply,
            None => {
                let reply_id = server.next_message_id();
                let response_to = progress.stream.map_or(frame.request_id, |stream| stream.last_reply);
                match frame.opcode {
                    Opcode::Query => query::begin_reply(out, reply_id, response_to, false),
                    // Whether more is to come is known at the end, when the flags are set.
                    _ => message::begin_reply(out, reply_id, response_to),
                }
                (reply_id, Reply::new(std::mem::take(out)))
            }
        };
        let answer = match frame.request() {
            Ok(request) => {
                dispatch::run(state, server, &request, progress, frame.exhaust_allowed, &mut reply)
            }
            Err(error) => dispatch::refuse(server, state, &mut reply, error),
        };
        match answer {
            Answer::Done => {}
            answer => {
                if let Some(held) = &mut progress.held {
                    held.reply = Some((reply_id, reply));
                }
                return answer;
            }
        }
        let streams = reply.streams.filter(|_| !frame.more_to_come);
        if streams.is_some() != progress.stream.is_some() {
            state.activity.streams.store(streams.is_some(), Ordering::Relaxed);
        }
        progress.stream = streams.map(|topology_version| Stream { last_reply: reply_id, topology_version });
        if frame.more_to_come {
            return Answer::Done;
        }
        debug_assert!(base::bson::is_well_formed(reply.document.so_far().bytes()), "a reply is valid BSON");
        let compressor = frame.compressor.filter(|_| reply.compressible);
        *out = reply.document.into_buffer();
        if streams.is_some() {
            message::set_more_to_come(out);
        }
        wire::header::finish(out, 0);
        if let Some(compressor) = compressor {
            compression::pack(compressor, out);
        }
        Answer::Done
    }

    /// The reply after a panic, which may have left anything in `out`.
    fn panic_reply(&self, server: &Server, out: &mut Vec<u8>) {
        out.clear();
        if self.frame.opcode != Opcode::Message {
            return;
        }
        message::begin_reply(out, server.next_message_id(), self.frame.request_id);
        let mut reply = Builder::with_buffer(std::mem::take(out));
        let error: Error = err!(InternalError, "the server failed to handle this command; its log says how");
        crate::reply::failure::<&str>(&mut reply, &error, &[]);
        *out = reply.into_buffer();
        wire::header::finish(out, 0);
    }
}

/// Answers a frame on this thread, which waits as the request does. The first reply is in `out`; whether the connection
/// stays open.
pub(crate) fn answer(
    state: &mut ConnectionState,
    server: &Server,
    frame: Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    let Ok(mut request) = Request::open(state, server, frame) else { return false };
    loop {
        match request.poll(state, server, out) {
            Answer::Done => return true,
            Answer::Wait(event) => event.wait(&server.database),
            Answer::Close => return false,
        }
    }
}

/// Runs a command, `$db` included, on this thread; `None` where the connection is closed instead.
pub(crate) fn command(
    state: &mut ConnectionState,
    server: &Server,
    command: Document<'_>,
) -> Option<DocumentBuf> {
    let mut out = Vec::new();
    answer(state, server, message::encode(1, 0, command), &mut out);
    message::document(&out)
}

//! One connection: frames in, replies out, and what is remembered between them.
//!
//! [`handle`] is synchronous and knows no socket, so whole conversations can be tested, or
//! fuzzed, in memory. It never panics outwards: a panic in a handler becomes an InternalError
//! for that client and the end of its connection.

use crate::activity::Activity;
use crate::auth::{Conversation, Identity};
use crate::call::Wait;
use crate::dispatch::{self, Context, Outcome as Ran, Unsynced};
use crate::fail_point::Failure;
use crate::operations::DatabaseOperations;
use crate::server::Server;
use crate::session::Session;
use crate::turn::Turn;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Error, err};
use database::Position;
use rustls::ProtocolVersion;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wire::compression::Compressor;
use wire::header::{Header, MAX_MESSAGE_SIZE, Opcode, Trouble};
use wire::request::Request;
use wire::{compression, message, query};

/// What a connection remembers between its requests.
pub(crate) struct ConnectionState {
    /// What it runs now, shared with the registry.
    pub(crate) activity: Arc<Activity>,
    /// The address that the client dialled.
    pub(crate) local: SocketAddr,
    /// Who has logged in.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The conversation of somebody who is about to.
    pub(crate) conversation: Option<Box<Conversation>>,
    /// Whether it is the server itself that asks: it may do everything.
    pub(crate) is_system: bool,
    /// How the connection is encrypted, if it is, and for whom.
    pub(crate) peer: Option<Box<Peer>>,
    /// What the client said of itself in the first hello.
    pub(crate) metadata: Option<Box<DocumentBuf>>,
    /// Set by a statement of a transaction that has replied with errors: they abort the transaction.
    pub(crate) statement_failed: bool,
    /// The session used last, so that using it again needs no look-up.
    pub(crate) session: Option<Arc<Session>>,
    /// What is counted of the database used last.
    pub(crate) counted: Option<Arc<DatabaseOperations>>,
    /// The present request's number and beginning, which it keeps however often it waits.
    pub(crate) began: Option<Began>,
    /// The present request's place among the statements of its session, where they wait for one
    /// another.
    pub(crate) turn: Option<Turn<Session>>,
    /// Until when the present request's handler waits, once it has begun to.
    pub(crate) waiting_until: Option<Instant>,
    /// What fail points make of the present request, while it waits.
    pub(crate) failure: Option<Box<Failure>>,
    /// The replies being sent unasked, where there are any.
    pub(crate) stream: Option<Stream>,
    /// Whether whoever calls [`handle`] waits for the journal in its place, as [`Outcome::Journal`] says.
    pub(crate) holds_replies: bool,
    /// The reply that is held until then.
    held: Option<Box<Held>>,
}

/// A reply that is ready but for the journal.
struct Held {
    envelope: Envelope,
    reply_id: i32,
    unsynced: Unsynced,
}

/// What TLS tells of the other end.
pub(crate) struct Peer {
    /// The protocol's version.
    pub(crate) protocol: Option<ProtocolVersion>,
    /// Whom the client's certificate is for, if it has shown one, which has been checked.
    pub(crate) subject: Option<String>,
}

impl Peer {
    /// What a handshake has told.
    pub(crate) fn new(protocol: Option<ProtocolVersion>, certificate: Option<&CertificateDer<'_>>) -> Peer {
        let facts = certificate.and_then(|certificate| wire::certificates::facts(certificate).ok());
        let subject = facts.map(|facts| facts.subject);
        log::debug!(
            c = "NETWORK";
            "encrypted by {protocol:?} for {}",
            subject.as_deref().unwrap_or("somebody without a certificate")
        );
        Peer { protocol, subject }
    }
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

/// What becomes of a request.
pub(crate) enum Outcome {
    /// Send the reply and read on.
    Reply,
    /// Send the reply, then handle the same frame again.
    Stream,
    /// Read on without a reply.
    NoReply,
    /// Wait, then handle the same frame again.
    Wait(Wait),
    /// The same, for the journal to have the commit of this position.
    Journal(Position),
    /// Send what reply there is and close.
    Close,
}

impl ConnectionState {
    /// A new connection.
    pub(crate) fn new(activity: Arc<Activity>, local: SocketAddr) -> ConnectionState {
        ConnectionState {
            activity,
            local,
            identity: None,
            conversation: None,
            is_system: false,
            peer: None,
            metadata: None,
            session: None,
            statement_failed: false,
            counted: None,
            began: None,
            turn: None,
            waiting_until: None,
            failure: None,
            stream: None,
            holds_replies: false,
            held: None,
        }
    }

    /// Whether nobody has logged in here who would have to.
    pub(crate) fn is_stranger(&self, server: &Server) -> bool {
        self.identity.is_none() && server.auth.enabled() && !self.is_system
    }

    /// How large a message may be: little is taken from those who haven't logged in.
    pub(crate) fn largest_message(&self, server: &Server) -> usize {
        match self.is_stranger(server) {
            true => server.parameters.stranger_message_max(),
            false => MAX_MESSAGE_SIZE,
        }
    }

    /// The application's name from the client's metadata, empty where it gave none.
    pub(crate) fn app_name(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| app_name(metadata.view()))
    }
}

/// The application's name in a client's metadata, empty where there is none.
pub(crate) fn app_name(metadata: Document<'_>) -> &str {
    let application = metadata.get("application").and_then(|value| value.as_document());
    application.and_then(|document| document.get("name")).and_then(|name| name.as_str()).unwrap_or("")
}

/// How the reply to a frame must be framed.
#[derive(Clone, Copy)]
struct Envelope {
    request_id: i32,
    opcode: Opcode,
    compressor: Option<Compressor>,
    more_to_come: bool,
    exhaust_allowed: bool,
}

/// Handles one whole frame; the reply, if any, is in `out`, which is empty before.
pub(crate) fn handle(
    state: &mut ConnectionState,
    server: &Server,
    frame: &[u8],
    out: &mut Vec<u8>,
) -> Outcome {
    let caught = catch_unwind(AssertUnwindSafe(|| handle_frame(state, server, frame, out)));
    let outcome = caught.unwrap_or_else(|_| {
        server.counters.panics.add(1);
        log::error!("closing connection {} after a panic", state.activity.connection_id);
        panic_reply(server, frame, out);
        Outcome::Close
    });
    if !matches!(outcome, Outcome::Wait(_) | Outcome::Journal(_)) {
        (state.began, state.turn, state.waiting_until, state.failure) = (None, None, None, None);
        state.activity.end();
    }
    if !matches!(outcome, Outcome::Wait(_) | Outcome::Stream) && state.stream.take().is_some() {
        state.activity.streams.store(false, Ordering::Relaxed);
    }
    outcome
}

fn handle_frame(state: &mut ConnectionState, server: &Server, frame: &[u8], out: &mut Vec<u8>) -> Outcome {
    if let Some(held) = state.held.take() {
        return release(state, server, frame, *held, out);
    }
    let mut unpacked = Vec::new();
    let (envelope, request) = match open(frame, state.largest_message(server), &mut unpacked) {
        Ok(opened) => opened,
        Err(Trouble::Malformed(what)) => {
            log::warn!(
                "closing connection {} from {}: {what}",
                state.activity.connection_id,
                state.activity.client
            );
            return Outcome::Close;
        }
        Err(Trouble::Refused(error)) => {
            log::warn!("closing connection {}: {error}", state.activity.connection_id);
            return Outcome::Close;
        }
    };
    let reply_id = server.next_message_id();
    let response_to = state.stream.map_or(envelope.request_id, |stream| stream.last_reply);
    begin_reply(&envelope, reply_id, response_to, out);
    let header_size = out.len();
    let reply = Builder::with_buffer(std::mem::take(out));
    let ran = match request {
        Ok(request) => {
            let context = Context { reply, header_size, exhaust_allowed: envelope.exhaust_allowed };
            dispatch::run(state, server, &request, context)
        }
        Err(error) => dispatch::refuse(server, state, reply, &error),
    };
    conclude(state, &envelope, reply_id, ran, out)
}

/// Ends what had to wait for the journal.
fn release(
    state: &mut ConnectionState,
    server: &Server,
    frame: &[u8],
    held: Held,
    out: &mut Vec<u8>,
) -> Outcome {
    let Held { envelope, reply_id, unsynced } = held;
    let (result, took) = unsynced.ask(server);
    let ran = match result {
        Ok(()) if !server.profiler.slow.is_slow(took) => unsynced.end(state, took),
        // What is to be said of it needs the request once more.
        result => {
            let mut unpacked = Vec::new();
            match open(frame, MAX_MESSAGE_SIZE, &mut unpacked) {
                Ok((_, Ok(request))) => dispatch::end(state, server, &request, unsynced, result, took),
                _ => return Outcome::Close,
            }
        }
    };
    conclude(state, &envelope, reply_id, ran, out)
}

/// Takes a frame apart, unpacking it first where it is compressed.
fn open<'a>(
    frame: &'a [u8],
    most: usize,
    unpacked: &'a mut Vec<u8>,
) -> Result<(Envelope, base::Result<Request<'a>>), Trouble> {
    let (outer, _) = Header::split(frame)?;
    let (frame, compressor) = match outer.opcode {
        Opcode::Compressed => {
            let compressor = compression::unpack(frame, most, unpacked)?;
            (unpacked.as_slice(), Some(compressor))
        }
        _ => (frame, None),
    };
    let (header, body) = Header::split(frame)?;
    let mut envelope = Envelope {
        request_id: outer.request_id,
        opcode: header.opcode,
        compressor,
        more_to_come: false,
        exhaust_allowed: false,
    };
    match header.opcode {
        Opcode::Message => {
            let message = message::parse(frame)?;
            envelope.more_to_come = message.more_to_come;
            envelope.exhaust_allowed = message.exhaust_allowed;
            Ok((envelope, message.request))
        }
        Opcode::Query => Ok((envelope, query::parse(body)?)),
        other => Err(Trouble::Malformed(format!("a client sent {other:?}"))),
    }
}

fn begin_reply(envelope: &Envelope, reply_id: i32, response_to: i32, out: &mut Vec<u8>) {
    match envelope.opcode {
        Opcode::Query => query::begin_reply(out, reply_id, response_to, false),
        // Whether more is to come is known at the end, when the flags are set.
        _ => message::begin_reply(out, reply_id, response_to),
    }
}

fn conclude(
    state: &mut ConnectionState,
    envelope: &Envelope,
    reply_id: i32,
    ran: Ran,
    out: &mut Vec<u8>,
) -> Outcome {
    let (reply, compressible, streams) = match ran {
        Ran::Close => return Outcome::Close,
        Ran::Wait(wait) => return Outcome::Wait(wait),
        Ran::Unsynced(unsynced) => {
            let position = unsynced.position;
            state.held = Some(Box::new(Held { envelope: *envelope, reply_id, unsynced }));
            return Outcome::Journal(position);
        }
        Ran::Reply { reply, compressible, streams } => (reply, compressible, streams),
    };
    if envelope.more_to_come {
        return Outcome::NoReply;
    }
    debug_assert!(base::bson::is_well_formed(reply.so_far().bytes()), "a reply is valid BSON");
    *out = reply.into_buffer();
    if let Some(topology_version) = streams {
        message::set_more_to_come(out);
        state.stream = Some(Stream { last_reply: reply_id, topology_version });
        state.activity.streams.store(true, Ordering::Relaxed);
    }
    wire::header::finish(out, 0);
    if let Some(compressor) = envelope.compressor.filter(|_| compressible) {
        compression::pack(compressor, out);
    }
    if streams.is_some() { Outcome::Stream } else { Outcome::Reply }
}

/// The reply after a panic, which may have left anything in `out`.
fn panic_reply(server: &Server, frame: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let Ok((header, _)) = Header::split(frame) else { return };
    if header.opcode != Opcode::Message {
        return;
    }
    message::begin_reply(out, server.next_message_id(), header.request_id);
    let mut reply = Builder::with_buffer(std::mem::take(out));
    let error: Error = err!(InternalError, "the server failed to handle this command; its log says how");
    crate::reply::failure::<&str>(&mut reply, &error, &[]);
    *out = reply.into_buffer();
    wire::header::finish(out, 0);
}

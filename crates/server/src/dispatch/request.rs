//! A request in progress: its message, parsed once, and its state between waits.
//!
//! [`Request::begin`] and [`Request::poll`] do not use a socket. The caller waits for the returned
//! event without a thread and polls again. A panic in a handler becomes an InternalError and ends
//! the connection.

use crate::call::HandlerStatus;
use crate::call::progress::{Progress, Stream};
use crate::dispatch::{self, PendingReply};
use crate::process::event::Event;
use crate::process::memory;
use crate::protocol::reply::{self, Reply};
use crate::server::{InnerStatus, Server};
use crate::state::connection::ConnectionState;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Error, ErrorCode, err};
use database::language::stages_of;
use database::time;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::Waker;
use wire::frame::{self, Envelope, Frame, RequestRanges};
use wire::header::{FrameError, Opcode};
use wire::{compression, message, query};

/// A request that waits or has further replies.
pub(crate) struct Request {
    frame: Frame,
    request_state: RequestState,
}

/// State of a request that waits or has further replies.
#[derive(Default)]
struct RequestState {
    progress: Progress,
    /// The finished command, while its commit is not yet in the journal.
    pending_reply: Option<Box<PendingReply>>,
}

/// Returns true for reads that clients send without a wish for a reply: of a stream, or by mistake.
fn is_read(request: &wire::request::Request<'_>) -> bool {
    match request.name {
        "hello" | "isMaster" | "ismaster" | "getMore" | "find" => true,
        "aggregate" => {
            let pipeline = request.body.get("pipeline").and_then(|pipeline| pipeline.as_array());
            !pipeline.is_some_and(|pipeline| stages_of(pipeline).any(|(stage, _)| stage.writes()))
        }
        _ => false,
    }
}

impl Request {
    /// Returns true if the request waits in the middle of its writes. It ends without its client, too.
    pub(crate) fn is_kept(&self) -> bool {
        self.request_state.progress.is_kept()
    }

    /// Returns true for a write without a reply. Its client may close the connection before the write has run.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.frame.envelope.more_to_come && self.frame.request().is_ok_and(|request| !is_read(&request))
    }

    /// Returns the memory of its message in bytes.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame.bytes.capacity()
    }

    /// Returns true if the request has a finished reply that waits for the journal.
    pub(crate) fn has_pending_reply(&self) -> bool {
        self.request_state.pending_reply.is_some()
    }

    /// Begins a request with a whole frame. `out` receives the reply, as in [`poll`](Self::poll).
    /// Returns the request if it waits or has further replies.
    ///
    /// Errors: an invalid frame that cannot get a reply.
    pub(crate) fn begin(
        state: &mut ConnectionState,
        server: &Server,
        frame: Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(HandlerStatus, Option<Box<Request>>), FrameError> {
        let mut bytes = frame;
        let compressor =
            frame::decompress(&mut bytes, state.largest_message(&server.auth, &server.parameters))?;
        let (envelope, request) = frame::parse(&bytes, compressor)?;
        let mut request_state = RequestState::default();
        let parsed = Parsed { envelope: &envelope, request: request.as_ref() };
        let answer = parsed.poll(&mut request_state, state, server, out);
        if !matches!(answer, HandlerStatus::Wait(_)) && request_state.progress.stream.is_none() {
            drop(request);
            memory::release_buffer(bytes);
            return Ok((answer, None));
        }
        let ranges = request.map(|request| RequestRanges::of(&request, &bytes));
        let frame = Frame { bytes, envelope, ranges };
        Ok((answer, Some(Box::new(Request { frame, request_state }))))
    }

    /// Returns true if further replies follow.
    pub(crate) fn streams(&self) -> bool {
        self.request_state.progress.stream.is_some()
    }

    /// Continues until the request is answered or must wait. `out` is empty before and receives the
    /// reply, unless the client requests none.
    pub(crate) fn poll(
        &mut self,
        state: &mut ConnectionState,
        server: &Server,
        out: &mut Vec<u8>,
    ) -> HandlerStatus {
        let Request { frame, request_state } = self;
        let request = frame.request();
        let request = request.as_ref().map_err(|error| *error);
        Parsed { envelope: &frame.envelope, request }.poll(request_state, state, server, out)
    }
}

/// A parsed message.
struct Parsed<'a> {
    envelope: &'a Envelope,
    request: Result<&'a wire::request::Request<'a>, &'a Error>,
}

impl Parsed<'_> {
    fn poll(
        &self,
        request_state: &mut RequestState,
        state: &mut ConnectionState,
        server: &Server,
        out: &mut Vec<u8>,
    ) -> HandlerStatus {
        let advance = || self.advance(request_state, state, server, out);
        let caught = catch_unwind(AssertUnwindSafe(advance));
        let answer = caught.unwrap_or_else(|_| {
            server.counters.panics.add(1);
            log::error!("closing connection {} after a panic", state.activity.connection_id);
            panic_reply(self.envelope, server, out);
            HandlerStatus::Close
        });
        if !matches!(answer, HandlerStatus::Wait(_)) {
            if let Some(stream) = request_state.progress.stream {
                let progress = Progress { stream: Some(stream), ..Progress::default() };
                *request_state = RequestState { progress, pending_reply: None };
            }
            state.activity.end();
        }
        answer
    }

    fn advance(
        &self,
        request_state: &mut RequestState,
        state: &mut ConnectionState,
        server: &Server,
        out: &mut Vec<u8>,
    ) -> HandlerStatus {
        let Parsed { envelope, request } = self;
        let RequestState { progress, pending_reply } = request_state;
        let (reply_id, mut reply) =
            match pending_reply.as_mut().and_then(|pending_reply| pending_reply.reply.take()) {
                Some(reply) => reply,
                None => {
                    let reply_id = server.network.next_message_id();
                    let response_to = progress.stream.map_or(envelope.request_id, |stream| stream.last_reply);
                    match envelope.opcode {
                        Opcode::Query => query::begin_reply(out, reply_id, response_to, false),
                        // The flag for further replies is set at the end, when it is known.
                        _ => message::begin_reply(out, reply_id, response_to),
                    }
                    (reply_id, Reply::new(std::mem::take(out)))
                }
            };
        let answer = match request {
            Ok(request) => dispatch::run(
                state,
                server,
                request,
                (progress, pending_reply),
                envelope.exhaust_allowed,
                &mut reply,
            ),
            Err(error) => dispatch::refuse(server, state, &mut reply, error),
        };
        if !matches!(answer, HandlerStatus::Done) {
            if let Some(pending_reply) = pending_reply {
                pending_reply.reply = Some((reply_id, reply));
            }
            return answer;
        }
        let streams = reply.streams.filter(|_| !envelope.more_to_come);
        if streams.is_some() != progress.stream.is_some() {
            state.activity.streams.store(streams.is_some(), Ordering::Relaxed);
        }
        progress.stream = streams.map(|topology_version| Stream { last_reply: reply_id, topology_version });
        if envelope.more_to_come {
            return HandlerStatus::Done;
        }
        debug_assert!(
            base::bson::is_well_formed(reply.document.to_document().bytes()),
            "a reply is valid BSON"
        );
        *out = reply.document.into_buffer();
        if streams.is_some() {
            message::set_more_to_come(out);
        }
        wire::header::finish(out, 0);
        if let Some(compressor) = envelope.compressor.filter(|_| reply.compressible) {
            compression::compress_message(compressor, out);
        }
        HandlerStatus::Done
    }
}

/// Writes the reply after a panic and discards partial output.
fn panic_reply(envelope: &Envelope, server: &Server, out: &mut Vec<u8>) {
    out.clear();
    if envelope.opcode != Opcode::Message {
        return;
    }
    message::begin_reply(out, server.network.next_message_id(), envelope.request_id);
    let mut reply = Builder::with_buffer(std::mem::take(out));
    let error: Error = err!(InternalError, "the server failed to handle this command; see its log");
    reply::failure::<&str>(&mut reply, &error, &[]);
    *out = reply.into_buffer();
    wire::header::finish(out, 0);
}

/// Answers a frame on this thread, including its waits. `out` receives the first reply. Returns
/// true if the connection stays open.
pub(crate) fn answer(
    state: &mut ConnectionState,
    server: &Server,
    frame: Vec<u8>,
    out: &mut Vec<u8>,
) -> bool {
    let Ok((mut answer, mut request)) = Request::begin(state, server, frame, out) else { return false };
    loop {
        match (answer, &mut request) {
            (HandlerStatus::Wait(event), Some(request)) => {
                event.wait(&server.database);
                answer = request.poll(state, server, out);
            }
            (answer, _) => return matches!(answer, HandlerStatus::Done),
        }
    }
}

/// Runs a command that includes `$db` on this thread; `None` if the connection closes.
pub(crate) fn command(
    state: &mut ConnectionState,
    server: &Server,
    command: Document<'_>,
) -> Option<DocumentBuf> {
    let mut out = Vec::new();
    answer(state, server, message::encode(1, 0, command), &mut out);
    message::document(&out)
}

/// Runs an internal command that includes `$db`, inside of another command. It does not wait.
///
/// Errors: the error of the command or of its first statement.
pub(crate) fn inner_command(server: &Server, command: Document<'_>) -> Result<InnerStatus, Error> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.settings.port));
    let activity = server.activities.open(address);
    let mut state = ConnectionState::new(activity.clone(), address);
    (state.is_system, state.is_inner) = (true, true);
    let mut out = Vec::new();
    let begun = Request::begin(&mut state, server, message::encode(1, 0, command), &mut out);
    server.activities.close(&activity);
    match begun {
        Ok((HandlerStatus::Wait(event), request)) => {
            let (until, mut ready) = (event.until(), event.into_ready());
            // The request keeps its places in queues until the event.
            let ready = move |waker: &Waker| {
                let _places = &request;
                ready(waker)
            };
            let until = until.unwrap_or_else(time::now);
            Ok(InnerStatus::Wait(Event::Other { until, ready: Box::new(ready) }))
        }
        _ => checked(message::document(&out)).map(InnerStatus::Done),
    }
}

/// Returns the reply of an internal command.
///
/// Errors: the error of the command or of its first statement.
fn checked(reply: Option<DocumentBuf>) -> Result<DocumentBuf, Error> {
    let reply = reply.ok_or_else(|| err!(InternalError, "the server did not answer itself"))?;
    match failure(reply.view()) {
        Some(error) => Err(error),
        None => Ok(reply),
    }
}

/// Runs an internal command that includes `$db` on this thread. Returns its reply.
///
/// Errors: the error of the command or of its first statement.
pub(crate) fn command_of_server(server: &Server, command: Document<'_>) -> Result<DocumentBuf, Error> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.settings.port));
    let activity = server.activities.open(address);
    let mut state = ConnectionState::new(activity.clone(), address);
    state.is_system = true;
    let reply = self::command(&mut state, server, command);
    server.activities.close(&activity);
    checked(reply)
}

/// Returns the error in a reply.
fn failure(reply: Document<'_>) -> Option<Error> {
    let statements = reply.get("writeErrors").and_then(|errors| errors.as_array());
    let statement = statements.and_then(|errors| errors.iter().next()).and_then(|error| error.as_document());
    let failed = statement.or((reply.get("ok")?.as_i64() != Some(1)).then_some(reply))?;
    let code = failed.get("code").and_then(|code| code.as_i64()).and_then(|code| i32::try_from(code).ok());
    let message = failed.get("errmsg").and_then(|message| message.as_str()).unwrap_or_default();
    Some(Error::new(ErrorCode::from_number(code.unwrap_or_default()), message))
}

//! OP_QUERY and OP_REPLY: the legacy pair, used only for the first handshake of older drivers.

use crate::header::{self, FrameError, Opcode, document_length, malformed, read_i32};
use crate::message::validated;
use crate::request::Request;
use base::bson::{Document, Value};
use base::{Result, bail, err};

/// The suffix of the pseudo-collection that legacy commands address.
const COMMAND_COLLECTION: &str = ".$cmd";

/// The flag of an OP_REPLY whose document is an error.
const QUERY_FAILURE: i32 = 2;

/// Parses an OP_QUERY, which must be a handshake.
///
/// Errors: [`FrameError::Malformed`] for broken framing. The inner error is UnsupportedOpQueryCommand for any other
/// command and 5739101 for a query, as in MongoDB since 6.0.
pub fn parse(body: &[u8]) -> std::result::Result<Result<Request<'_>>, FrameError> {
    let cut_off = || malformed("OP_QUERY is cut off");
    read_i32(body, 0).ok_or_else(cut_off)?;
    let rest = body.get(4..).ok_or_else(cut_off)?;
    let name_end = rest.iter().position(|&byte| byte == 0).ok_or_else(cut_off)?;
    let (name, rest) = rest.split_at(name_end);
    let documents = rest.get(9..).ok_or_else(cut_off)?;
    let length = document_length(documents).ok_or_else(cut_off)?;
    let (query, _fields) = documents.split_at_checked(length).ok_or_else(cut_off)?;
    Ok(handshake(name, query))
}

/// Parses the command of an OP_QUERY. Only the commands of a handshake are allowed.
fn handshake<'a>(namespace: &'a [u8], query: &'a [u8]) -> Result<Request<'a>> {
    let database = std::str::from_utf8(namespace)
        .ok()
        .and_then(|name| name.strip_suffix(COMMAND_COLLECTION))
        .ok_or_else(|| {
            err!(5739101, "OP_QUERY is no longer supported. The client driver may require an upgrade.")
        })?;
    let body = unwrap_query(validated(query)?);
    let request = Request::of(body, database);
    let name = request.name;
    if !["hello", "isMaster", "ismaster", "saslContinue", "saslStart"].contains(&name) {
        bail!(
            UnsupportedOpQueryCommand,
            "Unsupported OP_QUERY command: {name}. The client driver may require an upgrade. For more details \
             see https://dochub.mongodb.org/core/legacy-opcode-removal"
        );
    }
    Ok(request)
}

/// Returns the command inside `{$query: …, $readPreference: …}`, or the document itself.
fn unwrap_query(document: Document<'_>) -> Document<'_> {
    match document.first().map(|element| (element.name(), element.value())) {
        Some(("$query" | "query", Value::Document(inner))) => inner,
        _ => document,
    }
}

/// Starts an OP_REPLY with one document, which the caller appends.
pub fn begin_reply(out: &mut Vec<u8>, request_id: i32, response_to: i32, failed: bool) {
    header::begin(out, request_id, response_to, Opcode::Reply);
    let flags = if failed { QUERY_FAILURE } else { 0 };
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&0i64.to_le_bytes());
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&1i32.to_le_bytes());
}

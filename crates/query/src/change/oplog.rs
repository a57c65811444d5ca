//! An entry as documents of `local.oplog.rs`, in MongoDB's format.

use super::entry::{Action, Entry, Operation, Session};
use base::bson::{Builder, Document, DocumentBuf, Value};

/// The version of the oplog's format.
const OPLOG_VERSION: i64 = 2;
/// `multiOpType` of an `applyOps` whose operations share only their commit.
const APPLIED_SEPARATELY: i32 = 1;
const UUID_SUBTYPE: u8 = 4;

/// Returns the oplog documents of an entry, in order.
pub fn oplog_documents(entry: &Entry<'_>) -> Vec<DocumentBuf> {
    let mut documents = Vec::with_capacity(entry.ticks as usize);
    let mut rest = entry.operations.as_slice();
    while let Some((first, others)) = rest.split_first() {
        let more = others.iter().take_while(|operation| !operation.begins).count();
        let (operations, behind) = rest.split_at(1 + more);
        let number = documents.len() as u32;
        documents.push(match operations {
            [_] if !entry.transaction => single(entry, first, number),
            _ => several(entry, operations, number),
        });
        rest = behind;
    }
    documents
}

/// Returns the oplog document of a single operation outside a transaction.
fn single(entry: &Entry<'_>, operation: &Operation<'_>, number: u32) -> DocumentBuf {
    let mut out = Builder::new();
    let session = entry.session.filter(|_| operation.statement.is_some());
    if let Some(session) = &session {
        append_session(session, &mut out);
    }
    append_operation(operation, &mut out);
    append_times(entry, number, &mut out);
    if session.is_some() {
        append_previous(entry, number, &mut out);
    }
    out.finish()
}

/// Returns the `applyOps` document of several operations. A transaction of several documents marks all but the last
/// with `partialTxn`; the last has the total `count`.
fn several(entry: &Entry<'_>, operations: &[Operation<'_>], number: u32) -> DocumentBuf {
    let mut out = Builder::new();
    if let Some(session) = &entry.session {
        append_session(session, &mut out);
    }
    out.append(c"op", "c").append(c"ns", "admin.$cmd").begin_document(c"o").begin_array(c"applyOps");
    for operation in operations {
        out.push_document();
        append_operation(operation, &mut out);
        out.end();
    }
    out.end();
    if entry.transaction && number + 1 < entry.ticks {
        out.append(c"partialTxn", true);
    } else if entry.transaction && number > 0 {
        out.append(c"count", entry.operations.len() as i64);
    }
    out.end();
    append_times(entry, number, &mut out);
    if entry.session.is_some() {
        append_previous(entry, number, &mut out);
    }
    if !entry.transaction {
        out.append(c"multiOpType", APPLIED_SEPARATELY);
    }
    out.finish()
}

pub(super) fn append_session(session: &Session, out: &mut Builder) {
    append_session_id(session, out);
    out.append(c"txnNumber", session.number);
}

/// Appends `lsid`.
pub(super) fn append_session_id(session: &Session, out: &mut Builder) {
    out.begin_document(c"lsid");
    out.append(c"id", Value::Binary { subtype: UUID_SUBTYPE, bytes: &session.id });
    out.append(c"uid", Value::Binary { subtype: 0, bytes: &session.user });
    out.end();
}

/// Appends the fields of an operation: `op`, `ns`, `ui`, `o`, `o2` and `stmtId`.
fn append_operation(operation: &Operation<'_>, out: &mut Builder) {
    let kind = match operation.action {
        Action::Insert(_) => "i",
        Action::Replace(_) | Action::Update { .. } => "u",
        Action::Delete(_) => "d",
        Action::Command { .. } => "c",
        Action::Noop(_) => "n",
    };
    out.append(c"op", kind).append(c"ns", operation.namespace);
    let uuid = operation.uuid.map(|uuid| Value::Binary { subtype: UUID_SUBTYPE, bytes: uuid });
    out.append_optional(c"ui", uuid);
    match operation.action {
        Action::Insert(document) | Action::Replace(document) => {
            out.append(c"o", document);
            append_key(document, out);
        }
        Action::Update { key, diff } => {
            out.begin_document(c"o").append(c"$v", 2i32).append(c"diff", diff).end();
            out.append(c"o2", key);
        }
        Action::Delete(key) => {
            out.append(c"o", key);
        }
        Action::Command { object, before } => {
            out.append(c"o", object).append_optional(c"o2", before);
        }
        Action::Noop(object) => {
            out.append(c"o", object);
        }
    }
    out.append_optional(c"stmtId", operation.statement);
}

/// Appends the document key of a whole document as `o2`.
fn append_key(document: Document<'_>, out: &mut Builder) {
    if let Some(id) = document.find("_id") {
        out.begin_document(c"o2").append_element(&id).end();
    }
}

fn append_times(entry: &Entry<'_>, number: u32, out: &mut Builder) {
    out.append(c"ts", Value::Timestamp(entry.tick(number)))
        .append(c"t", i64::from(entry.term))
        .append(c"v", OPLOG_VERSION);
    out.append(c"wall", Value::DateTime(entry.wall));
}

/// Appends the position of the previous entry of this write.
fn append_previous(entry: &Entry<'_>, number: u32, out: &mut Builder) {
    let before = match number.checked_sub(1) {
        Some(number) => entry.tick(number),
        None => entry.session.map_or(0, |session| session.previous),
    };
    let term = if before == 0 { -1 } else { i64::from(entry.term) };
    out.begin_document(c"prevOpTime").append(c"ts", Value::Timestamp(before)).append(c"t", term).end();
}

//! Replies with a cursor: first and later batches.

use crate::access;
use crate::auth;
use crate::call::Call;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Namespace, Result};
use database::Cursor;

/// Appends the first batch and keeps the cursor if it has more documents.
pub(crate) fn first(
    call: &mut Call<'_>,
    mut cursor: Cursor,
    batch_size: u64,
    single_batch: bool,
) -> Result<()> {
    let namespace = cursor.namespace.clone();
    let snapshot = cursor.operation.snapshot().map(|(time, _)| *time);
    cursor.may_end_early = !single_batch;
    call.reply.begin_document(c"cursor").begin_array(c"firstBatch");
    let (count, ended) = cursor.next_batch(batch_size, call.reply)?;
    call.reply.end();
    call.server.counters.returned.add(count);
    let keeps = !single_batch && (!ended || (cursor.stays_open() && batch_size > 0));
    append_resume_token(call, &cursor);
    let id = if keeps { keep(call, cursor) } else { 0 };
    if let Some(time) = snapshot {
        call.reply.append(c"atClusterTime", Value::Timestamp(time));
    }
    call.reply.append(c"id", id).append(c"ns", namespace.as_str()).end();
    Ok(())
}

/// Appends the resume token after this batch. Only change streams have resume tokens.
pub(crate) fn append_resume_token(call: &mut Call<'_>, cursor: &Cursor) {
    call.reply.append_optional(c"postBatchResumeToken", cursor.resume_token());
}

/// Keeps a cursor open for getMore. Returns its id.
fn keep(call: &mut Call<'_>, mut cursor: Cursor) -> i64 {
    let requested =
        auth::authorizer(&call.server.auth, &call.server.activities, call.connection, call.request);
    cursor.tag = requested.map(|requested| access::cursor::tag(requested, &call.command.requirements));
    cursor.session = call.arguments.session;
    cursor.transaction = call.arguments.transaction_number.filter(|_| call.transaction.is_some());
    let id = call.server.database.register_cursor(cursor);
    if call.connection.is_load_balanced {
        call.connection.cursor = Some(id);
    }
    id
}

/// Appends the reply of a find on a missing collection. MongoDB orders these fields differently.
pub(crate) fn nothing(call: &mut Call<'_>, cursor: &Cursor) {
    call.reply.begin_document(c"cursor");
    if let Some((time, _)) = cursor.operation.snapshot() {
        call.reply.append(c"atClusterTime", Value::Timestamp(*time));
    }
    call.reply.append(c"id", 0i64).append(c"ns", cursor.namespace.as_str());
    call.reply.begin_array(c"firstBatch").end().end();
}

/// Appends a reply of a listing command, whose cursor has its id first.
///
/// The cursor stays open only if the documents exceed one batch.
pub(crate) fn listing(
    call: &mut Call<'_>,
    namespace: Namespace,
    documents: Vec<DocumentBuf>,
    batch_size: u64,
) -> Result<()> {
    let source = database::language::from_documents(documents);
    let mut cursor = Cursor::new(namespace.clone(), source, call.operation());
    // Unlike a plan, this stream knows its end in advance.
    cursor.looks_ahead = true;
    let mut batch = Builder::new();
    batch.begin_array(c"firstBatch");
    let (count, ended) = cursor.next_batch(batch_size, &mut batch)?;
    batch.end();
    call.server.counters.returned.add(count);
    let id = if ended { 0 } else { keep(call, cursor) };
    call.reply.begin_document(c"cursor").append(c"id", id).append(c"ns", namespace.as_str());
    call.reply.append_all(batch.finish().view()).end();
    Ok(())
}

/// Takes the batch size from a command's `cursor` field.
pub(crate) fn batch_size(cursor: Option<Document<'_>>, path: &str) -> Result<Option<u64>> {
    let Some(cursor) = cursor else { return Ok(None) };
    let mut fields = crate::protocol::fields::Fields::of_document(format!("{path}.cursor"), cursor);
    let size = fields.natural("batchSize")?;
    fields.finish()?;
    Ok(size)
}

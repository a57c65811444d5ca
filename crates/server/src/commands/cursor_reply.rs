//! The replies that carry a cursor: its first batch, and the later ones.

use crate::call::Call;
use base::bson::{Document, DocumentBuf, Value};
use base::{Namespace, Result};
use database::Cursor;

/// Writes the first batch and keeps the cursor if it has more to give.
pub(crate) fn first(
    call: &mut Call<'_>,
    mut cursor: Cursor,
    batch_size: u64,
    single_batch: bool,
) -> Result<()> {
    let namespace = cursor.namespace.clone();
    let snapshot = cursor.operation.snapshot().map(|(time, _)| *time);
    call.reply.begin_document("cursor").begin_array("firstBatch");
    let (count, ended) = cursor.next_batch(batch_size, call.reply)?;
    call.reply.end();
    call.server.counters.returned.add(count);
    let keeps = !single_batch && (!ended || (cursor.tailable && batch_size > 0));
    let id = match keeps {
        true => {
            cursor.session = call.arguments.session;
            call.server.database.cursors.add(cursor)
        }
        false => 0,
    };
    if let Some(time) = snapshot {
        call.reply.append("atClusterTime", Value::Timestamp(time));
    }
    call.reply.append("id", id).append("ns", namespace.as_str()).end();
    Ok(())
}

/// Writes a reply whose cursor holds all documents there are, unless they are more than a batch.
pub(crate) fn whole(
    call: &mut Call<'_>,
    namespace: Namespace,
    documents: Vec<DocumentBuf>,
    batch_size: u64,
) -> Result<()> {
    let source = database::language::from_documents(documents);
    let mut cursor = Cursor::new(namespace, source, call.operation());
    // Unlike a plan's, this stream's end is known beforehand.
    cursor.looks_ahead = true;
    first(call, cursor, batch_size, false)
}

/// The batch size in a command's `cursor` field.
pub(crate) fn batch_size(cursor: Option<Document<'_>>, place: &str) -> Result<Option<u64>> {
    let Some(cursor) = cursor else { return Ok(None) };
    let mut fields = crate::fields::Fields::of_document(format!("{place}.cursor"), cursor);
    let size = fields.natural("batchSize")?;
    fields.finish()?;
    Ok(size)
}

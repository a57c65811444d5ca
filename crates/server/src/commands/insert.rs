//! `insert`: documents into a collection, which is created if it isn't there.

use super::write_batch::WriteBatch;
use crate::call::{Answer, Call};
use crate::command::{Command, Kind};
use crate::fields::Fields;
use base::Result;
use base::bson::{Document, DocumentBuf};
use database::InsertRequest;

/// The row of the table.
pub(crate) const INSERT: Command =
    Command::new("insert", Kind::Write, "Inserts documents.", insert).stable_api();

fn insert(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let documents = fields.required("documents", Fields::documents)?;
    let ordered = fields.flag("ordered")?.unwrap_or(true);
    let bypass_validation = fields.flag("bypassDocumentValidation")?.unwrap_or(false);
    fields.refuse_unless_default("isTimeseriesNamespace")?;
    fields.refuse_unless_default("encryptionInformation")?;
    fields.finish()?;

    let surroundings = call.surroundings();
    let mut batch = WriteBatch::begin(call, documents.len(), ordered)?;
    let mut inserted = 0;
    for (position, document) in documents.iter().enumerate() {
        if batch.answered(position).is_some() {
            inserted += 1;
            continue;
        }
        let request = InsertRequest { document, bypass_validation };
        let record = batch.key(position).map(|key| (key, Document::EMPTY));
        let database = &call.server.database;
        match database.insert_retryable(
            &surroundings.operation,
            &namespace,
            request,
            &surroundings.context,
            record,
        ) {
            Ok(committed) => {
                inserted += 1;
                batch.committed(Some(committed));
                batch.record(position, DocumentBuf::empty);
            }
            Err(error) => {
                if !batch.failed(position, error)? {
                    break;
                }
            }
        }
    }
    call.server.counters.inserted.add(inserted as u64);
    call.reply.append("n", inserted);
    batch.finish(call)?;
    Ok(Answer::Done)
}

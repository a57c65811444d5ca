//! `insert`: inserts documents into a collection, which is created if missing.

use super::write_batch::{WriteBatch, run_suspendable};
use crate::access::{Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use base::bson::{Document, DocumentBuf};
use base::{ErrorCode, Result};
use database::{InsertProgress, InsertRequest, Insertion, Scope};
use smallvec::SmallVec;

/// Position in the command table.
pub(crate) const INSERT: Row = Row::write("insert", insert, Requirements::By(requirements::insert))
    .help("Inserts documents.")
    .stable_api()
    .retryable_write()
    .restarts();

/// Maximum number of documents that are read again after a suspension.
const PART_MAX: usize = 2000;

fn insert(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.writable_namespace()?;
    let documents = fields.required("documents", Fields::sequence)?;
    let ordered = fields.boolean("ordered")?.unwrap_or(true);
    let bypass_validation = fields.flag("bypassDocumentValidation")?.unwrap_or(false);
    let keeps_timestamps = fields.boolean("bypassEmptyTsReplacement")?.unwrap_or(false);
    let uuid = fields.uuid("collectionUUID")?;
    fields.refuse_unless_default("isTimeseriesNamespace")?;
    fields.refuse_unless_default("encryptionInformation")?;
    fields.finish()?;

    let count = documents.len();
    let begin = |call: &Call<'_>| {
        call.check_uuid(&namespace, uuid)?;
        let scope = call.scope(namespace).keep_empty_timestamps(keeps_timestamps);
        scope.operation.keep_progress();
        let batch = WriteBatch::begin_presuming(call, count, ordered)?;
        let progress = InsertProgress::of_write(batch.key(0).filter(|_| count > 1));
        let rest = documents.iter().rest();
        Ok(Inserting { scope, batch, inserted: 0, begin: 0, rest, position: 0, progress })
    };
    let run = |call: &mut Call<'_>, inserting: &mut Inserting| {
        while inserting.rest > 0 {
            let mut remaining = documents.iter_from(inserting.rest);
            let mut part: SmallVec<[Document<'_>; 1]> = SmallVec::with_capacity(count.min(PART_MAX));
            part.extend(remaining.by_ref().take(PART_MAX));
            if !inserting.run(call, &part, bypass_validation)? {
                break;
            }
            (inserting.begin, inserting.rest) = (inserting.position, remaining.rest());
        }
        let Inserting { batch, inserted, position, .. } = inserting;
        let position = *position;
        call.server.counters.inserted.add(position.min(count) as u64 + u64::from(position < count));
        call.reply.append(c"n", if call.is_unacknowledged() { 0 } else { *inserted });
        batch.finish(call)
    };
    run_suspendable(call, begin, run)
}

/// A running insert. It continues after a wait.
struct Inserting {
    scope: Scope,
    batch: WriteBatch,
    inserted: i32,
    /// Number of documents before the present part of the list.
    begin: usize,
    /// Bytes of the list from the present part on.
    rest: usize,
    /// Number of documents that are done.
    position: usize,
    progress: InsertProgress,
}

impl Inserting {
    /// Inserts the remaining documents of a part of the list. Returns false if the command must stop.
    ///
    /// Errors: as [`WriteBatch::failed`].
    fn run(&mut self, call: &Call<'_>, part: &[Document<'_>], bypass_validation: bool) -> Result<bool> {
        let Inserting { scope, batch, inserted, begin, position, progress, .. } = self;
        let begin = *begin;
        let mut insertions: SmallVec<[Insertion<'_>; 1]> = SmallVec::with_capacity(part.len());
        while *position < begin + part.len() {
            if batch.recorded_result(*position).is_some() {
                *inserted += 1;
                *position += 1;
                continue;
            }
            if begin + insertions.len() <= *position {
                // The documents before the next one that the retry record already contains. Earlier ones are not read
                // again.
                let unanswered = (begin..).zip(part).skip(insertions.len());
                let unanswered = unanswered.take_while(|(at, _)| *at <= *position || !batch.has_result(*at));
                insertions.extend(unanswered.map(|(at, document)| Insertion {
                    request: InsertRequest { document: *document, bypass_validation },
                    record: batch.key(at).map(|key| (key, Document::EMPTY)),
                }));
            }
            let rest = insertions.get(*position - begin..).unwrap_or_default();
            let outcome = call.server.database.insert_many(scope, rest, progress);
            *inserted += outcome.count as i32;
            batch.committed(outcome.committed);
            if !outcome.error.as_ref().is_some_and(|error| error.code() == ErrorCode::LockBusy) {
                call.leave_queue();
            }
            (*position..*position + outcome.count).for_each(|at| batch.record(at, DocumentBuf::empty));
            *position += outcome.count;
            if let Some(error) = outcome.error {
                if error.code() == ErrorCode::LockBusy {
                    return Err(error);
                }
                if batch.is_decided_again(call, *position, &error)? {
                    // The record may have further statements.
                    insertions.truncate(*position - begin);
                    continue;
                }
                if !batch.failed(*position, error)? {
                    return Ok(false);
                }
                *position += 1;
            }
        }
        Ok(true)
    }
}

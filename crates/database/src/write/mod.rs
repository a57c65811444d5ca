//! The statements that change documents.
//!
//! Each finds its documents on a view without holding anybody up, then changes them one
//! transaction at a time: under the commit lock the document is read again, and if it is no
//! longer the one that matched, matching is repeated on what it has become.

mod delete;
mod find_and_modify;
mod insert;
pub(crate) mod retryable;
mod update;

pub use delete::DeleteRequest;
pub use find_and_modify::{Action, AnswerOf, FindAndModifyOutcome, FindAndModifyRequest};
pub use insert::InsertRequest;
pub(crate) use insert::trim;
pub use retryable::{RetryKey, StoredRetry, delete_answer};
pub use update::{UpdateOutcome, UpdateRequest};

use crate::collection::Collection;
use crate::index::DocumentKeys;
use base::bson::Document;
use base::{Error, Result, err};
use query::Context;

/// How often a statement starts over because its document kept changing under it, before it gives
/// up with WriteConflict.
const RETRIES_MAX: usize = 10_000;

/// The keys of a document in every index of a collection, in the order of the indexes.
pub(crate) fn keys_of(
    collection: &Collection,
    document: Document<'_>,
    context: &Context,
) -> Result<Vec<DocumentKeys>> {
    let indexes = collection.data()?.indexes.iter();
    indexes.map(|index| index.spec.keys_of(document, context)).collect()
}

/// A plan's error in the middle of a statement, as MongoDB introduces it: what is wrong with the
/// statement itself, its plan included, is told without.
fn during<T>(statement: &str, outcome: Result<T>) -> Result<T> {
    outcome.map_err(|error| error.context(&format!("Plan executor error during {statement}")))
}

fn too_many_retries() -> Error {
    err!(WriteConflict, "the document kept changing while the statement tried to write it")
}

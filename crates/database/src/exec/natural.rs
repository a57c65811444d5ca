//! Natural order: that of insertion, or in a clustered collection that of `_id`.
//!
//! A clustered collection keeps its records by number as any other does, so its order is that of
//! its index on `_id`, walked from end to end.

use super::record_of;
use crate::collection::Data;
use crate::keys::{IndexEntry, RecordId};
use crate::storage_error;
use base::Result;
use std::sync::Arc;
use storage::{Cursor, Direction, Ident, Lent, Range, Snapshot, Value};

/// Walks a collection in its natural order, or backwards.
pub(crate) struct Natural {
    cursor: Box<dyn Cursor>,
    clustered: Option<Fetched>,
}

/// The document that the last key led to.
struct Fetched {
    snapshot: Arc<dyn Snapshot>,
    records: Ident,
    value: Option<Value>,
}

/// The trees that a natural order is read from.
#[derive(Clone, Copy)]
pub(crate) struct NaturalOrder {
    records: Ident,
    /// The tree of the index that a clustered collection is ordered by.
    clustered: Option<Ident>,
}

impl NaturalOrder {
    /// The order of a collection.
    pub(crate) fn of(data: &Data) -> NaturalOrder {
        NaturalOrder { records: data.ident, clustered: data.clustered_index().map(|index| index.ident) }
    }

    /// Starts a walk over a snapshot.
    pub(crate) fn walk(self, snapshot: &Arc<dyn Snapshot>, direction: Direction) -> Result<Natural> {
        let tree = self.clustered.unwrap_or(self.records);
        let mut cursor = snapshot.scan(tree, Range::all(), direction).map_err(storage_error)?;
        if self.clustered.is_some() {
            cursor.bring(self.records, true);
        }
        let fetched = || Fetched { snapshot: snapshot.clone(), records: self.records, value: None };
        Ok(Natural { cursor, clustered: self.clustered.map(|_| fetched()) })
    }
}

impl Natural {
    /// The next record and its document.
    ///
    /// Errors: DataCorruptionDetected, and the engine's.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(RecordId, Lent<'_>)>> {
        let Some(fetched) = &mut self.clustered else {
            let Some((key, value)) = self.cursor.next().map_err(storage_error)? else { return Ok(None) };
            return Ok(Some((RecordId::from_key(key)?, value)));
        };
        loop {
            let Some((key, value)) = self.cursor.next().map_err(storage_error)? else { return Ok(None) };
            let id = IndexEntry::from_parts(key, &value, true)?.record;
            let document = match self.cursor.record().map_err(storage_error)? {
                Some(brought) => Some(brought),
                None => record_of(fetched.snapshot.as_ref(), fetched.records, id)?,
            };
            if let Some(document) = document {
                return Ok(Some((id, Lent::Value(fetched.value.insert(document)))));
            }
        }
    }
}

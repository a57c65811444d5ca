//! Tailable cursors: a collection scan that goes on from where it stopped.

use crate::collection::Collection;
use crate::commit::uuid_text;
use crate::database::Database;
use crate::exec::{Record, RecordStream};
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Document, DocumentCow};
use base::{Namespace, Result, err};
use query::matcher::Matcher;
use query::{Context, Interrupt};
use std::ops::Bound;
use std::sync::Arc;
use storage::{Cursor, Direction, Range};

/// A scan of a capped collection that yields nothing at its end but can be asked again.
pub(crate) struct Tail {
    database: Arc<Database>,
    operation: Arc<Operation>,
    namespace: Namespace,
    uuid: [u8; 16],
    matcher: Arc<Matcher>,
    context: Arc<Context>,
    /// The last record seen, matching or not.
    last: Option<RecordId>,
    /// How many more that match are passed over.
    skip: u64,
    /// The scan of the snapshot being read; `None` between requests.
    cursor: Option<Box<dyn Cursor>>,
}

impl Tail {
    pub(crate) fn new(
        database: Arc<Database>,
        operation: Arc<Operation>,
        collection: &Collection,
        (matcher, skip): (Arc<Matcher>, u64),
        context: Arc<Context>,
    ) -> Tail {
        let (namespace, uuid) = (collection.namespace.clone(), collection.uuid);
        Tail { database, operation, namespace, uuid, matcher, context, last: None, skip, cursor: None }
    }

    /// A scan of what lies behind the last record seen, on a new snapshot.
    fn resume(&self) -> Result<Box<dyn Cursor>> {
        let view = self.database.confirmed_view();
        let collection = view.catalog.get(&self.namespace).filter(|now| now.uuid == self.uuid);
        let Some(data) = collection.and_then(|collection| collection.data.as_ref()) else {
            return Err(err!(QueryPlanKilled, "collection dropped. UUID {}", uuid_text(&self.uuid)));
        };
        let mut range = Range::all();
        if let Some(last) = self.last {
            if view.snapshot.get(data.ident, &last.key()).map_err(storage_error)?.is_none() {
                return Err(err!(
                    CappedPositionLost,
                    "CollectionScan died due to position in capped collection being deleted. Last seen record \
                     id: RecordId({})",
                    last.0
                ));
            }
            range.lower = Bound::Excluded(last.key());
        }
        view.snapshot.scan(data.ident, range, Direction::Forward).map_err(storage_error)
    }
}

impl RecordStream for Tail {
    fn next(&mut self) -> Result<Option<Record>> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => self.resume()?,
        };
        while let Some((key, value)) = cursor.next().map_err(storage_error)? {
            self.operation.check()?;
            let id = RecordId::from_key(key)?;
            self.last = Some(id);
            if self.matcher.matches(Document::from_valid(&value), &self.context)? {
                if self.skip > 0 {
                    self.skip -= 1;
                    continue;
                }
                let document = DocumentCow::Shared(value.to_shared());
                self.cursor = Some(cursor);
                return Ok(Some(Record { id, document, sort_key: None, meta: None }));
            }
        }
        Ok(None)
    }
}

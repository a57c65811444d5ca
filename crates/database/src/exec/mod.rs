//! Running plans: streams of records over one snapshot.

mod sort;
mod window;

use self::sort::Sort;
use self::window::Window;
use crate::collection::Collection;
use crate::database::View;
use crate::keys::RecordId;
use crate::operation::Operation;
use crate::plan::{Hint, Read};
use crate::storage_error;
use base::Result;
use base::bson::{Document, DocumentCow};
use query::matcher::Matcher;
use query::{Context, Interrupt};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::{Direction, Range, Value};

/// A document a plan found, and where it is stored.
pub struct Record {
    /// Its place in the collection.
    pub id: RecordId,
    /// The document, or what the index alone knew of it.
    pub document: DocumentCow,
    /// The key it was sorted by, where there was a sort: for `{$meta: "sortKey"}`.
    pub sort_key: Option<Vec<u8>>,
}

impl Record {
    /// Whether a stored value is still the very document that was found.
    pub(crate) fn is(&self, stored: &Value) -> bool {
        matches!(&self.document, DocumentCow::Shared(bytes) if bytes.as_ptr() == stored.as_ptr())
    }
}

/// Yields records one at a time; owns its snapshot.
pub trait RecordStream: Send {
    /// The next record, or `None` when there are no more (and ever after).
    fn next(&mut self) -> Result<Option<Record>>;
}

/// Starts a read.
pub(crate) fn start(
    operation: &Arc<Operation>,
    view: &View,
    collection: &Arc<Collection>,
    read: Read,
    context: &Arc<Context>,
) -> Result<Box<dyn RecordStream>> {
    let natural = read.sort.as_ref().and_then(|sort| sort.natural());
    let backward = natural == Some(false) || matches!(read.hint, Some(Hint::Natural { forward: false }));
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let cursor =
        view.snapshot.scan(collection.data()?.ident, Range::all(), direction).map_err(storage_error)?;
    let scan = CollectionScan {
        cursor,
        matcher: read.matcher,
        context: context.clone(),
        operation: operation.clone(),
    };
    let mut stream: Box<dyn RecordStream> = Box::new(scan);
    if let Some(pattern) = read.sort.filter(|_| natural.is_none()) {
        let wanted = if read.limit == 0 { 0 } else { read.limit.saturating_add(read.skip) };
        stream = Box::new(Sort::new(stream, pattern, wanted, !read.allow_disk_use));
    }
    if read.skip > 0 || read.limit > 0 {
        stream = Box::new(Window::new(stream, read.skip, read.limit));
    }
    Ok(stream)
}

struct CollectionScan {
    cursor: Box<dyn storage::Cursor>,
    matcher: Arc<Matcher>,
    context: Arc<Context>,
    operation: Arc<Operation>,
}

impl RecordStream for CollectionScan {
    fn next(&mut self) -> Result<Option<Record>> {
        while let Some((key, value)) = self.cursor.next().map_err(storage_error)? {
            if self.operation.docs_examined.fetch_add(1, Relaxed) & 127 == 0 {
                self.operation.check()?;
            }
            if self.matcher.matches(Document::from_valid(value), &self.context)? {
                let id = RecordId::from_key(key)?;
                let document = DocumentCow::Shared(value.to_shared());
                return Ok(Some(Record { id, document, sort_key: None }));
            }
        }
        Ok(None)
    }
}

//! Sources of documents in memory.

use super::{Stage, Stream};
use crate::Row;
use base::Result;
use base::bson::DocumentBuf;

/// A source over an iterator.
struct Iter<I>(I);

impl<R: Into<Row>, I: Iterator<Item = Result<R>> + Send> Stage for Iter<I> {
    fn next(&mut self) -> Result<Option<Row>> {
        Ok(self.0.next().transpose()?.map(Into::into))
    }
}

/// Returns a source of an iterator's rows or documents.
pub fn from_iter<R: Into<Row>>(rows: impl Iterator<Item = Result<R>> + Send + 'static) -> Stream {
    Box::new(Iter(rows.fuse()))
}

/// Returns a source of the given documents.
pub fn from_documents(documents: Vec<DocumentBuf>) -> Stream {
    from_iter(documents.into_iter().map(Ok))
}

//! Sources of documents in memory.

use super::{Stage, Stream};
use base::Result;
use base::bson::{DocumentBuf, DocumentCow};

/// A source over an iterator.
struct Iter<I>(I);

impl<I: Iterator<Item = Result<DocumentCow>> + Send> Stage for Iter<I> {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        self.0.next().transpose()
    }
}

/// Returns a source of an iterator's documents.
pub fn from_iter(documents: impl Iterator<Item = Result<DocumentCow>> + Send + 'static) -> Stream {
    Box::new(Iter(documents.fuse()))
}

/// Returns a source of the given documents.
pub fn from_documents(documents: Vec<DocumentBuf>) -> Stream {
    from_iter(documents.into_iter().map(|document| Ok(document.into())))
}

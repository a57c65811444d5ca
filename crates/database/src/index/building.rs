//! An index that is being built while documents change.
//!
//! The builder loads the entries of a snapshot, sorted, a few at a time. Whoever changes a document meanwhile
//! writes its entries into the index being built as into any other, and marks the record: the builder leaves
//! out what its snapshot says of marked records. So nothing has to be caught up with at the end.

use super::Index;
use std::sync::Arc;
use storage::store::Build;

/// An index of a collection that no plan may use yet.
pub struct Building {
    /// The index; its tree holds what has been loaded so far, and what was written since the build began.
    pub index: Arc<Index>,
    /// What its builder is told by those who write to it.
    pub build: Arc<Build>,
}

//! An index that is being built while documents change.
//!
//! The builder loads the entries of a snapshot, sorted, a few at a time. Whoever changes a document meanwhile
//! writes its entries into the index being built as into any other, and marks the record: the builder leaves
//! out what its snapshot says of marked records. So nothing has to be caught up with at the end.

use super::{Index, KeyOf};
use parking_lot::Mutex;
use std::sync::Arc;
use storage::store::Marks;

/// An index of a collection that no plan may use yet.
pub struct Building {
    /// The index; its tree holds what has been loaded so far, and what was written since the build began.
    pub index: Arc<Index>,
    /// The records changed since the snapshot that is being loaded.
    pub changed: Arc<Marks>,
    /// A key that two documents have, where the index must be unique: the build ends with it.
    pub(crate) duplicate: Mutex<Option<KeyOf>>,
}

impl Building {
    /// A build that loads records up to the id `greatest`.
    pub(crate) fn new(index: Arc<Index>, greatest: u64) -> Building {
        Building { index, changed: Arc::new(Marks::up_to(greatest)), duplicate: Mutex::default() }
    }

    /// Whether the build is going to end without an index.
    pub(crate) fn has_failed(&self) -> bool {
        self.duplicate.lock().is_some()
    }
}

//! A consistent sight of everything: the catalog and the data that belongs to it.

use crate::catalog::Catalog;
use std::sync::Arc;
use storage::Snapshot;

/// A consistent sight of everything: the catalog and the data that belongs to it.
#[derive(Clone)]
pub struct View {
    /// Which collections there are.
    pub catalog: Arc<Catalog>,
    /// What is in them.
    pub snapshot: Arc<dyn Snapshot>,
    /// The bytes that commits had replaced when it was taken.
    pub(crate) replaced_at: u64,
}

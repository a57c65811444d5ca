//! Changing the catalog: collections, views, databases, indexes.
//!
//! Creating and dropping touch the catalog and name trees to the engine; nothing here takes time
//! in proportion to documents except building an index over them.

mod build;
mod collections;
mod indexes;
mod uniqueness;
mod views;

pub use collections::{RenameRequest, check_writable};
pub use indexes::CreateIndexesOutcome;
pub use views::Resolved;

//! Changes of the catalog: collections, views, databases, indexes.
//!
//! Creating and dropping change the catalog and pass the names of trees to the engine. Only index
//! builds over existing documents take time proportional to the documents.

mod build;
mod collections;
mod indexes;
mod uniqueness;
mod views;

pub use collections::{RenameRequest, check_writable};
pub use indexes::{CreateIndexesOutcome, IndexProgress};
pub use views::Resolved;

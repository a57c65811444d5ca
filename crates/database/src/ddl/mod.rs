//! Changes of the catalog: collections, views, databases, indexes.
//!
//! Creating and dropping change the catalog and pass the names of trees to the engine. Only index
//! builds over existing documents take time proportional to the documents.

mod build;
mod build_state;
mod collections;
mod indexes;
mod modify;
mod rebuild;
mod uniqueness;
mod views;

pub use build_state::BuildProgress;
pub use collections::{RenameRequest, check_writable};
pub use indexes::{CreateIndexesOutcome, IndexCreation};
pub use modify::{ChangedIndex, CollectionChange, CollectionChanged, IndexChange};
pub use views::Resolved;

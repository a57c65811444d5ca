//! Commands on databases, collections and indexes.

pub(crate) mod collections;
pub(crate) mod indexes;
pub(crate) mod listings;
pub(crate) mod validate;

//! Commands on databases, collections and indexes.

pub(crate) mod check_sharding_index;
pub(crate) mod collections;
pub(crate) mod indexes;
pub(crate) mod listings;
pub(crate) mod search_indexes;
pub(crate) mod validate;
pub(crate) mod validate_metadata;

//! Commands on the replica set and its members.

pub(crate) mod alone;
pub(crate) mod apply_ops;
pub(crate) mod hello;
pub(crate) mod replication;
pub(crate) mod replication_changes;

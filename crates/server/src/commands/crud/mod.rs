//! Commands that read and write documents.

pub(crate) mod aggregate;
pub(crate) mod bulk_write;
pub(crate) mod data;
pub(crate) mod delete;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod find_and_modify;
pub(crate) mod insert;
pub(crate) mod retry;
pub(crate) mod update;
pub(crate) mod write_batch;

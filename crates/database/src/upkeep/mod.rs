//! Work beside statements: expiry, checks, repair, backups, and copies of databases.

mod clean_slate;
pub(crate) mod constraint;
pub(crate) mod difference;
pub(crate) mod plan_cache;
mod profile;
pub mod repair;
pub(crate) mod statistics;
mod ttl;
pub mod validate;

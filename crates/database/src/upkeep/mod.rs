//! Work beside statements: expiry, checks, repair, backups, and copies of databases.

mod backup;
mod clean_slate;
pub(crate) mod difference;
mod profile;
pub mod repair;
mod ttl;
pub mod validate;

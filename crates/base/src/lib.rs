//! Shared types of all layers of Vellum: BSON bytes, key strings, namespaces and errors.
//!
//! No I/O, no clock, no threads. Only [`bson::validate`] turns bytes from outside into trusted BSON. All other modules
//! read and write valid BSON in place.

pub mod bson;
pub mod calendar;
pub mod codes;
pub mod compatible_with;
pub mod encoding;
pub mod error;
pub mod hash;
pub mod key_string;
pub mod memory;
pub mod namespace;
mod order;
pub mod random;

#[cfg(test)]
mod testing;

pub use codes::ErrorCode;
pub use compatible_with::CompatibleWith;
pub use error::{Error, Result, check_bounds};
pub use namespace::Namespace;

//! Documents as text: MongoDB's extended JSON, and the shell's way of writing the same.
//!
//! Reading takes the canonical and the relaxed form and, so that people can write it by hand,
//! what the shell accepts: unquoted names, single quotes, trailing commas, `/regex/i`,
//! `ObjectId('…')`, `NumberLong(1)`, `ISODate('…')` and so on. Writing does each of the three.
//!
//! A document counts as a typed value if its first name is one of extended JSON's (`$oid`,
//! `$date`, …). `$regex` and `$type` are not among them: they are query operators, and the older
//! form of extended JSON that used them differently isn't read.

pub mod base64;
mod date;
mod parse;
mod shell;
#[cfg(test)]
mod tests;
mod typed;
mod write;

pub use date::{format_millis, parse_millis};
pub use parse::{parse, parse_prefix, parse_value};
pub use write::{to_canonical, to_relaxed, to_shell, value_to_canonical, value_to_relaxed, value_to_shell};

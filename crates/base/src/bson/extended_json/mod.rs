//! Documents as text: MongoDB's extended JSON and the shell's syntax.
//!
//! The parser reads the canonical and the relaxed form. It also reads the shell's syntax for hand-written text:
//! unquoted names, single quotes, trailing commas, `/regex/i`, `ObjectId('…')`, `NumberLong(1)`, `ISODate('…')` and so
//! on. The writer produces each of the three forms.
//!
//! A document is a typed value if its first name is one of extended JSON's (`$oid`, `$date`, …). `$regex` and `$type`
//! are excluded because they are query operators. The older form of extended JSON that used them differently is not
//! supported.

mod parse;
#[cfg(test)]
mod tests;
mod typed;
mod write;

pub use parse::{parse, parse_prefix, parse_value};
pub use typed::{format_millis, parse_millis};
pub use write::{to_canonical, to_relaxed, to_shell, value_to_canonical, value_to_relaxed, value_to_shell};

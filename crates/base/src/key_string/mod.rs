//! Key strings: values as bytes whose `memcmp` order is MongoDB's order of values.
//!
//! A key is a sequence of components. Each component is self-delimiting (never a prefix of another), so comparing keys
//! compares component by component. A descending component has all its bits inverted. Any bytes may follow a key, such
//! as a record id.
//!
//! | first byte | value | then |
//! |---|---|---|
//! | 08 | MinKey | |
//! | 0C, 10 | undefined, null | |
//! | 20 … 37 | numbers of all types, NaN first | see `number` |
//! | 40 | string, symbol | text, 00 |
//! | 48 | document | for each element: first byte of its rank, name, 00, value; then 00 |
//! | 50 | array | its values, then 00 |
//! | 58 | binary | length, subtype, bytes |
//! | 60 … 78 | ObjectId, false, true, date, timestamp, regex | |
//! | 80, 88, 90 | DBPointer, code, code with scope | |
//! | F0 | MaxKey | |
//!
//! Text encodes the bytes 00 and 01 as 01 01 and 01 02, which preserves the order and keeps the terminator unique.
//! Equal values of different types have equal bytes. [Type bits](KeyBuilder::type_bits) store the type of a number
//! outside the key. They are empty for int32s, for int64s that need their width, for doubles with a fraction and for
//! strings.

mod decode;
mod encode;
mod number;
mod tags;
#[cfg(test)]
mod tests;
mod type_bits;

pub use decode::{Decoder, component_length, decode};
pub use encode::{Collate, KeyBuilder, encode, encode_collated, encode_while};

/// Returns the smallest bytes that sort after every key with this prefix. `None` if the prefix is empty or consists of
/// FF only.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut bytes = prefix.get(..=end)?.to_vec();
    *bytes.last_mut()? += 1;
    Some(bytes)
}

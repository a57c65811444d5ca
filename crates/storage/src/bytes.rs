//! Keys and values of an engine: small ones are stored inline, large values are shared.
//!
//! A [`Key`] of up to 22 bytes needs no allocation. This covers record ids and most index keys. A
//! [`Value`] has 16 bytes. Empty values and values of 8 bytes, as in index entries, are stored
//! inline. Other values are reference-counted allocations. The tree, its snapshots and its readers
//! share them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

const INLINE_KEY: usize = 22;
const INLINE_VALUE: usize = 8;
/// Inline pattern of the empty value. A value with these eight bytes is stored shared.
const EMPTY: [u8; INLINE_VALUE] = [0xFF; INLINE_VALUE];

const _: () = assert!(size_of::<Key>() == 24);
const _: () = assert!(size_of::<Value>() == 16);

/// The key of an entry: bytes whose `memcmp` order is the order of the tree.
#[derive(Clone)]
pub struct Key(KeyBytes);

#[derive(Clone)]
enum KeyBytes {
    Inline { len: u8, bytes: [u8; INLINE_KEY] },
    Heap(Box<[u8]>),
}

impl Key {
    /// Maximum length of a key in bytes: more than any index key of a 16 MiB document.
    pub const MAX_BYTES: usize = 1 << 26;
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            KeyBytes::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            KeyBytes::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Key {
    #[inline]
    fn from(from: &[u8]) -> Self {
        let mut bytes = [0; INLINE_KEY];
        match bytes.get_mut(..from.len()) {
            Some(inline) => {
                inline.copy_from_slice(from);
                Key(KeyBytes::Inline { len: from.len() as u8, bytes })
            }
            None => Key(KeyBytes::Heap(from.into())),
        }
    }
}

impl From<Vec<u8>> for Key {
    fn from(from: Vec<u8>) -> Self {
        match from.len() {
            0..=INLINE_KEY => Key::from(from.as_slice()),
            _ => Key(KeyBytes::Heap(from.into_boxed_slice())),
        }
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    #[inline]
    fn from(from: &[u8; N]) -> Self {
        Key::from(from.as_slice())
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    #[inline]
    fn from(from: [u8; N]) -> Self {
        Key::from(from.as_slice())
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Text(self))
    }
}

/// The value of an entry: immutable, and cheap to clone.
#[derive(Clone)]
pub struct Value(ValueBytes);

#[derive(Clone)]
enum ValueBytes {
    Inline([u8; INLINE_VALUE]),
    Shared(Arc<[u8]>),
}

impl Value {
    /// Returns the empty value, without an allocation.
    pub const fn empty() -> Self {
        Value(ValueBytes::Inline(EMPTY))
    }

    /// Returns true if other references to the bytes exist at this moment.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(&self.0, ValueBytes::Shared(bytes) if Arc::strong_count(bytes) > 1)
    }

    /// Returns the bytes as a reference-counted slice. Shared bytes are not copied, inline bytes
    /// are.
    pub fn to_shared(&self) -> Arc<[u8]> {
        match &self.0 {
            ValueBytes::Shared(bytes) => bytes.clone(),
            ValueBytes::Inline(_) => Arc::from(&**self),
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Value::empty()
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValueBytes::Shared(bytes) => bytes,
            ValueBytes::Inline(bytes) if *bytes == EMPTY => &[],
            ValueBytes::Inline(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Value {
    #[inline]
    fn from(from: &[u8]) -> Self {
        match <[u8; INLINE_VALUE]>::try_from(from) {
            Ok(bytes) if bytes != EMPTY => Value(ValueBytes::Inline(bytes)),
            _ if from.is_empty() => Value::empty(),
            _ => Value(ValueBytes::Shared(from.into())),
        }
    }
}

impl From<Vec<u8>> for Value {
    fn from(from: Vec<u8>) -> Self {
        Value::from(from.as_slice())
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    #[inline]
    fn from(from: [u8; N]) -> Self {
        Value::from(from.as_slice())
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    #[inline]
    fn from(from: &[u8; N]) -> Self {
        Value::from(from.as_slice())
    }
}

impl From<Arc<[u8]>> for Value {
    fn from(from: Arc<[u8]>) -> Self {
        match from.len() {
            0 | INLINE_VALUE => Value::from(&*from),
            _ => Value(ValueBytes::Shared(from)),
        }
    }
}

/// A value borrowed from a cursor: the engine's own value, or bytes within a page, which must be
/// copied to be kept.
#[derive(Clone, Copy)]
pub enum ValueRef<'a> {
    /// The engine's own value, cheap to keep.
    Value(&'a Value),
    /// A part of a larger buffer.
    Bytes(&'a [u8]),
}

impl ValueRef<'_> {
    /// Returns an owned value.
    #[inline]
    pub fn to_value(self) -> Value {
        match self {
            ValueRef::Value(value) => value.clone(),
            ValueRef::Bytes(bytes) => Value::from(bytes),
        }
    }

    /// Returns the bytes as a reference-counted slice, see [`Value::to_shared`].
    #[inline]
    pub fn to_shared(self) -> Arc<[u8]> {
        match self {
            ValueRef::Value(value) => value.to_shared(),
            ValueRef::Bytes(bytes) => Arc::from(bytes),
        }
    }
}

impl Deref for ValueRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            ValueRef::Value(value) => value,
            ValueRef::Bytes(bytes) => bytes,
        }
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Text(self))
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Text(self))
    }
}

/// Printable bytes: ASCII as it is, other bytes as `\xNN`.
pub(crate) struct Text<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            match byte {
                b'\\' => write!(f, "\\\\")?,
                b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_bytes_at_every_length() {
        for len in 0..40u8 {
            let bytes: Vec<u8> = (0..len).collect();
            assert_eq!(&*Key::from(bytes.as_slice()), &*bytes);
            assert_eq!(&*Key::from(bytes.clone()), &*bytes);
            assert_eq!(Key::from(bytes.as_slice()), Key::from(bytes));
        }
    }

    #[test]
    fn keys_are_ordered_as_bytes() {
        let long = vec![b'b'; 30];
        let keys = [Key::from(b"a"), Key::from(b"a\0"), Key::from(b"b"), Key::from(long), Key::from(b"c")];
        assert!(keys.is_sorted());
        assert_eq!(format!("{:?}", Key::from(b"a\\\x01")), r"a\\\x01");
    }

    #[test]
    fn values_keep_their_bytes_at_every_length() {
        for len in 0..40u8 {
            for fill in [0, 1, 0xFF] {
                let bytes = vec![fill; usize::from(len)];
                assert_eq!(&*Value::from(bytes.as_slice()), &*bytes);
                assert_eq!(&*Value::from(Arc::<[u8]>::from(bytes.as_slice())), &*bytes);
                assert_eq!(Value::from(bytes.as_slice()), Value::from(bytes));
            }
        }
        assert!(Value::empty().is_empty());
    }

    #[test]
    fn a_value_shares_the_bytes_it_was_given() {
        let bytes: Arc<[u8]> = vec![7; 100].into();
        let address = bytes.as_ptr();
        let value = Value::from(bytes);
        assert_eq!(value.clone().as_ptr(), address);
    }
}

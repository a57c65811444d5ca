//! Keys and values as they pass through an engine: small ones inline, large values shared.
//!
//! A [`Key`] of up to 22 bytes, which covers record ids and most index keys, needs no allocation. A
//! [`Value`] is 16 bytes: empty values and values of 8 bytes (what index entries hold) lie inline, anything
//! else is a reference-counted allocation made once and shared by the tree, its snapshots and its readers.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

const INLINE_KEY: usize = 22;
const INLINE_VALUE: usize = 8;
/// The inline pattern that stands for the empty value; the eight bytes themselves are stored shared.
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
    /// The longest key an engine accepts, in bytes: more than any index key of a 16 MiB document.
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

/// The bytes of an entry: immutable, and cheap to clone.
#[derive(Clone)]
pub struct Value(ValueBytes);

#[derive(Clone)]
enum ValueBytes {
    Inline([u8; INLINE_VALUE]),
    Shared(Arc<[u8]>),
}

impl Value {
    /// The empty value, which allocates nothing.
    pub const fn empty() -> Self {
        Value(ValueBytes::Inline(EMPTY))
    }

    /// Whether the bytes are referred to from elsewhere at this moment.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(&self.0, ValueBytes::Shared(bytes) if Arc::strong_count(bytes) > 1)
    }

    /// The bytes as a reference-counted run: the engine's own where they are shared, copied where
    /// they lie inline.
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

/// The value of an entry as a cursor lends it: one that the engine has as such, or bytes within a page, which are
/// copied where somebody keeps them.
#[derive(Clone, Copy)]
pub enum Lent<'a> {
    /// The engine's own, which is cheap to keep.
    Value(&'a Value),
    /// A part of something larger.
    Bytes(&'a [u8]),
}

impl Lent<'_> {
    /// The value, to be kept.
    #[inline]
    pub fn to_value(self) -> Value {
        match self {
            Lent::Value(value) => value.clone(),
            Lent::Bytes(bytes) => Value::from(bytes),
        }
    }

    /// The bytes as a reference-counted run, as [`Value::to_shared`] has them.
    #[inline]
    pub fn to_shared(self) -> Arc<[u8]> {
        match self {
            Lent::Value(value) => value.to_shared(),
            Lent::Bytes(bytes) => Arc::from(bytes),
        }
    }
}

impl Deref for Lent<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Lent::Value(value) => value,
            Lent::Bytes(bytes) => bytes,
        }
    }
}

impl PartialEq for Lent<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Lent<'_> {
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

/// Bytes for the eyes: printable ASCII as it is, the rest as `\xNN`.
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

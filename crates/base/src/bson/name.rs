//! Field names: text without a zero byte, because BSON terminates names with one.

use super::Element;
use super::value::utf8;
use crate::{Error, err};
use std::borrow::Borrow;
use std::ffi::CStr;
use std::fmt;
use std::ops::Deref;

/// A borrowed field name. [`Builder`](super::Builder) takes only this type, so no code can write a name that ends
/// early.
///
/// A literal is written `c"name"`; the compiler refuses a zero byte in it. [`Element::field_name`] returns the name of
/// a parsed element without checking it again. Computed text passes [`FieldName::new`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldName<'a>(&'a [u8]);

/// A field name that owns its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldNameBuf(Box<str>);

/// The pattern or the options of a regular expression: text without a zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct RegexText<'a>(&'a str);

/// Error: the text contains a zero byte and cannot be a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroByte;

impl<'a> FieldName<'a> {
    /// The name `_id`.
    pub const ID: FieldName<'static> = FieldName::literal("_id");

    /// Takes text; fails if it contains a zero byte.
    #[inline]
    pub fn new(text: &'a str) -> Result<FieldName<'a>, ZeroByte> {
        if text.as_bytes().contains(&0) { Err(ZeroByte) } else { Ok(FieldName(text.as_bytes())) }
    }

    /// Takes text of the program itself: constants and tables. Panics at a zero byte; the compiler reports it if it
    /// evaluates the call.
    pub const fn literal(text: &'static str) -> FieldName<'static> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            assert!(bytes[at] != 0, "a field name has no zero byte");
            at += 1;
        }
        FieldName(bytes)
    }

    /// Takes text that comes from a checked name. Panics at a zero byte, which is a bug of the caller. Text of a client
    /// must pass [`FieldName::new`].
    #[inline]
    pub fn trusted(text: &'a str) -> FieldName<'a> {
        assert!(!text.as_bytes().contains(&0), "a field name has no zero byte: {text:?}");
        FieldName(text.as_bytes())
    }

    /// Takes the bytes of a name whose end [`Elements`](super::Elements) has found.
    #[inline]
    pub(super) fn of_element(name: &'a [u8]) -> FieldName<'a> {
        FieldName(name)
    }

    /// The bytes of the name, without a terminator.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The name split at its dots.
    pub fn components(self) -> impl Iterator<Item = FieldName<'a>> {
        self.0.split(|&byte| byte == b'.').map(FieldName)
    }

    /// The name as text; empty if it is not UTF-8, which validation excludes.
    pub fn as_str(self) -> &'a str {
        utf8(self.0).unwrap_or("")
    }

    /// A copy that owns its bytes.
    pub fn to_owned(self) -> FieldNameBuf {
        FieldNameBuf(self.as_str().into())
    }

    /// Appends another name.
    pub fn joined(self, more: FieldName<'_>) -> FieldNameBuf {
        FieldNameBuf([self.as_str(), more.as_str()].concat().into())
    }
}

impl FieldNameBuf {
    /// Takes text; fails if it contains a zero byte.
    pub fn new(text: impl Into<Box<str>>) -> Result<FieldNameBuf, ZeroByte> {
        let text = text.into();
        FieldName::new(&text)?;
        Ok(FieldNameBuf(text))
    }

    /// Formats a number, such as an array position, as a name.
    pub fn of_number(number: usize) -> FieldNameBuf {
        FieldNameBuf(number.to_string().into())
    }

    /// The name, borrowed.
    #[inline]
    pub fn view(&self) -> FieldName<'_> {
        FieldName(self.0.as_bytes())
    }

    /// The name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> RegexText<'a> {
    /// Takes text; fails if it contains a zero byte.
    pub fn new(text: &'a str) -> Result<RegexText<'a>, ZeroByte> {
        if text.as_bytes().contains(&0) { Err(ZeroByte) } else { Ok(RegexText(text)) }
    }

    /// Takes text of the program itself. Panics at a zero byte; the compiler reports it if it evaluates the call.
    pub const fn literal(text: &'static str) -> RegexText<'static> {
        _ = FieldName::literal(text);
        RegexText(text)
    }

    /// Takes the text before a terminator.
    pub(super) fn terminated(text: &'a str) -> RegexText<'a> {
        RegexText(text)
    }

    /// The pattern or options as text.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

impl From<ZeroByte> for Error {
    fn from(_: ZeroByte) -> Error {
        err!(9534700, "Field names cannot contain an embedded null byte")
    }
}

impl From<&'static CStr> for FieldName<'static> {
    #[inline(always)]
    fn from(literal: &'static CStr) -> Self {
        FieldName(literal.to_bytes())
    }
}

impl<'a> From<&'a FieldNameBuf> for FieldName<'a> {
    #[inline]
    fn from(name: &'a FieldNameBuf) -> Self {
        name.view()
    }
}

impl<'a> From<&Element<'a>> for FieldName<'a> {
    #[inline]
    fn from(element: &Element<'a>) -> Self {
        element.field_name()
    }
}

impl Borrow<str> for FieldNameBuf {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Deref for FieldNameBuf {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Deref for RegexText<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        self.0
    }
}

impl fmt::Display for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for FieldNameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FieldNameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for RegexText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Builder, validate};
    use super::*;

    #[test]
    fn no_text_with_a_zero_byte_becomes_a_name() {
        for text in ["\0", "a\0", "\0a", "a\0b"] {
            assert_eq!(FieldName::new(text), Err(ZeroByte));
            assert_eq!(FieldNameBuf::new(text), Err(ZeroByte));
            assert_eq!(RegexText::new(text), Err(ZeroByte));
        }
        assert_eq!(Error::from(ZeroByte).code().number(), 9534700);
        assert_eq!(FieldName::new("a.b").map(FieldName::as_str), Ok("a.b"));
    }

    #[test]
    fn literals_computed_names_and_names_that_were_read_are_written_alike() {
        let mut out = Builder::new();
        out.append(c"a", 1).append(FieldName::literal("b"), 2).append(&FieldNameBuf::of_number(10), 3);
        let document = out.finish();
        let mut copy = Builder::new();
        document.view().iter().for_each(|element| _ = copy.append(&element, element.value()));
        assert_eq!(copy.finish(), document);
        validate(document.bytes()).unwrap();
    }
}

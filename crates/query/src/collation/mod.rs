//! Collation: language-specific string comparison.
//!
//! A [`Collation`] defines how an operation, a collection or an index compares values. Types compare in MongoDB's
//! order. Strings compare either bytewise (the simple collation) or by a [`Collator`]. All tests of equality and order
//! use it, so filters, groups, sorts and index keys always agree.

mod ascii;
mod collator;
mod locales;
mod parse;
#[cfg(test)]
mod tests;

pub use collator::Collator;

use crate::Interrupt;
use base::Result;
use base::bson::{self, Document, DocumentBuf, Value};
use base::key_string::{self, KeyBuilder};
use std::cmp::Ordering;
use std::sync::Arc;

/// The order of values: MongoDB's order, with strings compared bytewise or by a language.
///
/// Two collations are equal if all their options, including the locale, are equal. An index
/// serves only conditions with an equal collation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collation(Option<Arc<Collator>>);

/// Values below this size in bytes are encoded without interruption checks.
const LARGE: usize = 64 << 10;

impl Collation {
    /// The simple collation, which compares strings bytewise.
    pub const SIMPLE: Collation = Collation(None);

    /// Parses a `collation` document. `place` is the path of the document in error messages (`collation`,
    /// `create.collation`).
    ///
    /// Errors: IDLUnknownField, IDLFailedToParse, TypeMismatch, BadValue, FailedToParse and
    /// IncompatibleCollationVersion as in MongoDB; NotImplemented for locales without rules here.
    pub fn parse(document: Document<'_>, path: &str) -> Result<Collation> {
        parse::parse(document, path).map(Collation)
    }

    /// Whether strings compare bytewise.
    pub fn is_simple(&self) -> bool {
        self.0.is_none()
    }

    /// The collator of strings; `None` for the simple collation.
    pub fn collator(&self) -> Option<&Collator> {
        self.0.as_deref()
    }

    /// All options with their defaults, as listCollections and listIndexes return them; `None` for the simple
    /// collation.
    pub fn document(&self) -> Option<Document<'_>> {
        self.0.as_ref().map(|collator| collator.document())
    }

    /// The options for messages and explain, with an explicit `{locale: "simple"}`.
    pub fn describe(&self) -> DocumentBuf {
        match self.document() {
            Some(document) => document.to_owned(),
            None => {
                let mut out = bson::Builder::new();
                out.append(c"locale", locales::SIMPLE);
                out.finish()
            }
        }
    }

    /// Compares two values.
    #[inline]
    pub fn compare(&self, a: Value<'_>, b: Value<'_>) -> Ordering {
        match &self.0 {
            None => bson::compare(a, b),
            Some(collator) => bson::compare_with(a, b, &|a, b| collator.compare(a, b)),
        }
    }

    /// Compares two optional values, as [`bson::compare_optional`].
    pub fn compare_optional(&self, a: Option<Value<'_>>, b: Option<Value<'_>>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) => self.compare(a, b),
            (a, b) => bson::compare_optional(a, b),
        }
    }

    /// Whether two values are equal.
    #[inline]
    pub fn equal(&self, a: Value<'_>, b: Value<'_>) -> bool {
        self.compare(a, b).is_eq()
    }

    /// Appends bytes that compare as the values do. Equal values have equal bytes.
    pub fn append_key(&self, value: Value<'_>, ascending: bool, out: &mut Vec<u8>) {
        match &self.0 {
            None => key_string::encode(value, ascending, out),
            Some(collator) => {
                key_string::encode_collated(
                    value,
                    ascending,
                    &|text, key| collator.append_key(text, key),
                    out,
                );
            }
        }
    }

    /// Appends the key of a value that may be large, with interruption checks.
    ///
    /// Errors: interruption.
    pub fn append_large_key(
        &self,
        value: Value<'_>,
        ascending: bool,
        interrupt: &dyn Interrupt,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let bytes = match value {
            Value::Document(document) => document.bytes().len(),
            Value::Array(array) => array.as_document().bytes().len(),
            _ => 0,
        };
        if bytes < LARGE {
            self.append_key(value, ascending, out);
            return Ok(());
        }
        let mut stopped = None;
        let mut should_continue = || match interrupt.check() {
            Ok(()) => true,
            Err(error) => {
                stopped = Some(error);
                false
            }
        };
        match &self.0 {
            None => key_string::encode_while(value, ascending, None, &mut should_continue, out),
            Some(collator) => {
                let collate = |text: &str, key: &mut Vec<u8>| collator.append_key(text, key);
                key_string::encode_while(value, ascending, Some(&collate), &mut should_continue, out)
            }
        };
        stopped.map_or(Ok(()), Err)
    }

    /// Appends a component to an index key.
    pub fn push_key(&self, builder: &mut KeyBuilder, value: Value<'_>, ascending: bool) {
        match &self.0 {
            None => {
                builder.push(value, ascending);
            }
            Some(collator) => {
                builder.push_collated(value, ascending, &|text, key| collator.append_key(text, key));
            }
        }
    }
}

/// Whether the order of a value depends on the collation: whether it is or contains a string.
pub fn depends_on_collation(value: Value<'_>) -> bool {
    match value {
        Value::String(_) | Value::Symbol(_) => true,
        // Values come from validated documents, whose depth bounds the recursion.
        Value::Document(document) => document.iter().any(|element| depends_on_collation(element.value())),
        Value::Array(array) => array.iter().any(depends_on_collation),
        Value::JavaScriptWithScope { scope, .. } => {
            scope.iter().any(|element| depends_on_collation(element.value()))
        }
        _ => false,
    }
}

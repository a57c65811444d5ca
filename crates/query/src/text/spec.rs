//! Specification of a text index: the indexed strings of a document, their languages and weights.

use super::{Language, Version};
use base::bson::{Document, Value};
use base::{Result, err};
use std::collections::BTreeMap;

/// The specification of a text index.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSpec {
    /// The index version.
    pub version: Version,
    /// Weights by path.
    pub weights: BTreeMap<String, f64>,
    /// Whether all strings are indexed, even without an own weight.
    pub wildcard: bool,
    /// The language of documents without a language field.
    pub default_language: Language,
    /// The field that sets the language of a document or of a part.
    pub language_override: String,
}

/// One string of a document.
#[derive(Clone, Copy)]
pub(super) struct Text<'d> {
    pub(super) text: &'d str,
    pub(super) language: Language,
    pub(super) weight: f64,
}

impl TextSpec {
    /// Passes each indexed string to `visit` until it returns true; returns that result.
    ///
    /// Errors: 17261 for a language field that is not a string, 17262 for an unknown language.
    pub(super) fn any<'d>(
        &self,
        document: Document<'d>,
        visit: &mut dyn FnMut(Text<'d>) -> bool,
    ) -> Result<bool> {
        let language = match self.version {
            Version::V1 => self.language_of_v1(document),
            _ => self.language_of(document, self.default_language)?,
        };
        self.any_in(document, &Frame { path: "", in_array: false, language }, visit)
    }

    /// Visits the strings of a document or array. Nested arrays are visited only in a wildcard index.
    fn any_in<'d>(
        &self,
        document: Document<'d>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(Text<'d>) -> bool,
    ) -> Result<bool> {
        for field in document {
            if self.wildcard && field.name() == self.language_override {
                continue;
            }
            // Paths do not reach these fields.
            if !frame.in_array && (field.name().starts_with('$') || field.name().contains('.')) {
                continue;
            }
            let path = frame.path_of(field.name());
            let Some((exact, weight)) = self.weight(&path, matches!(field.value(), Value::Document(_)))
            else {
                continue;
            };
            let language = frame.language;
            let found = match field.value() {
                Value::String(text) if exact || self.wildcard => visit(Text { text, language, weight }),
                Value::Document(inner) if !exact || self.wildcard => {
                    let language = self.language_of(inner, language)?;
                    self.any_in(inner, &Frame { path: &path, in_array: false, language }, visit)?
                }
                Value::Array(items) if !frame.in_array || self.wildcard => {
                    let frame = Frame { path: &path, in_array: true, language };
                    self.any_in(Document::from_valid(items.bytes()), &frame, visit)?
                }
                _ => false,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a path itself has a weight, and the weight; `None` if nothing there is indexed.
    ///
    /// In a wildcard index, a path without a weight has the weight 1.
    fn weight(&self, path: &str, is_document: bool) -> Option<(bool, f64)> {
        // The first path below this path, if any.
        let from = if is_document { format!("{path}.") } else { path.to_string() };
        let below = |weighted_path: &str| {
            weighted_path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match self.weights.range(from..).next() {
            Some((weighted_path, weight)) if weighted_path == path => Some((true, *weight)),
            Some((weighted_path, _)) if below(weighted_path) => Some((false, 1.0)),
            _ if self.wildcard => Some((false, 1.0)),
            _ => None,
        }
    }

    /// Returns the language of a document or of a part.
    fn language_of(&self, document: Document<'_>, around: Language) -> Result<Language> {
        if self.version == Version::V1 {
            return Ok(around);
        }
        match document.get(&self.language_override) {
            None => Ok(around),
            Some(Value::String(name)) => Language::named(name, self.version)
                .ok_or_else(|| err!(17262, "language override unsupported: {name}")),
            Some(_) => Err(err!(17261, "found language override field in document with non-string type")),
        }
    }

    fn language_of_v1(&self, document: Document<'_>) -> Language {
        let named = document.get(&self.language_override).and_then(|name| name.as_str());
        let named = named.filter(|name| !name.is_empty());
        named.and_then(|name| Language::named(name, Version::V1)).unwrap_or(self.default_language)
    }
}

/// Position of the strings in a document.
struct Frame<'p> {
    path: &'p str,
    in_array: bool,
    language: Language,
}

impl Frame<'_> {
    /// Returns the path of a field here. Array elements have the array's path.
    fn path_of(&self, name: &str) -> String {
        match (self.path.is_empty(), self.in_array) {
            (true, _) => name.to_string(),
            (false, true) => self.path.to_string(),
            (false, false) => format!("{}.{name}", self.path),
        }
    }
}

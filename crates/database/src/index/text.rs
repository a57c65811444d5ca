//! Text indexes: specifications in their stored form, and keys.
//!
//! The stored key pattern has `_fts: "text", _ftsx: 1` in place of the text fields, whose names are in `weights`. A
//! document has a key for each of its terms: the values of the leading fields, the term, its score, and the values of
//! the trailing fields.

use super::keys::push_key;
use super::{DocumentKeys, IndexSpec, KeyKind, KeyPart};
use base::bson::{Builder, Document, DocumentBuf, FieldName, Path, Value};
use base::key_string::{Decoder, KeyBuilder};
use base::{Result, bail, err};
use query::Context;
use query::text::{Language, TextSpec, Version};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Upper bound of weights, excluded.
const WEIGHT_MAX: i64 = 100_000;

/// Maximum length of a term in a key, in bytes. A longer term is stored as a prefix and a hash.
const TERM_MAX: usize = 224;

/// Names of the term and its score in a key pattern.
const TERM: &str = "_fts";
const SCORE: &str = "_ftsx";

/// The text properties of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct TextIndex {
    /// The texts that it contains.
    pub spec: TextSpec,
    /// Number of key parts before the term.
    pub prefix: usize,
}

/// A specification in its stored form.
pub(super) struct Stored {
    pub(super) key: DocumentBuf,
    pub(super) parts: Vec<KeyPart>,
    pub(super) index: TextIndex,
    pub(super) options: DocumentBuf,
}

/// Returns true if a key pattern is of a text index.
pub(super) fn is_pattern(key: Document<'_>) -> bool {
    key.iter().any(|part| matches!(part.value(), Value::String("text")))
}

/// Converts a specification into its stored form. A stored form stays unchanged.
///
/// Errors: CannotCreateIndex with MongoDB's texts.
pub(super) fn stored(key: Document<'_>, options: Document<'_>) -> Result<Stored> {
    let version = version(options.get("textIndexVersion"))?;
    let (fixed, parts, fields) = fixed_pattern(key)?;
    let weights = weights(fields, options.get("weights"))?;
    let default_language = text_option(options, "default_language", "english");
    let language = Language::named(&default_language, version)
        .ok_or_else(|| err!(CannotCreateIndex, "default_language is not valid"))?;
    let language_override = text_option(options, "language_override", "language");
    if language_override.is_empty() || language_override.starts_with('$') || language_override.contains('.') {
        bail!(CannotCreateIndex, "language_override is not valid");
    }
    let mut shown = Builder::new();
    shown.append(c"weights", &weights).append(c"default_language", default_language.as_str());
    shown.append(c"language_override", language_override.as_str());
    let index = TextIndex {
        prefix: parts.iter().take_while(|part| part.kind != KeyKind::Text).count(),
        spec: TextSpec {
            version,
            wildcard: weights.view().find("$**").is_some(),
            weights: weights
                .view()
                .iter()
                .filter(|weight| weight.name() != "$**")
                .map(|weight| (weight.name().to_string(), weight.value().as_i64().unwrap_or(1) as f64))
                .collect(),
            default_language: language,
            language_override,
        },
    };
    let options = stored_options(options, shown.finish().view(), version);
    Ok(Stored { key: fixed, parts, index, options })
}

/// Returns the options in the given order, then the defaults, and the version last.
fn stored_options(given: Document<'_>, defaults: Document<'_>, version: Version) -> DocumentBuf {
    let mut out = Builder::new();
    for option in given.iter().filter(|option| option.name() != "textIndexVersion") {
        out.append(option.field_name(), defaults.get(option.name()).unwrap_or(option.value()));
    }
    for option in defaults.iter().filter(|option| given.find(option.name()).is_none()) {
        out.append_element(&option);
    }
    out.append(c"textIndexVersion", version as i32);
    out.finish()
}

/// Returns the stored key pattern, its parts, and the text fields that it names.
fn fixed_pattern(key: Document<'_>) -> Result<(DocumentBuf, Vec<KeyPart>, Vec<String>)> {
    let (mut fixed, mut parts, mut fields) = (Builder::new(), Vec::new(), Vec::new());
    let (mut is_fixed, mut ended) = (false, false);
    let mut pattern = key.iter();
    while let Some(part) = pattern.next() {
        let is_text = matches!(part.value(), Value::String(_));
        match part.name() {
            TERM if is_text && parts.iter().all(|part: &KeyPart| part.kind != KeyKind::Text) => {
                let score = pattern.next().filter(|score| score.name() == SCORE);
                let score = score.ok_or_else(|| err!(CannotCreateIndex, "expected _ftsx after _fts"))?;
                if score.value().as_number().map(|number| number.to_i64_clamped()) != Some(1) {
                    bail!(CannotCreateIndex, "expecting _ftsx:1");
                }
                push_term(&mut fixed, &mut parts);
                is_fixed = true;
            }
            TERM | SCORE => {
                bail!(CannotCreateIndex, "text index with reserved fields _fts/_ftsx not allowed");
            }
            _ if is_text && (ended || is_fixed) => {
                bail!(CannotCreateIndex, "'text' fields in index must all be adjacent");
            }
            field if is_text => {
                if fields.is_empty() {
                    push_term(&mut fixed, &mut parts);
                }
                fields.push(field.to_string());
            }
            _ => {
                let kind = match part.value().as_number().map(|number| number.to_i64_clamped()) {
                    Some(1) => KeyKind::Ascending,
                    Some(-1) => KeyKind::Descending,
                    _ => {
                        bail!(CannotCreateIndex, "expected value 1 or -1 for non-text key in compound index");
                    }
                };
                ended = !fields.is_empty();
                fixed.append_element(&part);
                parts.push(KeyPart { path: Path::new(part.field_name()), kind });
            }
        }
    }
    Ok((fixed.finish(), parts, fields))
}

/// Appends the parts of the term and its score to the key pattern.
fn push_term(fixed: &mut Builder, parts: &mut Vec<KeyPart>) {
    fixed.append(FieldName::literal(TERM), "text").append(FieldName::literal(SCORE), 1i32);
    parts.push(KeyPart { path: Path::new(FieldName::literal(TERM)), kind: KeyKind::Text });
    parts.push(KeyPart { path: Path::new(FieldName::literal(SCORE)), kind: KeyKind::Ascending });
}

/// Returns the weight of each field by name.
fn weights(fields: Vec<String>, given: Option<Value<'_>>) -> Result<DocumentBuf> {
    let mut weights: BTreeMap<String, i64> = fields.into_iter().map(|field| (field, 1)).collect();
    match given {
        None => {}
        Some(Value::Document(given)) => {
            for weight in given {
                let number = weight
                    .value()
                    .as_number()
                    .ok_or_else(|| err!(CannotCreateIndex, "weight for text index needs numeric type"))?;
                weights.insert(weight.name().to_string(), number.to_i64_clamped());
            }
        }
        Some(Value::String("$**")) => {
            weights.insert("$**".to_string(), 1);
        }
        Some(_) => bail!(CannotCreateIndex, "text index option 'weights' must be an object"),
    }
    if weights.is_empty() {
        bail!(CannotCreateIndex, "text index option 'weights' must specify fields or the wildcard");
    }
    let mut out = Builder::new();
    for (field, weight) in &weights {
        if *weight <= 0 || *weight >= WEIGHT_MAX {
            bail!(
                CannotCreateIndex,
                "text index weight must be in the exclusive interval (0,{WEIGHT_MAX}) but found: {weight}"
            );
        }
        check_field(field)?;
        out.append(FieldName::new(field)?, i32::try_from(*weight).unwrap_or(i32::MAX));
    }
    Ok(out.finish())
}

/// Checks that a weight belongs to a field or to all.
fn check_field(field: &str) -> Result<()> {
    let problem = match field {
        "$**" => return Ok(()),
        "" => "weight cannot be on an empty field",
        _ if field.split('.').any(str::is_empty) => "weight cannot have empty path component",
        _ if field.split('.').any(|part| part.starts_with('$')) => {
            "weight cannot have path component with $ prefix"
        }
        _ => return Ok(()),
    };
    Err(err!(CannotCreateIndex, "{problem}"))
}

/// Returns a text option or its default. The type is checked before.
fn text_option(options: Document<'_>, name: &str, default: &str) -> String {
    options.get(name).and_then(|value| value.as_str()).unwrap_or(default).to_string()
}

/// Parses `textIndexVersion`.
fn version(given: Option<Value<'_>>) -> Result<Version> {
    let Some(given) = given else { return Ok(Version::V3) };
    let number = given
        .as_number()
        .ok_or_else(|| err!(TypeMismatch, "text index option 'textIndexVersion' must be a number"))?
        .to_i64_clamped();
    Version::of(number).ok_or_else(|| err!(CannotCreateIndex, "bad textIndexVersion: {number}"))
}

/// Returns the value of a field outside of the text. No array is allowed on its path.
///
/// Errors: CannotBuildIndexKeys.
fn extra<'d>(document: Document<'d>, path: &Path) -> Result<Option<Value<'d>>> {
    let array = || {
        err!(CannotBuildIndexKeys, "Field '{path}' of text index contains an array in document: {document}")
    };
    let mut value = Some(Value::Document(document));
    for component in path.components() {
        value = match value {
            Some(Value::Document(inner)) => inner.get(component.name()),
            Some(Value::Array(items)) if component.index().is_some() => {
                Document::from_valid(items.bytes()).get(component.name())
            }
            Some(Value::Array(_)) => return Err(array()),
            _ => None,
        };
    }
    match value {
        Some(Value::Array(_)) => Err(array()),
        value => Ok(value),
    }
}

impl TextIndex {
    /// Returns true if all options except the version agree.
    pub(super) fn same_options(a: Option<&TextIndex>, b: Option<&TextIndex>) -> bool {
        let parts = |index: &TextIndex| {
            let TextSpec { version: _, weights, wildcard, default_language, language_override } =
                index.spec.clone();
            (index.prefix, weights, wildcard, default_language, language_override)
        };
        a.map(parts) == b.map(parts)
    }

    /// Returns the prefix of the keys of a term, with the values of the leading fields.
    pub(crate) fn term_key(&self, prefix: &[u8], term: &str) -> Vec<u8> {
        let mut key = prefix.to_vec();
        base::key_string::encode(Value::String(&key_term(term)), true, &mut key);
        key
    }

    /// Returns the score of the term in a key.
    ///
    /// Errors: the key is corrupt.
    pub(crate) fn score(&self, key: &[u8], term_key: usize) -> Result<f64> {
        let rest = key.get(term_key..).unwrap_or_default();
        // The type bits are elsewhere; only the value matters here.
        let score = Decoder::new(rest, &[]).next(true)?;
        Ok(score.view().as_number().map_or(0.0, |score| score.to_f64()))
    }
}

/// Returns a term as stored in keys.
fn key_term(term: &str) -> Cow<'_, str> {
    if term.len() <= TERM_MAX {
        return Cow::Borrowed(term);
    }
    let end = (0..=TERM_MAX).rev().find(|end| term.is_char_boundary(*end)).unwrap_or_default();
    let mut hash = base::hash::Md5Sum::default();
    hash.update(term.as_bytes());
    Cow::Owned(format!("{}{}", term.get(..end).unwrap_or_default(), hash.hex()))
}

impl IndexSpec {
    /// Adds a key for each term of a document.
    ///
    /// Errors: CannotBuildIndexKeys for an array outside of the text; 17261 and 17262 for an invalid language field;
    /// interruption.
    pub(super) fn text_keys(
        &self,
        text: &TextIndex,
        document: Document<'_>,
        document_keys: &mut DocumentKeys,
        context: &Context,
    ) -> Result<()> {
        let extras: Vec<Option<Value<'_>>> = self
            .parts
            .iter()
            .enumerate()
            .map(|(at, part)| match at == text.prefix || at == text.prefix + 1 {
                true => Ok(None),
                false => extra(document, &part.path),
            })
            .collect::<Result<_>>()?;
        let scores = text.spec.scores(document)?;
        document_keys.keys.reserve(scores.iter().len());
        for (term, score) in scores.iter() {
            let term = key_term(term);
            // Additional capacity for the score and the other fields.
            let mut builder = KeyBuilder::with_capacity(term.len() + 24);
            for (at, (part, extra)) in self.parts.iter().zip(&extras).enumerate() {
                let value = match at.checked_sub(text.prefix) {
                    Some(0) => Value::String(&term),
                    Some(1) => Value::Double(score),
                    _ => extra.unwrap_or(Value::Null),
                };
                builder.push(value, part.kind != KeyKind::Descending);
            }
            push_key(&mut document_keys.keys, builder.into(), context)?;
        }
        document_keys.multikey = vec![0; self.parts.len()];
        if let Some(bits) = document_keys.multikey.get_mut(text.prefix) {
            *bits = u32::from(document_keys.keys.len() > 1);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;

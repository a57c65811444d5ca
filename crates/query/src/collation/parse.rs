//! Parser of collation documents: options and their allowed combinations.

use super::collator::{Collator, Named, Requested};
use super::locales::{self, Found, SIMPLE};
use base::bson::{Document, DocumentBuf, Element, Value};
use base::{Error, Result, bail, err};
use parking_lot::Mutex;
use std::sync::Arc;

/// The version of the rules that MongoDB reports. Requests for other versions are refused.
pub(super) const VERSION: &str = "57.1";

/// Maximum number of cached collators.
const CACHE_MAX: usize = 64;

/// Cached collators, the oldest first. Commands repeat their documents, and building a collator costs much more than a
/// lookup.
static CACHE: Mutex<Vec<(DocumentBuf, Arc<Collator>)>> = Mutex::new(Vec::new());

/// Parses a collation document, or returns its collator from the cache; `None` is the simple collation.
pub(super) fn parse(document: Document<'_>, path: &str) -> Result<Option<Arc<Collator>>> {
    let same = |entry: &&(DocumentBuf, Arc<Collator>)| entry.0.bytes() == document.bytes();
    if let Some((_, collator)) = CACHE.lock().iter().find(same) {
        return Ok(Some(collator.clone()));
    }
    let parsed = parse_new(document, path)?;
    if let Some(collator) = &parsed {
        let mut cache = CACHE.lock();
        if cache.len() == CACHE_MAX {
            cache.remove(0);
        }
        cache.push((document.to_owned(), collator.clone()));
    }
    Ok(parsed)
}

/// Parses a document that is not in the cache. Errors: as [`Collation::parse`](super::Collation::parse).
fn parse_new(document: Document<'_>, path: &str) -> Result<Option<Arc<Collator>>> {
    let mut requested = Requested::default();
    let mut locale = None;
    for element in document {
        // Null means an absent option.
        let is_null = element.value().is_nullish();
        match element.name() {
            "caseLevel" | "strength" | "numericOrdering" | "alternate" | "maxVariable" | "normalization"
            | "caseFirst" | "version"
                if is_null => {}
            "locale" => locale = Some(text(&element, path)?),
            "caseLevel" => requested.case_level = Some(flag(&element, path)?),
            "caseFirst" => requested.case_first = Some(choice(&element, path)?),
            "strength" => requested.strength = Some(strength(&element, path)?),
            "numericOrdering" => requested.numeric_ordering = Some(flag(&element, path)?),
            "alternate" => requested.alternate = Some(choice(&element, path)?),
            "maxVariable" => requested.max_variable = Some(choice(&element, path)?),
            "normalization" => requested.normalization = Some(flag(&element, path)?),
            "backwards" => requested.backwards = Some(flag(&element, path)?),
            "version" => version(&element, path, document)?,
            name => return Err(Error::unknown_field(format_args!("{path}.{name}"))),
        }
    }
    let missing = || Error::missing_field(format_args!("{path}.locale"));
    let locale = locale.ok_or_else(missing)?;
    if locale == SIMPLE {
        // Other options are accepted without effect.
        return Ok(None);
    }
    let collator = Collator::new(locale, &tag(locale, document)?, &requested)?;
    Ok(Some(Arc::new(collator)))
}

/// Returns the BCP 47 tag of a locale.
fn tag(locale: &str, document: Document<'_>) -> Result<String> {
    if locale.is_empty() {
        bail!(BadValue, "Field 'locale' cannot be the empty string in: {document}");
    }
    if locale.contains('\0') {
        bail!(BadValue, "Field 'locale' cannot contain null byte. Collation spec: {document}");
    }
    match locales::find(locale) {
        Found::Tag(tag) => Ok(tag),
        Found::Unavailable => Err(err!(NotImplemented, "collation locale '{locale}' is not supported")),
        Found::Unknown(None) => Err(err!(BadValue, "Field 'locale' is invalid in: {document}")),
        Found::Unknown(Some(other)) => {
            Err(err!(BadValue, "Field 'locale' is invalid in: {document}. Did you mean '{other}'?"))
        }
    }
}

fn text<'a>(element: &Element<'a>, path: &str) -> Result<&'a str> {
    element.value().as_str().ok_or_else(|| wrong_type(element, path, "expected type 'string'"))
}

fn flag(element: &Element<'_>, path: &str) -> Result<bool> {
    match element.value() {
        Value::Boolean(flag) => Ok(flag),
        _ => Err(wrong_type(element, path, "expected type 'bool'")),
    }
}

/// Parses one of several names.
fn choice<T: Named + Copy>(element: &Element<'_>, path: &str) -> Result<T> {
    let requested = text(element, path)?;
    let found = T::ALL.iter().find(|(name, _)| *name == requested);
    found.map(|(_, value)| *value).ok_or_else(|| unknown_value(element, path, requested))
}

/// Parses the strength, 1 to 5.
fn strength(element: &Element<'_>, path: &str) -> Result<u8> {
    let Some(number) = element.value().as_number() else {
        return Err(wrong_type(element, path, "expected types '[long, int, decimal, double]'"));
    };
    // Fractions of doubles are truncated, those of decimals are rounded.
    let number = match element.value() {
        Value::Decimal128(_) => number.to_f64().round_ties_even(),
        _ => number.to_f64().trunc(),
    };
    match number as i64 {
        strength @ 1..=5 => Ok(strength as u8),
        _ => Err(unknown_value(element, path, &element.value().to_string())),
    }
}

/// Checks the version. Errors: IncompatibleCollationVersion for any but [`VERSION`].
fn version(element: &Element<'_>, path: &str, document: Document<'_>) -> Result<()> {
    let requested = text(element, path)?;
    if requested == VERSION {
        return Ok(());
    }
    Err(err!(
        IncompatibleCollationVersion,
        "Requested collation version {requested} but the only available collator version was {VERSION}. \
         Requested collation spec: {document}"
    ))
}

fn wrong_type(element: &Element<'_>, path: &str, expected: &str) -> Error {
    let (name, found) = (element.name(), element.kind().alias());
    err!(TypeMismatch, "BSON field '{path}.{name}' is the wrong type '{found}', {expected}")
}

fn unknown_value(element: &Element<'_>, path: &str, value: &str) -> Error {
    let name = element.name();
    Error::unknown_value(format_args!("{path}.{name}"), value)
}

/// Refuses combinations of options without effect.
pub(super) fn check(collator: &Collator, backwards: bool, strength: u8, has_case: bool) -> Result<()> {
    if backwards && strength == 1 {
        bail!(BadValue, "'backwards' is invalid with 'strength' of 1 in: {}", collator.document());
    }
    if has_case && strength < 3 {
        bail!(
            BadValue,
            "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2 in: {}",
            collator.document()
        );
    }
    Ok(())
}

//! Sort patterns: `{a: 1, "b.c": -1}` parsed once, then a key of bytes for each document.
//!
//! The key compares by `memcmp` as the documents sort, so a sort never looks into a document
//! twice and a top-k heap compares bytes only. Arrays count by their smallest element in the
//! pattern's order (the least ascending, the greatest descending), over all fields at once.

use crate::Collation;
use crate::keys::compound_keys;
use base::bson::{Array, Builder, Document, DocumentBuf, Path, Value, ValueBuf};
use base::{ErrorCode, Result, err};

/// How many keys a pattern may have, as MongoDB documents it.
const KEYS_MAX: usize = 32;

/// How many components a path may have, as in MongoDB.
const PATH_MAX: usize = 200;

/// A parsed sort pattern.
#[derive(Clone, Debug)]
pub struct SortPattern {
    paths: Vec<Path>,
    fields: Vec<(Path, bool)>,
    natural: Option<bool>,
    collation: Collation,
}

impl SortPattern {
    /// Parses the `sort` of a find, or the specification of a `$sort`. An empty pattern is taken:
    /// whether it may be empty is for the caller.
    ///
    /// Errors: 15974 and 15975 for bad directions, 7472500 for duplicates, MongoDB's codes of bad
    /// field paths, BadValue for `$natural` beside other keys; `$meta` is refused by its name with
    /// 40218, since no stage here yields such metadata.
    pub fn parse(spec: Document<'_>) -> Result<SortPattern> {
        let mut pattern = SortPattern {
            paths: Vec::new(),
            fields: Vec::new(),
            natural: None,
            collation: Collation::SIMPLE,
        };
        for element in spec {
            let name = element.name();
            if let Value::Document(meta) = element.value() {
                return Err(refuse_meta(name, meta));
            }
            if name == "$natural" {
                pattern.natural = Some(natural_direction(spec, element.value())?);
                return Ok(pattern);
            }
            let ascending = direction(name, element.value())?;
            pattern.add(checked_path(name)?, ascending)?;
        }
        Ok(pattern)
    }

    /// The same pattern with strings compared by a collation.
    pub fn collated(self, collation: &Collation) -> SortPattern {
        SortPattern { collation: collation.clone(), ..self }
    }

    /// What strings compare by.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    fn add(&mut self, path: Path, ascending: bool) -> Result<()> {
        if self.paths.contains(&path) {
            return Err(err!(7472500, "$sort key must not contain duplicate keys (duplicate: '{path}')"));
        }
        if self.paths.len() == KEYS_MAX {
            return Err(err!(13103, "too many compound keys"));
        }
        self.paths.push(path.clone());
        self.fields.push((path, ascending));
        Ok(())
    }

    /// The paths in order, each with whether it ascends.
    pub fn fields(&self) -> &[(Path, bool)] {
        &self.fields
    }

    /// For `$natural`: whether in insertion order (`Some(true)`) or backwards.
    pub fn natural(&self) -> Option<bool> {
        self.natural
    }

    /// Whether there is nothing to sort by.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.natural.is_none()
    }

    /// Appends the document's sort key to `out`: bytes that compare as the documents sort.
    ///
    /// Errors: BadValue where two fields lead through different arrays.
    pub fn key(&self, document: Document<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let mut scratch = Vec::new();
        let mut first = true;
        let mut each = |key: &[Option<Value<'_>>]| {
            if first {
                self.encode(key, out);
                first = false;
                return Ok(());
            }
            scratch.clear();
            self.encode(key, &mut scratch);
            if out.get(start..).is_some_and(|best| scratch.as_slice() < best) {
                out.truncate(start);
                out.extend_from_slice(&scratch);
            }
            Ok(())
        };
        compound_keys(document, self.paths.iter(), &mut |_, _| Ok(()), &mut each).map_err(parallel)
    }

    /// What the document is sorted by: an array with a value for each field, null for what is
    /// missing. A collation's strings are given as it compares them.
    ///
    /// Errors: those of [`key`](Self::key).
    pub fn values(&self, document: Document<'_>) -> Result<ValueBuf> {
        let mut best: Option<(Vec<u8>, DocumentBuf)> = None;
        let mut each = |key: &[Option<Value<'_>>]| {
            let mut encoded = Vec::new();
            self.encode(key, &mut encoded);
            if best.as_ref().is_none_or(|(least, _)| encoded < *least) {
                best = Some((encoded, self.shown(key)));
            }
            Ok(())
        };
        compound_keys(document, self.paths.iter(), &mut |_, _| Ok(()), &mut each).map_err(parallel)?;
        let shown = best.map(|(_, shown)| shown).unwrap_or_default();
        Ok(shown.view().get("key").unwrap_or(Value::Array(Array::EMPTY)).to_owned())
    }

    /// One compound key as the array `key` of a document.
    fn shown(&self, key: &[Option<Value<'_>>]) -> DocumentBuf {
        let mut out = Builder::new();
        out.begin_array("key");
        for value in key {
            match (value.unwrap_or(Value::Null), self.collation.collator()) {
                (Value::String(text), Some(collator)) => {
                    let mut compared = Vec::new();
                    collator.append_key(text, &mut compared);
                    out.push(&*String::from_utf8_lossy(&compared));
                }
                (value, _) => {
                    out.push(value);
                }
            }
        }
        out.end();
        out.finish()
    }

    /// Encodes one compound key; what is missing sorts as null.
    fn encode(&self, key: &[Option<Value<'_>>], out: &mut Vec<u8>) {
        for (value, (_, ascending)) in key.iter().zip(&self.fields) {
            self.collation.append_key(value.unwrap_or(Value::Null), *ascending, out);
        }
    }
}

/// Says of parallel arrays what MongoDB says where it sorts.
fn parallel(error: base::Error) -> base::Error {
    if error.code() == ErrorCode::CannotIndexParallelArrays {
        return err!(BadValue, "cannot sort with keys that are parallel arrays");
    }
    error
}

fn natural_direction(spec: Document<'_>, value: Value<'_>) -> Result<bool> {
    if spec.iter().count() > 1 {
        return Err(err!(BadValue, "Cannot include '$natural' in compound sort: {spec}"));
    }
    match value.as_i64() {
        Some(1) => Ok(true),
        Some(-1) => Ok(false),
        _ => Err(err!(BadValue, "$natural sort cannot be set to a value other than -1 or 1.")),
    }
}

fn direction(name: &str, value: Value<'_>) -> Result<bool> {
    let Some(number) = value.as_number() else {
        return Err(err!(15974, "Illegal key in $sort specification: {name}: {value}"));
    };
    // MongoDB truncates here: 1.5 ascends.
    match number.to_i64_clamped() {
        1 => Ok(true),
        -1 => Ok(false),
        _ => Err(err!(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")),
    }
}

fn refuse_meta(name: &str, meta: Document<'_>) -> base::Error {
    let Some(first) = meta.first().filter(|first| first.name() == "$meta") else {
        return err!(17312, "$meta is the only expression supported by $sort right now");
    };
    if meta.iter().count() > 1 {
        return err!(FailedToParse, "Cannot have additional keys in a $meta sort specification");
    }
    let what = match first.value().as_str() {
        Some("textScore") => "text score",
        Some("geoNearDistance") => "$geoNear distance",
        Some("randVal") => "rand val",
        Some("searchScore") => "$search score",
        Some("vectorSearchScore") => "$vectorSearch score",
        _ => return err!(31138, "Illegal $meta sort: {first}"),
    };
    err!(40218, "query requires {what} metadata, but it is not available (sort key '{name}': {meta})")
}

/// A path that names a field: MongoDB's checks of a `FieldPath`.
///
/// Errors: 40352, 40353, 15998, 16410 for empty, dangling and dollar-prefixed components (the
/// names of a DBRef's fields are taken, though); Overflow above [`PATH_MAX`] components.
pub(crate) fn checked_path(text: &str) -> Result<Path> {
    if text.is_empty() {
        return Err(err!(40352, "FieldPath cannot be constructed with empty string"));
    }
    if text.split('.').count() > PATH_MAX {
        return Err(err!(Overflow, "FieldPath is too long"));
    }
    if text.ends_with('.') {
        return Err(err!(40353, "FieldPath must not end with a '.'."));
    }
    for component in text.split('.') {
        if component.is_empty() {
            return Err(err!(15998, "FieldPath field names may not be empty strings."));
        }
        if component.starts_with('$') && !matches!(component, "$id" | "$ref" | "$db") {
            return Err(err!(
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField."
            ));
        }
    }
    Ok(Path::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;

    fn parse(pattern: &str) -> Result<SortPattern> {
        SortPattern::parse(extended_json::parse(pattern).unwrap().view())
    }

    fn key(pattern: &str, document: &str) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        parse(pattern)?.key(extended_json::parse(document).unwrap().view(), &mut key)?;
        Ok(key)
    }

    /// Checks that documents sort in the order given, `=` in front meaning equal to the last.
    fn sorts(pattern: &str, documents: &[&str]) {
        for pair in documents.windows(2) {
            let [a, b] = pair else { continue };
            let (equal, b) = (b.starts_with('='), b.trim_start_matches('='));
            let (a, b) = (a.trim_start_matches('='), b);
            let order = key(pattern, a).unwrap().cmp(&key(pattern, b).unwrap());
            assert_eq!(order.is_eq(), equal, "{pattern}: {a} and {b}");
            assert!(order.is_le(), "{pattern}: {a} before {b}");
        }
    }

    #[test]
    fn bad_patterns_have_mongodb_codes() {
        let code = |pattern: &str| parse(pattern).map_or_else(|error| error.code().number(), |_| 0);
        assert_eq!(code("{a: 1, 'b.c': -1.0}"), 0);
        assert_eq!(code("{a: 'x'}"), 15974);
        assert_eq!(code("{a: 2}"), 15975);
        assert_eq!(code("{a: 1, b: 1, a: 1}"), 7472500);
        assert_eq!(code("{'': 1}"), 40352);
        assert_eq!(code("{'a.': 1}"), 40353);
        assert_eq!(code("{'a..b': 1}"), 15998);
        assert_eq!(code("{$a: 1}"), 16410);
        assert_eq!(code("{'a.$id': 1}"), 0);
        assert_eq!(code("{$natural: 3}"), 2);
        assert_eq!(code("{$natural: 1, a: 1}"), 2);
        assert_eq!(code("{a: 1, $natural: 1}"), 2);
        assert_eq!(code("{a: {$meta: 'textScore'}}"), 40218);
        assert_eq!(code("{a: {$meta: 'nope'}}"), 31138);
        assert_eq!(code("{a: {$meta: 'textScore', b: 1}}"), 9);
        assert_eq!(code("{a: {$x: 1}}"), 17312);
        let many: Vec<String> = (0..33).map(|i| format!("a{i}: 1")).collect();
        assert_eq!(code(&format!("{{{}}}", many.join(", "))), 13103);
        assert_eq!(code(&format!("{{'{}': 1}}", ["a"; 201].join("."))), 15);
    }

    #[test]
    fn natural_order_has_a_direction() {
        let pattern = parse("{$natural: -1}").unwrap();
        assert_eq!(pattern.natural(), Some(false));
        assert!(pattern.fields().is_empty() && !pattern.is_empty());
    }

    #[test]
    fn missing_is_null_and_an_empty_array_sorts_below() {
        sorts("{a: 1}", &["{a: []}", "{}", "={a: null}", "{a: 0}", "={a: 0.0}", "{a: 'x'}", "{a: {}}"]);
        sorts("{a: -1}", &["{a: 'x'}", "{a: 1}", "{}", "={a: null}", "{a: []}"]);
        sorts("{'a.b': 1}", &["{a: []}", "={a: 5}", "={a: [{c: 1}]}", "={}", "{a: {b: 1}}"]);
    }

    #[test]
    fn arrays_count_by_their_least_or_greatest_element() {
        sorts("{a: 1}", &["{a: [1, 9]}", "{a: 2}", "={a: [2, 8]}", "{a: [3]}", "{a: [[1]]}"]);
        sorts("{a: -1}", &["{a: [1, 9]}", "{a: 8}", "={a: [2, 8]}", "{a: [3]}"]);
        sorts("{'a.b': 1}", &["{a: [{b: 5}, {b: 1}]}", "{a: {b: 2}}", "{a: [{b: [4, 3]}]}"]);
        // One element gives both fields: here b comes from the element with the least c.
        sorts(
            "{'a.c': 1, 'a.b': 1}",
            &["{a: [{b: 9, c: 1}, {b: 0, c: 2}]}", "{a: {b: 10, c: 1}}", "{a: {b: 0, c: 2}}"],
        );
    }

    #[test]
    fn numbers_in_paths_are_positions_in_arrays() {
        sorts("{'a.1': 1}", &["{a: [9]}", "{a: [9, 1]}", "={a: {'1': 1}}", "{a: [0, 2]}"]);
        sorts("{'a.0.b': 1}", &["{a: [{b: 1}, {b: 0}]}", "{a: [{b: 2}]}"]);
    }

    #[test]
    fn parallel_arrays_cannot_be_sorted_by() {
        let error = key("{a: 1, b: 1}", "{a: [1], b: [2]}").unwrap_err();
        assert_eq!(error.message(), "cannot sort with keys that are parallel arrays");
        assert_eq!(error.code(), base::ErrorCode::BadValue);
    }
}

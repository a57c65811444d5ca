//! Sort patterns: `{a: 1, "b.c": -1}` is parsed once and then encodes each document's sort key as bytes.
//!
//! Keys compare by `memcmp` in the order of the documents. A sort therefore reads each document once, and a top-k heap
//! compares only bytes. An array sorts by its first element in the pattern's order: the least if ascending, the
//! greatest if descending. The choice is made over all fields at once.
//!
//! [`keys`](crate::keys) finds the values, [`Collation`] encodes them, and [`Sorter`](crate::Sorter) sorts. A new kind
//! of `$meta` sort is a case in [`meta_kind`].

use crate::context::Uninterrupted;
use crate::field_path::checked_path;
use crate::keys::compound_keys;
use crate::metadata::unavailable;
use crate::{Collation, Context, Interrupt, MetaKind, Row, RowView};
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, FieldNameBuf, Path, Value, ValueBuf};
use base::{ErrorCode, Result, bail, err};

/// Maximum number of keys in a pattern, as documented by MongoDB.
const KEYS_MAX: usize = 32;

/// A parsed sort pattern.
#[derive(Clone, Debug)]
pub struct SortPattern {
    /// The paths of `fields`, as [`compound_keys`] takes them.
    paths: Vec<Path>,
    /// The paths with their directions; true ascends.
    fields: Vec<(Path, bool)>,
    /// The metadata keys of the pattern.
    metadata: Vec<ByMetadata>,
    /// The direction of `$natural`; true ascends.
    natural: Option<bool>,
    collation: Collation,
}

/// A metadata key: `{name: {$meta: kind}}`.
#[derive(Clone, Debug)]
struct ByMetadata {
    /// Number of fields before it in the pattern.
    position: usize,
    name: Box<str>,
    kind: MetaKind,
}

impl ByMetadata {
    /// Whether it ascends: never. The best score and the largest distance are first, as in MongoDB.
    fn ascending(&self) -> bool {
        false
    }
}

impl SortPattern {
    /// Parses the `sort` of a find or the specification of a `$sort`. An empty pattern is accepted; the caller decides
    /// whether it is allowed.
    ///
    /// Errors: 15974 and 15975 for bad directions, 7472500 for duplicates, MongoDB's codes of bad field paths, BadValue
    /// for `$natural` with other keys, 17312, FailedToParse and 31138 for bad `$meta`, 40218 for unsupported metadata.
    pub fn parse(spec: Document<'_>) -> Result<SortPattern> {
        let mut pattern = SortPattern {
            paths: Vec::new(),
            fields: Vec::new(),
            metadata: Vec::new(),
            natural: None,
            collation: Collation::SIMPLE,
        };
        for element in spec {
            let name = element.name();
            if let Value::Document(meta) = element.value() {
                let kind = meta_kind(name, meta)?;
                pattern.metadata.push(ByMetadata { position: pattern.len(), name: name.into(), kind });
                continue;
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

    /// Registers the pattern's metadata in the context, so that the plan provides it. Returns the pattern.
    pub fn require_metadata(self, context: &Context) -> SortPattern {
        self.metadata.iter().for_each(|by| context.metadata.require(by.kind));
        self
    }

    /// Whether the pattern sorts by metadata, which no index contains.
    pub fn is_by_metadata(&self) -> bool {
        !self.metadata.is_empty()
    }

    /// The number of keys, including metadata keys.
    pub fn len(&self) -> usize {
        self.fields.len() + self.metadata.len()
    }

    /// Whether the pattern has keys. `$natural` has none.
    pub fn orders(&self) -> bool {
        !self.fields.is_empty() || self.is_by_metadata()
    }

    /// Appends the pattern in the format of explain, which omits the names of metadata keys.
    pub fn append_to(&self, out: &mut Builder) {
        let mut fields = self.fields.iter();
        let mut by = self.metadata.iter().enumerate().peekable();
        for position in 0..self.len() {
            if let Some((at, by)) = by.next_if(|(_, by)| by.position == position) {
                out.begin_document(
                    &FieldName::literal("$computed").joined(FieldNameBuf::of_number(at).view()),
                )
                .append(c"$meta", by.kind.name())
                .end();
            } else if let Some((path, ascending)) = fields.next() {
                out.append(path, if *ascending { 1i32 } else { -1 });
            }
        }
    }

    /// Returns the names of the metadata keys and their kinds.
    pub fn by_metadata(&self) -> impl Iterator<Item = (&str, MetaKind)> {
        self.metadata.iter().map(|by| (&*by.name, by.kind))
    }

    /// Returns the pattern with a collation for strings.
    pub fn collated(self, collation: &Collation) -> SortPattern {
        SortPattern { collation: collation.clone(), ..self }
    }

    /// The collation of string comparisons.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    fn add(&mut self, path: Path, ascending: bool) -> Result<()> {
        if self.paths.contains(&path) {
            bail!(7472500, "$sort key must not contain duplicate keys (duplicate: '{path}')");
        }
        if self.paths.len() == KEYS_MAX {
            bail!(13103, "too many compound keys");
        }
        self.paths.push(path.clone());
        self.fields.push((path, ascending));
        Ok(())
    }

    /// The paths in order with their directions (true ascends), without metadata keys.
    pub fn fields(&self) -> &[(Path, bool)] {
        &self.fields
    }

    /// The direction of `$natural`: `Some(true)` is insertion order.
    pub fn natural(&self) -> Option<bool> {
        self.natural
    }

    /// Whether the pattern is empty.
    pub fn is_empty(&self) -> bool {
        !self.orders() && self.natural.is_none()
    }

    /// Appends the sort key to `out`, as [`key`](Self::key) does. Checks for interruption, because each element of an
    /// array is encoded.
    #[inline]
    pub(crate) fn key_in(&self, row: RowView<'_>, context: &Context, out: &mut Vec<u8>) -> Result<()> {
        self.least_key(row, out, (&*context.interrupt, || context.steps(1)))
    }

    /// Appends the sort key of a document or row to `out`: bytes that compare as the documents sort.
    ///
    /// Errors: BadValue if two fields lead through different arrays.
    pub fn key<'r>(&self, row: impl Into<RowView<'r>>, out: &mut Vec<u8>) -> Result<()> {
        self.least_key(row.into(), out, (&Uninterrupted, || Ok(())))
    }

    /// Appends the least of the document's keys. Checks for interruption in large values and calls `step` for each key.
    fn least_key(
        &self,
        row: RowView<'_>,
        out: &mut Vec<u8>,
        (interrupt, step): (&dyn Interrupt, impl Fn() -> Result<()>),
    ) -> Result<()> {
        let start = out.len();
        let mut scratch = Vec::new();
        let mut first = true;
        let mut visit = |key: &[Option<Value<'_>>]| {
            step()?;
            if first {
                self.encode(key, row, interrupt, out)?;
                first = false;
                return Ok(());
            }
            scratch.clear();
            self.encode(key, row, interrupt, &mut scratch)?;
            if out.get(start..).is_some_and(|best| scratch.as_slice() < best) {
                out.truncate(start);
                out.extend_from_slice(&scratch);
            }
            Ok(())
        };
        compound_keys(row.document, self.paths.iter(), &mut |_, _| Ok(()), &mut visit).map_err(parallel)
    }

    /// Returns the sort values: an array with a value for each key, null for missing values. Strings are collation keys
    /// if a collation is set.
    ///
    /// Errors: as [`key`](Self::key).
    pub fn values(&self, row: RowView<'_>) -> Result<ValueBuf> {
        let mut best: Option<(Vec<u8>, DocumentBuf)> = None;
        let mut visit = |key: &[Option<Value<'_>>]| {
            let mut encoded = Vec::new();
            self.encode(key, row, &Uninterrupted, &mut encoded)?;
            if best.as_ref().is_none_or(|(least, _)| encoded < *least) {
                best = Some((encoded, self.key_array(key, row)));
            }
            Ok(())
        };
        compound_keys(row.document, self.paths.iter(), &mut |_, _| Ok(()), &mut visit).map_err(parallel)?;
        let shown = best.map(|(_, shown)| shown).unwrap_or_default();
        Ok(shown.view().get("key").unwrap_or(Value::Array(Array::EMPTY)).to_owned())
    }

    /// Sets the sort key in a row's metadata.
    ///
    /// Errors: those of [`key`](Self::key).
    pub fn set_sort_key(&self, row: &mut Row) -> Result<()> {
        let key = self.values(row.view())?;
        row.metadata.get_or_insert_default().sort_key = Some(key);
        Ok(())
    }

    /// Returns one compound key as the array `key` of a document.
    fn key_array(&self, key: &[Option<Value<'_>>], row: RowView<'_>) -> DocumentBuf {
        let mut out = Builder::new();
        out.begin_array(c"key");
        for (value, _) in self.key_values(key, row) {
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

    /// Encodes one compound key; missing values sort as null.
    ///
    /// Errors: interruption.
    fn encode(
        &self,
        key: &[Option<Value<'_>>],
        row: RowView<'_>,
        interrupt: &dyn Interrupt,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.key_values(key, row).try_for_each(|(value, ascending)| {
            self.collation.append_large_key(value.unwrap_or(Value::Null), ascending, interrupt, out)
        })
    }

    /// Returns the values of one compound key and its metadata, each with its direction.
    fn key_values<'v>(
        &'v self,
        key: &'v [Option<Value<'v>>],
        row: RowView<'v>,
    ) -> impl Iterator<Item = (Option<Value<'v>>, bool)> {
        let mut fields = key.iter().zip(&self.fields).map(|(value, (_, ascending))| (*value, *ascending));
        let mut by = self.metadata.iter().peekable();
        (0..self.len()).filter_map(move |position| match by.next_if(|by| by.position == position) {
            Some(by) => Some((row.get(by.kind), by.ascending())),
            None => fields.next(),
        })
    }
}

/// Replaces an index's error about parallel arrays by MongoDB's error for sorts.
fn parallel(error: base::Error) -> base::Error {
    if error.code() == ErrorCode::CannotIndexParallelArrays {
        return err!(BadValue, "cannot sort with keys that are parallel arrays");
    }
    error
}

/// Parses the direction of `$natural`, which must be the only key. Errors: BadValue.
fn natural_direction(spec: Document<'_>, value: Value<'_>) -> Result<bool> {
    if spec.iter().count() > 1 {
        bail!(BadValue, "Cannot include '$natural' in compound sort: {spec}");
    }
    match value.as_i64() {
        Some(1) => Ok(true),
        Some(-1) => Ok(false),
        _ => Err(err!(BadValue, "$natural sort cannot be set to a value other than -1 or 1.")),
    }
}

/// Parses the direction of a key; true ascends. Errors: 15974 for a value that is not a number, 15975 for a number
/// other than 1 and -1.
fn direction(name: &str, value: Value<'_>) -> Result<bool> {
    let Some(number) = value.as_number() else {
        bail!(15974, "Illegal key in $sort specification: {name}: {value}");
    };
    // As in MongoDB, the double 1.5 is accepted as ascending and the decimal 1.5 is refused.
    match number.to_i64_coerced() {
        1 => Ok(true),
        -1 => Ok(false),
        _ => Err(err!(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")),
    }
}

/// Parses the metadata of `name: {$meta: kind}`.
fn meta_kind(name: &str, meta: Document<'_>) -> Result<MetaKind> {
    let Some(first) = meta.first().filter(|first| first.name() == "$meta") else {
        bail!(17312, "$meta is the only expression supported by $sort right now");
    };
    if meta.iter().count() > 1 {
        bail!(FailedToParse, "Cannot have additional keys in a $meta sort specification");
    }
    match first.value().as_str() {
        Some("textScore") => Ok(MetaKind::TextScore),
        Some("geoNearDistance") => Ok(MetaKind::GeoNearDistance),
        // No source provides random numbers, so they are all equal.
        Some("randVal") => Ok(MetaKind::RandVal),
        Some(kind @ ("searchScore" | "vectorSearchScore")) => {
            let error = unavailable(kind);
            Err(err!(40218, "{} (sort key '{name}': {meta})", error.message()))
        }
        _ => Err(err!(31138, "Illegal $meta sort: {first}")),
    }
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

    /// Checks that the documents are in sort order. `=` in front means equal to the previous document.
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
        assert_eq!(code("{a: 1.5}"), 0);
        assert_eq!(code("{a: NumberDecimal('1.5')}"), 15975);
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
        assert_eq!(code("{a: {$meta: 'textScore'}}"), 0);
        assert_eq!(code("{a: {$meta: 'searchScore'}}"), 40218);
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
        // One element provides both fields: here b comes from the element with the least c.
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

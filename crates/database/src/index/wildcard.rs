//! Wildcard indexes: every leaf below a path, or below the paths of a projection, is a key.
//!
//! A key has the path of its leaf before the value, so one tree serves as an index on each path. For planning it is
//! converted into an index on one path: [`Index::on_path`].

use super::{Index, IndexSpec, KeyKind, KeyPart};
use base::bson::{Builder, Document, DocumentBuf, FieldName, Path, Value};
use base::{Result, bail, err};
use query::{Context, Projection};
use std::cmp::Ordering;

/// Name of the path part in keys.
const PATH: &str = "$_path";

/// The paths of a wildcard index.
///
/// Arrays are recorded by path, in words of bits after the bits of the parts ([`array_paths`]). Bit 0 of the wildcard
/// part means that nothing is known by path. Some document then has a duplicate name or a name with a dot, or arrays
/// that were not recorded by path yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Wildcard {
    /// Index of the wildcard in the key pattern.
    pub part: usize,
    /// Path above the leaves; `None` for the whole document.
    below: Option<Path>,
    /// True if `paths` are the only ones indexed, false if they are excluded.
    includes: bool,
    paths: Vec<Path>,
    /// True if `_id` is indexed.
    id: bool,
}

/// The leaves of a document in one wildcard index.
#[derive(Default)]
pub(crate) struct WildcardLeaves<'a> {
    /// Leaves with their paths, sorted by path.
    pub(crate) list: Vec<(String, Value<'a>)>,
    /// The paths with arrays.
    pub(crate) arrays: Vec<String>,
    /// True if names do not determine the path: a name is duplicate or has a dot.
    pub(crate) ambiguous: bool,
}

impl Wildcard {
    /// Parses the wildcard of a key pattern, if any.
    ///
    /// Errors: 7246201 for several wildcards, 7246204 for an overlapping part, 7246209 for an overlap with a
    /// projection; CannotCreateIndex for hashed parts, and for other parts beside all fields without a projection;
    /// BadValue, FailedToParse, 31249 and 51271 for an invalid projection.
    pub(super) fn parse(
        parts: &[KeyPart],
        projection: Option<&DocumentBuf>,
        context: &Context,
    ) -> Result<Option<Wildcard>> {
        let mut wildcards = parts.iter().enumerate().filter(|(_, part)| is_wildcard(part.path.as_str()));
        let Some((part, key)) = wildcards.next() else {
            return match projection {
                None => Ok(None),
                Some(_) => Err(err!(
                    BadValue,
                    "The field 'wildcardProjection' is only allowed in an 'wildcard' index"
                )),
            };
        };
        if wildcards.next().is_some() {
            bail!(7246201, "Index Key can contain only one wildcard index field");
        }
        let below = key.path.as_str().strip_suffix(".$**").map(|path| Path::new(FieldName::trusted(path)));
        if below.is_some() && projection.is_some() {
            bail!(
                FailedToParse,
                "The field 'wildcardProjection' is only allowed when 'key' is {{\"$**\": ±1}}"
            );
        }
        let mut wildcard = Wildcard { part, id: below.is_some(), below, includes: false, paths: Vec::new() };
        match projection {
            Some(projection) => wildcard.project(projection.view(), context)?,
            None if wildcard.below.is_none() && parts.len() > 1 => bail!(
                CannotCreateIndex,
                "Compound wildcard indexes on all fields must also specify 'wildcardProjection' option"
            ),
            None => {}
        }
        wildcard.check_others(parts)?;
        Ok(Some(wildcard))
    }

    /// Takes the projection of the specification. Mixed inclusion and exclusion is an error of `flatten`.
    fn project(&mut self, projection: Document<'_>, context: &Context) -> Result<()> {
        if projection.is_empty() {
            bail!(FailedToParse, "The 'wildcardProjection' field can't be an empty object");
        }
        let mut fields = Vec::new();
        flatten(projection, "", &mut fields)?;
        for (at, (path, _)) in fields.iter().enumerate() {
            if fields.iter().take(at).any(|(other, _)| path.starts_with(other) && path != other) {
                bail!(31249, "Path collision at {path}");
            }
        }
        // Checks for the errors of any projection.
        Projection::parse_find(projection, context)?;
        for (path, included) in fields {
            if path.as_str() == "_id" {
                self.id = included;
                self.includes |= included && projection.iter().count() == 1;
            } else {
                self.includes = included;
                self.paths.push(path);
            }
        }
        // The order given does not distinguish indexes.
        self.paths.sort_by(compare);
        Ok(())
    }

    /// Checks the other parts of a compound wildcard index: no hashed part, and no path that the wildcard covers.
    fn check_others(&self, parts: &[KeyPart]) -> Result<()> {
        for (position, part) in parts.iter().enumerate().filter(|(position, _)| *position != self.part) {
            if part.kind == KeyKind::Hashed {
                bail!(CannotCreateIndex, "Can't use more than one index plugin for a single index.");
            }
            if self.below.as_ref().is_some_and(|below| part.path.starts_with(below)) {
                bail!(
                    7246204,
                    "A wildcard index field should not overlap with and index key fields if wildcard projection is \
                     empty, however '{}' is overlapping with the wildcard index field.",
                    part.path
                );
            }
            if self.covers(&part.path) {
                bail!(7246209, "wildcard index field and field {position}, '{}', overlap", part.path);
            }
        }
        Ok(())
    }

    /// Returns true if the index has the leaves at a path.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        if path.first() == "_id" && self.below.is_none() {
            return self.id;
        }
        self.below.as_ref().is_none_or(|below| path.starts_with(below))
            && self.paths.iter().any(|own| path.starts_with(own)) == self.includes
    }

    /// Returns true if it also has all leaves further down.
    pub(crate) fn covers_below(&self, path: &Path) -> bool {
        self.covers(path) && (self.includes || !self.paths.iter().any(|own| own.starts_with(path)))
    }

    /// Returns all leaves of a document.
    ///
    /// Errors: interruption.
    pub(crate) fn leaves<'a>(&self, document: Document<'a>, context: &Context) -> Result<WildcardLeaves<'a>> {
        let mut leaves = WildcardLeaves::default();
        self.walk(document, &mut String::new(), true, &mut leaves, context)?;
        leaves.list.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(leaves)
    }

    /// The depth of the recursion is limited by the nesting of stored documents.
    fn walk<'a>(
        &self,
        document: Document<'a>,
        path: &mut String,
        top: bool,
        leaves: &mut WildcardLeaves<'a>,
        context: &Context,
    ) -> Result<()> {
        leaves.ambiguous |= has_ambiguous_names(document);
        for element in document {
            let length = path.len();
            if !top {
                path.push('.');
            }
            path.push_str(element.name());
            match element.value() {
                Value::Array(array) => {
                    let before = leaves.list.len();
                    if array.is_empty() {
                        self.leaf(Value::Undefined, path, leaves, context)?;
                    }
                    array.iter().try_for_each(|value| self.value(value, path, leaves, context))?;
                    if leaves.list.len() > before || self.covers(&Path::new(FieldName::trusted(path))) {
                        leaves.arrays.push(path.clone());
                    }
                }
                value => self.value(value, path, leaves, context)?,
            }
            path.truncate(length);
        }
        Ok(())
    }

    /// Visits a value: a non-empty document has leaves of its own, and any other value is a leaf.
    fn value<'a>(
        &self,
        value: Value<'a>,
        path: &mut String,
        leaves: &mut WildcardLeaves<'a>,
        context: &Context,
    ) -> Result<()> {
        match value {
            Value::Document(inner) if !inner.is_empty() => self.walk(inner, path, false, leaves, context),
            // An array in an array is one value.
            _ => self.leaf(value, path, leaves, context),
        }
    }

    /// Adds a leaf if the index covers its path.
    fn leaf<'a>(
        &self,
        value: Value<'a>,
        path: &str,
        leaves: &mut WildcardLeaves<'a>,
        context: &Context,
    ) -> Result<()> {
        context.steps(1 + path.len() / 1024)?;
        if self.covers(&Path::new(FieldName::trusted(path))) {
            leaves.list.push((path.to_string(), value));
        }
        Ok(())
    }
}

/// Checks a new wildcard index for other special kinds and for its projection. Earlier versions stored some of these
/// indexes.
///
/// Errors: CannotCreateIndex for another special kind; errors of [`check_compound`].
pub(super) fn check_new(specification: Document<'_>) -> Result<()> {
    let Some(Value::Document(key)) = specification.get("key") else { return Ok(()) };
    let Some(wildcard) = key.iter().find(|part| is_wildcard(part.name()) && part.value().as_str().is_none())
    else {
        return Ok(());
    };
    let mut others = key.iter().filter(|part| part.name() != wildcard.name());
    if others.any(|part| part.value().as_str().is_some_and(|kind| kind != "wildcard")) {
        bail!(CannotCreateIndex, "Can't use more than one index plugin for a single index.");
    }
    let others = key.iter().filter(|part| !is_wildcard(part.name())).map(|part| Path::new(part.field_name()));
    let others: Vec<Path> = others.collect();
    match specification.get("wildcardProjection") {
        Some(Value::Document(projection))
            if wildcard.name() == "$**" && !others.is_empty() && !projection.is_empty() =>
        {
            check_compound(others, projection)
        }
        _ => Ok(()),
    }
}

/// Checks the projection of a compound wildcard index against its other paths. A projection of included fields must not
/// have them, and a projection of excluded fields must have them all. Only the top-level names of the projection count.
///
/// Errors: 7246200 for overlapping fields of the projection, 7246208 for an included path, 7246209 and 7246210 for a
/// path that is not excluded, 7246211 for a mixture.
fn check_compound(mut paths: Vec<Path>, projection: Document<'_>) -> Result<()> {
    let (mut included, mut excluded) = (Vec::new(), Vec::new());
    for field in projection {
        let list = if field.value().is_truthy() { &mut included } else { &mut excluded };
        list.push(Path::new(field.field_name()));
    }
    for list in [&mut included, &mut excluded] {
        list.sort_by(compare);
        for pair in list.windows(2) {
            if let [a, b] = pair
                && b.starts_with(a)
            {
                bail!(
                    7246200,
                    "Fields in Wildcard Projection cannot overlap, however '{a}' is overlapped with '{b}"
                );
            }
        }
    }
    let has_others = |list: &[Path]| list.iter().any(|path| path.as_str() != "_id");
    if has_others(&included) && has_others(&excluded) {
        bail!(
            7246211,
            "Inclusion and exclusion statements cannot combine in the wildcardProjection with an exception of \
             explicitly including _id field"
        );
    }
    paths.sort_by(compare);
    if !included.is_empty() && !has_others(&excluded) {
        for path in paths {
            if let Some(own) = included.iter().find(|own| path.starts_with(own)) {
                bail!(
                    7246208,
                    "Index Key and Wildcard Projection cannot contain overlapping fields, however '{path}' index field \
                     is ovverlapping with '{own}' wildcardProjection path."
                );
            }
        }
        return Ok(());
    }
    let Some(path) = paths.iter().find(|path| !excluded.iter().any(|own| path.starts_with(own))) else {
        return Ok(());
    };
    let message = format!(
        "wildcardProjection paths must exclude all regular index fields, however '{path}'is not excluded."
    );
    // MongoDB walks both sorted lists and has another code at the end of the excluded paths.
    match excluded.iter().any(|own| compare(own, path).is_gt()) {
        true => Err(err!(7246209, "{message}")),
        false => Err(err!(7246210, "{message}")),
    }
}

/// Compares two paths by their components.
fn compare(a: &Path, b: &Path) -> Ordering {
    a.as_str().split('.').cmp(b.as_str().split('.'))
}

/// Returns true if a field of a key pattern is a wildcard.
pub(super) fn is_wildcard(name: &str) -> bool {
    name == "$**" || name.ends_with(".$**")
}

/// Collects the paths of a projection with their inclusion.
fn flatten(projection: Document<'_>, above: &str, fields: &mut Vec<(Path, bool)>) -> Result<()> {
    for element in projection {
        let path = format!("{above}{}", element.name());
        match element.value() {
            Value::Document(inner) => flatten(inner, &format!("{path}."), fields)?,
            value if matches!(value, Value::Boolean(_)) || value.as_number().is_some() => {
                fields.push((Path::new(FieldName::new(&path)?), value.is_truthy()));
            }
            _ => {
                bail!(51271, "wildcardProjection only includes or excludes fields, found '{path}'");
            }
        }
    }
    Ok(())
}

impl Index {
    /// Returns a wildcard index as an index on a single path: the same tree, with keys split into path and value. It is
    /// multikey if some document has an array on the path. With `always` it is multikey everywhere, for bounds over
    /// several paths.
    pub(crate) fn on_path(&self, wildcard: &Wildcard, path: &Path, always: bool) -> Index {
        let mut spec = IndexSpec::clone(&self.spec);
        let bits = self.multikey_bits();
        let (mut key, mut parts, mut multikey) = (Builder::new(), Vec::new(), Vec::new());
        for (position, (element, part)) in self.spec.key.view().iter().zip(&self.spec.parts).enumerate() {
            if position != wildcard.part {
                key.append_element(&element);
                parts.push(part.clone());
                multikey.push(bits.get(position).copied().unwrap_or(0));
                continue;
            }
            key.append(FieldName::literal(PATH), 1i32).append(path, element.value());
            parts.push(KeyPart { path: Path::new(FieldName::literal(PATH)), kind: KeyKind::Ascending });
            parts.push(KeyPart { path: path.clone(), kind: part.kind });
            let everywhere = always || self.is_ambiguous(wildcard);
            multikey.extend([0, if everywhere { every_component(path) } else { self.arrays_along(path) }]);
        }
        (spec.key, spec.parts, spec.wildcard) = (key.finish(), parts, None);
        spec.path_part = Some(wildcard.part);
        Index { uses: self.uses.clone(), ..Index::new(spec, self.ident, &multikey, self.since_millis) }
    }

    /// Returns true if the path of a key may belong to another field, or if arrays were not recorded by path.
    pub(crate) fn is_ambiguous(&self, wildcard: &Wildcard) -> bool {
        self.multikey_bits().get(wildcard.part).is_some_and(|bits| *bits != 0)
    }

    /// Returns the bits of the path components that may have arrays.
    pub(crate) fn arrays_along(&self, path: &Path) -> u32 {
        let words = self.multikey_bits().split_off(self.spec.parts.len());
        let mut along = String::new();
        path.components().iter().enumerate().fold(0, |bits, (depth, component)| {
            if depth > 0 {
                along.push('.');
            }
            along.push_str(component.name());
            bits | u32::from(may_have_array(&along, &words)) << depth.min(31)
        })
    }
}

/// Returns true if names do not identify fields: a name has a dot or is duplicate.
fn has_ambiguous_names(document: Document<'_>) -> bool {
    let mut names: Vec<&str> = document.iter().map(|element| element.name()).collect();
    names.sort_unstable();
    names.iter().any(|name| name.contains('.'))
        || names.windows(2).any(|pair| matches!(pair, [a, b] if a == b))
}

/// Returns the bits of all components of a path.
fn every_component(path: &Path) -> u32 {
    (0..path.components().len()).fold(0, |bits, component| bits | 1 << component.min(31))
}

// Paths of a wildcard index with arrays on them, as a Bloom filter of fixed size. A path without arrays may be reported
// as having some, never the reverse.
//
// The bits are stored with the index, so the mapping from a path to its bits must never change.

/// Number of words of bits.
pub(super) const ARRAY_WORDS: usize = 8;

/// Records that some document has an array at a path.
pub(super) fn note_array(path: &str, words: &mut [u32]) {
    for bit in array_bits(path) {
        if let Some(word) = words.get_mut(bit / 32) {
            *word |= 1 << (bit % 32);
        }
    }
}

/// Returns true if a document may have an array at a path.
fn may_have_array(path: &str, words: &[u32]) -> bool {
    array_bits(path)
        .into_iter()
        .all(|bit| words.get(bit / 32).is_some_and(|word| word & (1 << (bit % 32)) != 0))
}

/// Returns the two bits of a path, by FNV-1a.
fn array_bits(path: &str) -> [usize; 2] {
    let hash = path.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let within = |hash: u64| (hash % (32 * ARRAY_WORDS as u64)) as usize;
    [within(hash), within(hash >> 32)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Namespace;
    use base::bson::extended_json;

    fn parse(spec: &str) -> Result<IndexSpec> {
        let spec = extended_json::parse(spec).unwrap();
        check_new(spec.view())?;
        IndexSpec::parse(spec.view(), &Namespace::parse("test.c").unwrap(), &Context::for_tests())
    }

    /// Returns the leaves as text, and the paths with arrays. A leading question mark means ambiguous names.
    fn leaves(key: &str, options: &str, document: &str) -> String {
        let spec = parse(&format!("{{name: 'n', key: {key}{options}}}")).unwrap();
        let document = extended_json::parse(document).unwrap();
        let leaves = spec.wildcard.as_ref().unwrap().leaves(document.view(), &Context::for_tests()).unwrap();
        let list: Vec<_> = leaves.list.iter().map(|(path, value)| format!("{path}={value}")).collect();
        let arrays = leaves.arrays.iter().map(|path| format!(" *{path}")).collect::<String>();
        format!("{}{}{arrays}", if leaves.ambiguous { "?" } else { "" }, list.join(" "))
    }

    #[test]
    fn every_leaf_is_a_key() {
        let all = |document| leaves("{'$**': 1}", "", document);
        assert_eq!(all("{_id: 1, b: 2, a: {c: 3, d: {}}}"), "a.c=3 a.d={} b=2");
        assert_eq!(all("{a: [1, {b: 2}, [3], {}], c: []}"), "a=1 a=[ 3 ] a={} a.b=2 c=undefined *a *c");
        assert_eq!(all("{_id: 1}"), "");
        assert_eq!(all("{a: {b: 1}, 'a.b': 2}"), "?a.b=1 a.b=2");
        assert_eq!(all("{a: 1, b: 2, a: 3}"), "?a=1 a=3 b=2");
        assert_eq!(leaves("{'a.$**': 1}", "", "{_id: 1, a: {b: 2}, ab: 3}"), "a.b=2");
        assert_eq!(leaves("{'a.$**': 1}", "", "{a: 5}"), "a=5");
    }

    #[test]
    fn a_projection_picks_paths() {
        let with = |projection: &str| {
            let options = format!(", wildcardProjection: {projection}");
            leaves("{'$**': 1}", &options, "{_id: 0, a: {b: 1, c: 2}, d: 3}")
        };
        assert_eq!(with("{'a.b': 1}"), "a.b=1");
        assert_eq!(with("{a: {b: 1}, _id: 1}"), "_id=0 a.b=1");
        assert_eq!(with("{'a.b': 0}"), "a.c=2 d=3");
        assert_eq!(with("{_id: 1, a: 0}"), "_id=0 d=3");
        assert_eq!(with("{_id: 1}"), "_id=0");
        assert_eq!(with("{_id: 0}"), "a.b=1 a.c=2 d=3");
    }

    #[test]
    fn other_parts_stand_around_the_path() {
        let spec = parse("{name: 'n', key: {x: 1, 'a.$**': -1, y: 1}}").unwrap();
        let document = extended_json::parse("{x: [1, 2], a: {b: 3, c: 4}}").unwrap();
        let error = spec.keys_of(document.view(), &Context::for_tests()).unwrap_err();
        assert_eq!(error.code().number(), 7_246_301);
        let document = extended_json::parse("{x: 1, a: {b: 3, c: 4}}").unwrap();
        let keys = spec.keys_of(document.view(), &Context::for_tests()).unwrap();
        assert_eq!((keys.keys.len(), &keys.multikey[..3]), (2, &[0, 0, 0][..]));
        let on = |bits: &[u32], path: &str| {
            let index = Index::new(spec.clone(), storage::Ident(1), bits, 0);
            let path = index.on_path(
                index.spec.wildcard.as_ref().unwrap(),
                &Path::new(FieldName::new(path).unwrap()),
                false,
            );
            (path.spec.key.to_string(), path.multikey_bits())
        };
        let of = "{ x: 1, $_path: 1, a.b: -1, y: 1 }".to_string();
        assert_eq!(on(&keys.multikey, "a.b"), (of.clone(), vec![0, 0, 0, 0]));
        // Without records by path, arrays may be anywhere.
        assert_eq!(on(&[1, 1, 0], "a.b"), (of.clone(), vec![1, 0, 3, 0]));
        let arrays = extended_json::parse("{a: {b: [1, 2], c: 3}}").unwrap();
        let arrays = spec.keys_of(arrays.view(), &Context::for_tests()).unwrap().multikey;
        assert_eq!(on(&arrays, "a.b"), (of, vec![0, 0, 2, 0]));
        assert_eq!(on(&arrays, "a.c").1, [0, 0, 0, 0]);
        assert_eq!(on(&arrays, "a.b.c").1, [0, 0, 2, 0]);
    }

    #[test]
    fn invalid_specifications_are_refused() {
        let code =
            |spec: &str| parse(&format!("{{name: 'n', {spec}}}")).err().map(|error| error.code().number());
        for (spec, expected) in [
            ("key: {'$**': 1}, unique: true", 67),
            ("key: {'$**': 1}, sparse: true", 67),
            ("key: {'$**': 1}, expireAfterSeconds: 1", 67),
            ("key: {'$**': 'hashed'}", 67),
            ("key: {'$**': 1, a: 1}", 67),
            ("key: {'$**': 1, a: 1}, wildcardProjection: {b: 0}", 7246209),
            ("key: {'$**': 1, c: 1}, wildcardProjection: {'a.b': 1, 'a.b.c': 1}", 7246200),
            ("key: {a: 1, '$**': 1}, wildcardProjection: {_id: 0, a: 1}", 7246208),
            ("key: {_id: 1, '$**': 1}, wildcardProjection: {_id: 1}", 7246208),
            ("key: {'$**': 1, _id: 1, e: 1}, wildcardProjection: {_id: 1, e: 0}", 7246209),
            ("key: {a: 1, _id: 1, '$**': 1}, wildcardProjection: {a: 0}", 7246209),
            ("key: {_id: 1, a: 1, '$**': 1}, wildcardProjection: {_id: 0, 'a.b': 0}", 7246209),
            ("key: {a: 1, '$**': 1}, wildcardProjection: {_id: 0}", 7246210),
            ("key: {b: 1, '$**': 1}, wildcardProjection: {_id: 0, a: 0}", 7246210),
            ("key: {'$**': 1, 'e.c': 1}, wildcardProjection: {_id: 1, 'e.b': 0}", 7246210),
            ("key: {'$**': 1, c: 1}, wildcardProjection: {_id: 0, a: 0, b: 1}", 7246211),
            ("key: {a: 1, '$**': 1}, wildcardProjection: {b: 'x'}", 51271),
            ("key: {'a.$**': 1, 'a.b': 1}", 7246204),
            ("key: {a: 1, 'a.$**': 1}", 7246204),
            ("key: {'a.$**': 1, 'b.$**': 1}", 7246201),
            ("key: {'a.$**': 1, b: 'hashed'}", 67),
            ("key: {'a.$**': 1, b: '2dsphere'}", 67),
            ("key: {b: '2d', 'a.$**': 1}", 67),
            ("key: {'a.$**': 1, b: 'text'}", 67),
            ("key: {'$**': 1}, wildcardProjection: {}", 9),
            ("key: {'a.$**': 1}, wildcardProjection: {a: 1}", 9),
            ("key: {a: 1}, wildcardProjection: {a: 1}", 2),
            ("key: {'$**': 1}, wildcardProjection: 1", 14),
            ("key: {'$**': 1}, wildcardProjection: {a: 1, b: 0}", 31254),
            ("key: {'$**': 1}, wildcardProjection: {a: 'x'}", 51271),
        ] {
            assert_eq!(code(spec), Some(expected), "{spec}");
        }
        for spec in [
            "key: {'$**': 1, a: 1}, wildcardProjection: {a: 0}",
            "key: {'$**': 1, b: 1}, wildcardProjection: {_id: 0, a: 1}",
            "key: {'$**': 1, b: 1}, wildcardProjection: {_id: 1, a: 0, b: 0}",
            "key: {'$**': 1, b: 1}, wildcardProjection: {_id: 1}",
            "key: {'$**': 1, d: 1}, wildcardProjection: {a: {b: 1, c: 1}}",
            "key: {'$**': 1, _id: 1, e: 1}, wildcardProjection: {_id: 0, a: 1}",
            "key: {_id: 1, 'a.b': 1, '$**': 1}, wildcardProjection: {_id: 0, a: 0}",
            "key: {_id: 1, '$**': 1}, wildcardProjection: {_id: 0}",
        ] {
            assert_eq!(code(spec), None, "{spec}");
        }
    }

    #[test]
    fn few_paths_are_taken_for_others() {
        let mut words = [0; ARRAY_WORDS];
        let path = |number: usize| format!("field{number}.list");
        (0..10).for_each(|number| note_array(&path(number), &mut words));
        assert!((0..10).all(|number| may_have_array(&path(number), &words)));
        let mistaken = (10..1010).filter(|number| may_have_array(&path(*number), &words)).count();
        assert!(mistaken < 30, "{mistaken}");
        assert!(!may_have_array("a", &[0; ARRAY_WORDS]));
    }

    #[test]
    fn bits_stay_as_they_are() {
        assert_eq!((array_bits(""), array_bits("a"), array_bits("a.b")), ([37, 228], [140, 76], [44, 25]));
    }
}

//! Index specifications: the checked input of createIndexes, and the output of listIndexes.

use super::geo::GeoIndex;
use super::text::{self as text_index, TextIndex};
use super::wildcard::{Wildcard, is_wildcard};
use crate::option_field::check_storage_engine;
use base::bson::{Builder, Document, DocumentBuf, Element, FieldName, Path, Value, equal};
use base::{CompatibleWith, ErrorCode, Namespace, Result, bail, err};
use query::matcher::Matcher;
use query::{Collation, Context, collation};
use std::sync::{Arc, LazyLock};
use storage::mutant;

/// Maximum number of fields of a key pattern.
const PARTS_MAX: usize = 32;

/// Maximum depth of a partial filter: MongoDB's default of `internalPartialFilterExpressionMaxDepth`.
const PARTIAL_DEPTH_MAX: usize = 4;

/// Maximum size of a key pattern in bytes.
const KEY_PATTERN_MAX: usize = 2048;

/// Kind of a field in a key pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// By value, smallest first.
    Ascending,
    /// By value, greatest first.
    Descending,
    /// By the hash of the value.
    Hashed,
    /// By the S2 cells of a place on the sphere.
    Sphere,
    /// By the hash of a place in the plane.
    Flat,
    /// By the words of a text.
    Text,
}

/// One field of a key pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyPart {
    /// The indexed path.
    pub path: Path,
    /// Kind of the index on this field.
    pub kind: KeyKind,
}

/// A checked index specification.
#[derive(Clone, Default)]
pub struct IndexSpec {
    /// Name of the index, unique in its collection.
    pub name: String,
    /// The key pattern as given.
    pub key: DocumentBuf,
    /// The parsed key pattern.
    pub parts: Vec<KeyPart>,
    /// Geospatial properties, if any.
    pub geo: Option<GeoIndex>,
    /// Text properties, if any.
    pub text: Option<Arc<TextIndex>>,
    /// The wildcard part, if any.
    pub wildcard: Option<Wildcard>,
    /// In a wildcard index as seen on a single path: the part that holds the path.
    pub(crate) path_part: Option<usize>,
    /// True if two documents must not have the same key.
    pub unique: bool,
    /// Writes must not add duplicate keys, but existing documents may have some.
    pub prepare_unique: bool,
    /// Documents without any of the fields are not indexed.
    pub sparse: bool,
    /// The index on `_id` of a clustered collection.
    pub clustered: bool,
    /// Maintained but never chosen by the planner.
    pub hidden: bool,
    /// Seconds after the indexed date at which documents expire.
    pub expire_after_seconds: Option<f64>,
    /// Filter of a partial index, if any.
    pub partial: Option<Partial>,
    /// Collation of strings.
    pub collation: Collation,
    /// The options as in listIndexes, in the given order.
    options: DocumentBuf,
}

/// The filter of a partial index.
#[derive(Clone)]
pub struct Partial {
    /// The filter as given.
    pub filter: DocumentBuf,
    /// The parsed filter.
    pub matcher: Arc<Matcher>,
}

impl Partial {
    /// Returns true if two filters are equal in MongoDB's canonical order of conditions.
    fn same(a: Option<&Partial>, b: Option<&Partial>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => {
                let (a, b) = (a.matcher.describe(), b.matcher.describe());
                equal(Value::Document(a.view()), Value::Document(b.view()))
            }
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl IndexSpec {
    /// Returns the index on `_id` of every collection, with the collection's collation.
    pub fn id(collation: Collation) -> IndexSpec {
        let mut key = Builder::new();
        key.append(c"_id", 1i32);
        IndexSpec {
            name: "_id_".to_string(),
            key: key.finish(),
            parts: vec![KeyPart { path: Path::new(c"_id"), kind: KeyKind::Ascending }],
            unique: true,
            collation,
            ..IndexSpec::default()
        }
    }

    /// Returns the index on `_id`, shared by all collections without a collation.
    pub(crate) fn shared_id(collation: &Collation) -> Arc<IndexSpec> {
        static SIMPLE: LazyLock<Arc<IndexSpec>> =
            LazyLock::new(|| IndexSpec::id(Collation::default()).into());
        match collation.is_simple() {
            true => SIMPLE.clone(),
            false => IndexSpec::id(collation.clone()).into(),
        }
    }

    /// Returns the index on `_id` of a clustered collection, which may have another name.
    pub fn clustered(name: &str, collation: Collation) -> IndexSpec {
        let mut options = Builder::new();
        options.append(c"unique", true).append(c"clustered", true);
        let id = IndexSpec::id(collation);
        IndexSpec { name: name.to_string(), clustered: true, options: options.finish(), ..id }
    }

    /// Checks one element of createIndexes' `indexes`. The default collation is the context's.
    ///
    /// Errors: CannotCreateIndex, TypeMismatch, BadValue, InvalidIndexSpecificationOption, NotImplemented for
    /// unsupported kinds and options, with MongoDB's texts.
    pub fn parse(
        specification: Document<'_>,
        _namespace: &Namespace,
        context: &Context,
    ) -> Result<IndexSpec> {
        let mut parser = Parser::default();
        for element in specification {
            parser.field(element.name(), element.value(), specification)?;
        }
        parser.finish(specification, context)
    }

    /// Checks rules that stored specifications need not follow, since earlier versions did not check them.
    ///
    /// Errors: CannotCreateIndex for options that exclude each other, for a path that begins with `$` and for a deep
    /// partial filter; 6492800 for `clustered: false`, TypeMismatch for options of text indexes, errors of the options
    /// of a storage engine.
    pub(crate) fn check_new(&self, specification: Document<'_>) -> Result<()> {
        if self
            .parts
            .iter()
            .any(|part| part.path.as_str().starts_with('$') && !is_wildcard(part.path.as_str()))
        {
            return Err(illegal_name());
        }
        // Earlier versions stored these options of other indexes as given.
        specification.iter().try_for_each(|option| check_text_option(option.name(), option.value()))?;
        if specification.get("clustered").is_some_and(|clustered| !clustered.is_truthy()) {
            bail!(6492800, "Value 'false' for field 'clustered' is invalid");
        }
        if self.partial.as_ref().is_some_and(|partial| depth(partial.filter.view()) > PARTIAL_DEPTH_MAX) {
            bail!(CannotCreateIndex, "partialFilterExpression depth may not exceed {PARTIAL_DEPTH_MAX}");
        }
        let version = specification.get("v").and_then(|version| version.as_i64());
        if version == Some(1) && specification.find("collation").is_some() {
            bail!(
                CannotCreateIndex,
                "Invalid index specification {specification}; cannot create an index with the 'collation' option and \
                 v=1"
            );
        }
        if self.text.is_none() && specification.get("weights").is_some() {
            bail!(
                CannotCreateIndex,
                "Invalid index specification {specification}; the field 'weights' can only be specified with text \
                 indexes"
            );
        }
        if self.unique && self.prepare_unique {
            bail!(
                CannotCreateIndex,
                "Invalid index specification {specification}; cannot create an index with the 'unique' option and the \
                 'prepareUnique' option"
            );
        }
        match specification.get("storageEngine") {
            Some(Value::Document(engines)) => check_storage_engine(engines),
            _ => Ok(()),
        }
    }

    /// Returns a specification without unknown fields, for `ignoreUnknownIndexOptions`.
    pub fn without_unknown(specification: Document<'_>) -> DocumentBuf {
        let is_known = |element: &Element<'_>| {
            let outcome = Parser::default().field(element.name(), element.value(), specification);
            !outcome.is_err_and(|error| error.code() == ErrorCode::InvalidIndexSpecificationOption)
        };
        let mut out = Builder::new();
        for element in specification.iter().filter(is_known) {
            out.append_element(&element);
        }
        out.finish()
    }

    /// Returns the specification as in listIndexes.
    pub fn to_document(&self) -> DocumentBuf {
        let mut out = Builder::new();
        self.append_to(&mut out);
        out.finish()
    }

    /// Appends the fields of listIndexes to an open document.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        out.append(c"v", 2i32).append(c"key", &self.key).append(c"name", &self.name);
        out.append_all(self.options.view());
        if self.prepare_unique {
            out.append(c"prepareUnique", true);
        }
        if self.hidden {
            out.append(c"hidden", true);
        }
        if let Some(seconds) = self.expire_after_seconds {
            append_seconds(out, seconds);
        }
        out.append_optional(c"collation", self.collation.document());
    }

    /// Returns the hash of a value in a hashed part. Strings that the collation treats as equal have equal hashes.
    pub fn hash(&self, value: Value<'_>) -> i64 {
        if self.collation.is_simple() || !collation::depends_on_collation(value) {
            return base::hash::hash64(value);
        }
        let mut key = Vec::new();
        self.collation.append_key(value, true, &mut key);
        base::hash::hash64(Value::Binary { subtype: 0, bytes: &key })
    }

    /// Returns true if two specifications define one index: equal keys, collation, uniqueness, sparseness and filter.
    /// All text indexes with the same other fields have one signature; their weights and languages are options.
    pub fn same_signature(&self, other: &IndexSpec) -> bool {
        self.parts == other.parts
            && self.wildcard == other.wildcard
            && self.collation == other.collation
            && self.is_unique() == other.is_unique()
            && self.sparse == other.sparse
            && Partial::same(self.partial.as_ref(), other.partial.as_ref())
    }

    fn is_unique(&self) -> bool {
        self.unique || self.name == "_id_"
    }

    /// Returns true if all options except the name agree.
    pub fn same_options(&self, other: &IndexSpec) -> bool {
        self.prepare_unique == other.prepare_unique
            && self.hidden == other.hidden
            && self.expire_after_seconds == other.expire_after_seconds
            && TextIndex::same_options(self.text.as_deref(), other.text.as_deref())
            && GeoIndex::same_options(self.geo.as_ref(), other.geo.as_ref())
            && self.same_signature(other)
    }

    /// Returns true if plans may use the index for ordinary conditions and for sorting. Indexes with operators of their
    /// own (geospatial, text) return false.
    pub fn serves_plain_queries(&self) -> bool {
        self.geo.is_none() && self.text.is_none()
    }

    /// Returns true if any part is hashed.
    pub fn is_hashed(&self) -> bool {
        self.parts.iter().any(|part| part.kind == KeyKind::Hashed)
    }

    /// Returns true if the key pattern is `_id` alone, with a direction whose integer part is 1 or -1. As in MongoDB,
    /// other numbers make an ordinary index.
    pub fn is_id_pattern(&self) -> bool {
        let [part] = &*self.parts else { return false };
        let direction = self.key.view().first().and_then(|first| first.value().as_number());
        part.path.as_str() == "_id"
            && matches!(part.kind, KeyKind::Ascending | KeyKind::Descending)
            && direction.is_some_and(|direction| direction.to_f64().trunc().abs() == 1.0)
    }

    /// Makes a prepared index unique, or a unique index non-unique, as collMod does.
    pub(crate) fn set_unique(&mut self, unique: bool) {
        self.unique = unique;
        self.prepare_unique = false;
        let mut options = Builder::new();
        options.append_optional(c"unique", unique.then_some(true));
        for option in self.options.view().iter().filter(|option| option.name() != "unique") {
            options.append_element(&option);
        }
        self.options = options.finish();
    }
}

/// Appends seconds, as an integer if possible, as MongoDB stores them.
fn append_seconds(out: &mut Builder, seconds: f64) {
    if seconds.fract() == 0.0 && seconds.abs() <= f64::from(i32::MAX) {
        out.append(c"expireAfterSeconds", seconds as i32);
    } else {
        out.append(c"expireAfterSeconds", seconds);
    }
}

/// The fields parsed so far.
#[derive(Default)]
struct Parser {
    name: Option<String>,
    key: Option<DocumentBuf>,
    unique: bool,
    prepare_unique: bool,
    sparse: bool,
    clustered: bool,
    hidden: bool,
    expire_after_seconds: Option<f64>,
    partial: Option<DocumentBuf>,
    collation: Option<Collation>,
    wildcard_projection: Option<DocumentBuf>,
    options: Builder,
}

impl Parser {
    /// Takes one field of a specification. Errors: unknown fields, wrong types, invalid values.
    fn field(&mut self, name: &str, value: Value<'_>, definition: Document<'_>) -> Result<()> {
        match name {
            "name" => self.name = Some(text(name, value)?.to_string()),
            "key" => self.key = Some(document(name, value)?.to_owned()),
            "unique" => {
                self.unique = flag(name, value)?;
                if self.unique {
                    self.options.append(FieldName::new(name)?, true);
                }
            }
            "sparse" => {
                self.sparse = flag(name, value)?;
                self.options.append(FieldName::new(name)?, self.sparse);
            }
            "background" => {
                // All builds are alike. MongoDB keeps the option and ignores it too.
                let background = flag(name, value)?;
                self.options.append(FieldName::new(name)?, background);
            }
            // Numbers are not booleans here, other than in the older options.
            "hidden" => self.hidden = value.as_bool().ok_or_else(|| wrong_type(name, "a bool", value))?,
            "expireAfterSeconds" => self.expire_after_seconds = Some(expiry(value)?),
            "partialFilterExpression" => {
                let filter = document(name, value)?;
                self.options.append(FieldName::new(name)?, filter);
                self.partial = Some(filter.to_owned());
            }
            "v" => version(value)?,
            // The namespace, sent by older clients. MongoDB ignores every value.
            "ns" => {}
            "collation" => {
                let collation = document(name, value)?;
                if collation.is_empty() {
                    bail!(BadValue, "The field 'collation' cannot be an empty object.");
                }
                self.collation = Some(Collation::parse(collation, name)?);
            }
            "storageEngine" => {
                let options = document(name, value)?;
                self.options.append(FieldName::new(name)?, options);
            }
            "weights" | "default_language" | "language_override" | "textIndexVersion" => {
                if is_text(definition) {
                    check_text_option(name, value)?;
                }
                self.options.append(FieldName::new(name)?, value);
            }
            "min" | "max" => {
                let bound = value.as_number().ok_or_else(|| wrong_type(name, "a number", value))?;
                self.options.append(FieldName::new(name)?, bound.to_f64());
            }
            "2dsphereIndexVersion" | "bits" | "finestIndexedLevel" | "coarsestIndexedLevel" => {
                if value.as_number().is_none() {
                    return Err(wrong_type(name, "a number", value));
                }
                self.options.append(FieldName::new(name)?, value);
            }
            // An option of geoHaystack indexes, which MongoDB 5.0 removed.
            "bucketSize" => {
                bail!(NotImplemented, "geoHaystack indexes are not supported: option '{name}'");
            }
            "wildcardProjection" => {
                let projection = document(name, value)?;
                self.options.append(FieldName::new(name)?, projection);
                self.wildcard_projection = Some(projection.to_owned());
            }
            // No effect since MongoDB 3.0, but checked.
            "dropDups" => {
                flag(name, value)?;
            }
            // An option of the index made by create; createIndexes may only repeat it.
            "clustered" => self.clustered = flag(name, value)?,
            "prepareUnique" => self.prepare_unique = flag(name, value)?,
            _ => {
                bail!(
                    InvalidIndexSpecificationOption,
                    "The field '{name}' is not valid for an index specification. Specification: {definition}"
                );
            }
        }
        Ok(())
    }

    /// Checks the whole specification and builds it.
    fn finish(self, definition: Document<'_>, context: &Context) -> Result<IndexSpec> {
        let key = self.key.ok_or_else(|| {
            err!(FailedToParse, "The 'key' field is a required property of an index specification")
        })?;
        check_plugins(key.view())?;
        let (key, parts, text, options) = match text_index::is_pattern(key.view()) {
            true => {
                let stored = text_index::stored(key.view(), self.options.finish().view())?;
                (stored.key, stored.parts, Some(Arc::new(stored.index)), stored.options)
            }
            false => {
                let parts = key_pattern(key.view())?;
                let mut options = self.options;
                GeoIndex::complete(&parts, &mut options, definition.find("2dsphereIndexVersion").is_some());
                (key, parts, None, options.finish())
            }
        };
        let name = self.name.ok_or_else(|| {
            err!(FailedToParse, "The 'name' field is a required property of an index specification")
        })?;
        let collation = self.collation.unwrap_or_else(|| context.collation.clone());
        let wildcard = Wildcard::parse(&parts, self.wildcard_projection.as_ref(), context)?;
        if text.is_some() && !collation.is_simple() {
            let collation = collation.document().unwrap_or(Document::EMPTY);
            bail!(CannotCreateIndex, "Index type 'text' does not support collation: {collation}");
        }
        let geo = GeoIndex::parse(&parts, options.view(), &collation)?;
        let spec = IndexSpec {
            geo,
            text,
            wildcard,
            path_part: None,
            partial: self.partial.map(|filter| partial(filter, &collation, context)).transpose()?,
            collation,
            name,
            key,
            parts,
            unique: self.unique,
            prepare_unique: self.prepare_unique,
            sparse: self.sparse,
            clustered: self.clustered,
            hidden: self.hidden,
            expire_after_seconds: self.expire_after_seconds,
            options,
        };
        check(&spec, definition)?;
        if spec.is_id_pattern() && spec.clustered {
            return Ok(IndexSpec::clustered(&spec.name, spec.collation));
        }
        if spec.is_id_pattern() {
            return Ok(IndexSpec::id(spec.collation));
        }
        Ok(spec)
    }
}

/// Checks rules that involve several fields.
fn check(spec: &IndexSpec, definition: Document<'_>) -> Result<()> {
    if spec.name.is_empty() {
        bail!(CannotCreateIndex, "index name cannot be empty");
    }
    if spec.name == "*" {
        bail!(BadValue, "The index name '*' is not valid.");
    }
    if spec.name.contains('\0') {
        bail!(CannotCreateIndex, "index name cannot contain NUL bytes");
    }
    if spec.wildcard.is_some() {
        check_wildcard(spec, definition)?;
    }
    if spec.partial.is_some() && spec.sparse {
        bail!(CannotCreateIndex, "cannot mix \"partialFilterExpression\" and \"sparse\" options");
    }
    if spec.is_hashed() {
        if spec.unique || spec.prepare_unique {
            bail!(16764, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.");
        }
        if spec.parts.iter().filter(|part| part.kind == KeyKind::Hashed).count() > 1 {
            bail!(
                31303,
                "A maximum of one index field is allowed to be hashed but found {} for 'key' {}",
                spec.parts.iter().filter(|part| part.kind == KeyKind::Hashed).count(),
                spec.key
            );
        }
    }
    // Fields as given: a text index on one field counts as one, though two are stored.
    let fields = definition.get("key").and_then(|key| key.as_document()).map_or(0, |key| key.iter().count());
    let fields = if mutant!("a text index on one field has two") { spec.parts.len() } else { fields };
    let is_stored_text = spec.text.is_some() && fields == 2 && definition.get("weights").is_some();
    if spec.expire_after_seconds.is_some() && fields > 1 && !is_stored_text {
        bail!(
            CannotCreateIndex,
            "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: {definition}"
        );
    }
    if spec.is_id_pattern() {
        return check_id(spec, definition);
    }
    if spec.name == "_id_" {
        bail!(
            BadValue,
            "The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: 1}}, \
             found key: {}",
            spec.key
        );
    }
    Ok(())
}

/// Checks the rules of wildcard indexes.
fn check_wildcard(spec: &IndexSpec, definition: Document<'_>) -> Result<()> {
    if spec.sparse {
        bail!(CannotCreateIndex, "Index type 'wildcard' does not support the sparse option");
    }
    if spec.unique || spec.prepare_unique {
        bail!(CannotCreateIndex, "Index type 'wildcard' does not support the unique option");
    }
    if spec.expire_after_seconds.is_some() {
        bail!(CannotCreateIndex, "Index type 'wildcard' cannot be a TTL index");
    }
    if definition.get("v").and_then(|version| version.as_i64()) == Some(1) {
        bail!(CannotCreateIndex, "Index type 'wildcard' requires version 2, not 1");
    }
    Ok(())
}

/// Checks that the index on `_id` has no options.
fn check_id(spec: &IndexSpec, definition: Document<'_>) -> Result<()> {
    const FIELDS: [&str; 5] = ["collation", "key", "name", "ns", "v"];
    let option = definition.iter().find(|option| !FIELDS.contains(&option.name()));
    if let Some(option) = option.filter(|_| !spec.clustered) {
        bail!(
            InvalidIndexSpecificationOption,
            "The field '{}' is not valid for an _id index specification. Specification: {definition}",
            option.name()
        );
    }
    let direction = spec.key.view().first().and_then(|part| part.value().as_number());
    if direction.and_then(|direction| direction.to_i64_exact()) != Some(1) {
        bail!(BadValue, "The field 'key' for an _id index must be {{_id: 1}}, but got {}", spec.key);
    }
    Ok(())
}

/// Checks that an index has at most one special kind.
fn check_plugins(key: Document<'_>) -> Result<()> {
    let mut plugins = key.iter().filter_map(|part| part.value().as_str());
    let first = plugins.next();
    if plugins.any(|plugin| Some(plugin) != first) {
        bail!(CannotCreateIndex, "Can't use more than one index plugin for a single index.");
    }
    for part in key.iter().filter(|part| matches!(part.value(), Value::String("text"))) {
        check_path(part.name())?;
        if part.name().ends_with(".$**") {
            return Err(illegal_name());
        }
    }
    Ok(())
}

/// Parses a key pattern.
fn key_pattern(key: Document<'_>) -> Result<Vec<KeyPart>> {
    let mut names: Vec<&str> = Vec::new();
    for element in key {
        if names.contains(&element.name()) {
            bail!(
                BadValue,
                "The field '{}' appears multiple times in the index key pattern {key}",
                element.name()
            );
        }
        names.push(element.name());
    }
    if key.bytes().len() > KEY_PATTERN_MAX {
        bail!(CannotCreateIndex, "Index key pattern too large.");
    }
    if key.is_empty() {
        bail!(CannotCreateIndex, "Index keys cannot be empty.");
    }
    let parts: Vec<KeyPart> = key.iter().map(|e| key_part(e.name(), e.value())).collect::<Result<_>>()?;
    if parts.len() > PARTS_MAX {
        bail!(13103, "too many compound keys");
    }
    Ok(parts)
}

/// Parses one field of a key pattern.
fn key_part(name: &str, value: Value<'_>) -> Result<KeyPart> {
    check_path(name)?;
    if name == "_fts" {
        bail!(CannotCreateIndex, "Index key contains an illegal field name: '{name}'");
    }
    let kind = match value {
        Value::String("hashed") if is_wildcard(name) => {
            bail!(
                CannotCreateIndex,
                "The key pattern value for an '$**' index must be a non-zero number, not a string."
            );
        }
        Value::String("hashed") => KeyKind::Hashed,
        Value::String("2dsphere" | "2d") if is_wildcard(name) => {
            bail!(
                CannotCreateIndex,
                "The key pattern value for an '$**' index must be a non-zero number, not a string."
            );
        }
        Value::String("2dsphere") => KeyKind::Sphere,
        Value::String("2d") => KeyKind::Flat,
        Value::String("wildcard") if !is_wildcard(name) => {
            bail!(7246202, "The key '{name}' of a wildcard index must be '$**' or end in '.$**'");
        }
        Value::String("") => bail!(CannotCreateIndex, "Empty string index value not allowed"),
        Value::String(plugin) => bail!(CannotCreateIndex, "Unknown index plugin '{plugin}'"),
        _ => match value.as_number() {
            Some(number) if number.is_nan() => {
                bail!(CannotCreateIndex, "Values in the index key pattern cannot be NaN.");
            }
            Some(number) if number.is_zero() => {
                bail!(CannotCreateIndex, "Values in the index key pattern cannot be 0.");
            }
            Some(number) if number.to_f64() > 0.0 => KeyKind::Ascending,
            Some(_) => KeyKind::Descending,
            None => {
                bail!(
                    CannotCreateIndex,
                    "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, \
                     and strings are allowed.",
                    value.kind().alias()
                );
            }
        },
    };
    Ok(KeyPart { path: Path::new(FieldName::new(name)?), kind })
}

/// Checks a path of a key pattern. Names with a dollar are invalid, except those of a DBRef.
fn check_path(name: &str) -> Result<()> {
    let name = match name {
        "$**" => return Ok(()),
        _ => name.strip_suffix(".$**").unwrap_or(name),
    };
    if name.is_empty() || name.split('.').any(str::is_empty) {
        bail!(CannotCreateIndex, "Index keys cannot contain an empty field.");
    }
    let dollar = name.split('.').any(|part| part.starts_with('$') && !matches!(part, "$id" | "$db" | "$ref"));
    if dollar { Err(illegal_name()) } else { Ok(()) }
}

fn illegal_name() -> base::Error {
    err!(CannotCreateIndex, "Index key contains an illegal field name: field name starts with '$'.")
}

/// Parses and checks the filter of a partial index.
fn partial(filter: DocumentBuf, collation: &Collation, context: &Context) -> Result<Partial> {
    // The collation of the index decides its contents, not that of a writer. The contents do not depend on the version
    // either, because another version may open the same files.
    let context = &context.with_collation(collation.clone()).with_version(CompatibleWith::default());
    let matcher = Arc::new(Matcher::parse(filter.view(), context)?);
    check_partial(filter.view())?;
    Ok(Partial { filter, matcher })
}

/// Checks a partial filter. Only comparisons, `$exists: true`, `$type`, `$in`, geospatial conditions, `$and` and `$or`
/// are allowed.
fn check_partial(filter: Document<'_>) -> Result<()> {
    for element in filter {
        match element.name() {
            "$and" | "$or" => {
                for clause in element.value().as_array().into_iter().flat_map(|clauses| clauses.iter()) {
                    check_partial(clause.as_document().unwrap_or(Document::EMPTY))?;
                }
            }
            "$expr" => bail!(QueryFeatureNotAllowed, "$expr is not allowed in this context"),
            "$comment" => {}
            name if name.starts_with('$') => return Err(unsupported_partial(name)),
            _ => match element.value() {
                Value::Regex { .. } => return Err(unsupported_partial(element.name())),
                Value::Document(inner) => check_partial_operators(inner)?,
                _ => {}
            },
        }
    }
    Ok(())
}

/// Returns the depth of a filter's tree. Several conditions are one level below their conjunction, as in MongoDB.
fn depth(filter: Document<'_>) -> usize {
    let (mut conditions, mut deepest) = (0, 1);
    for element in filter {
        match (element.name(), element.value()) {
            ("$and" | "$or", Value::Array(clauses)) => {
                conditions += 1;
                let clauses = clauses.iter().filter_map(|clause| clause.as_document());
                deepest = clauses.map(|clause| 1 + depth(clause)).fold(deepest, usize::max);
            }
            (_, Value::Document(operators))
                if operators.first().is_some_and(|first| first.name().starts_with('$')) =>
            {
                conditions += operators.iter().count();
            }
            _ => conditions += 1,
        }
    }
    deepest + usize::from(conditions > 1)
}

fn check_partial_operators(operators: Document<'_>) -> Result<()> {
    for element in operators {
        match element.name() {
            "$eq" | "$gt" | "$gte" | "$lt" | "$lte" | "$in" | "$type" => {}
            // A conjunction of equalities.
            "$all" if is_plain(element.value()) => {}
            "$geoWithin" | "$within" | "$geoIntersects" => {}
            "$exists" if element.value().is_truthy() => {}
            // An equality with a DBRef.
            "$ref" | "$id" | "$db" => return Ok(()),
            name if name.starts_with('$') => return Err(unsupported_partial(name)),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Returns true if the operand of `$all` has values only, neither patterns nor `$elemMatch`.
fn is_plain(operand: Value<'_>) -> bool {
    let is_operator = |value: Value<'_>| {
        value.as_document().and_then(|inner| inner.first()).is_some_and(|field| field.name().starts_with('$'))
    };
    let is_value = |value: Value<'_>| !matches!(value, Value::Regex { .. }) && !is_operator(value);
    operand.as_array().is_some_and(|values| values.iter().all(is_value))
}

fn unsupported_partial(message: &str) -> base::Error {
    err!(CannotCreateIndex, "Expression not supported in partial index: {message}")
}

fn text<'a>(name: &str, value: Value<'a>) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong_type(name, "a string", value))
}

fn document<'a>(name: &str, value: Value<'a>) -> Result<Document<'a>> {
    value.as_document().ok_or_else(|| wrong_type(name, "an object", value))
}

/// Returns true if a specification has a text key.
fn is_text(specification: Document<'_>) -> bool {
    let key = specification.get("key").and_then(|key| key.as_document());
    key.is_some_and(|key| key.iter().any(|part| part.value().as_str() == Some("text")))
}

/// Checks the type of an option of text indexes. Errors: TypeMismatch.
fn check_text_option(name: &str, value: Value<'_>) -> Result<()> {
    match name {
        "weights" if !matches!(value, Value::Document(_) | Value::Array(_) | Value::String(_)) => {
            Err(wrong_type(name, "an object", value))
        }
        "default_language" | "language_override" => text(name, value).map(drop),
        "textIndexVersion" if value.as_number().is_none() => Err(wrong_type(name, "a number", value)),
        _ => Ok(()),
    }
}

fn flag(name: &str, value: Value<'_>) -> Result<bool> {
    match value {
        Value::Boolean(_) => Ok(value.is_truthy()),
        _ if value.as_number().is_some() => Ok(value.is_truthy()),
        // MongoDB's text lacks the quote after the name.
        _ => bail!(
            TypeMismatch,
            "The field '{name} has value {name}: {value}, which is not convertible to bool"
        ),
    }
}

fn wrong_type(name: &str, expected: &str, value: Value<'_>) -> base::Error {
    err!(TypeMismatch, "The field '{name}' must be {expected}, but got {}", value.kind().alias())
}

/// Parses `expireAfterSeconds`.
fn expiry(value: Value<'_>) -> Result<f64> {
    let number = value.as_number().ok_or_else(|| {
        err!(
            CannotCreateIndex,
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'",
            value.kind().alias()
        )
    })?;
    let seconds = number.to_f64();
    if seconds < 0.0 {
        bail!(CannotCreateIndex, "TTL index 'expireAfterSeconds' option cannot be less than 0");
    }
    if seconds > f64::from(i32::MAX) {
        bail!(
            CannotCreateIndex,
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number"
        );
    }
    if seconds.is_nan() {
        bail!(CannotCreateIndex, "TTL index 'expireAfterSeconds' option cannot be NaN");
    }
    Ok(seconds.trunc())
}

/// Checks the version of an index. MongoDB has 1 and 2, which are alike here.
fn version(value: Value<'_>) -> Result<()> {
    let number = value.as_number().ok_or_else(|| wrong_type("v", "a number", value))?;
    match number.to_i64_exact().and_then(|version| i32::try_from(version).ok()) {
        Some(1 | 2) => Ok(()),
        Some(other) => {
            Err(err!(CannotCreateIndex, "Invalid index specification; cannot create an index with v={other}"))
        }
        None => {
            Err(err!(BadValue, "Index version must be representable as a 32-bit integer, but got {value}"))
        }
    }
}

//! Parser of schemas: the table of keywords, simple keywords, and keywords that contain schemas (`properties`, `items`,
//! `allOf` and so on).

use super::{Additional, Dependency, Items, Keywords, evaluate};
use crate::matcher::array::TypeSet;
use crate::matcher::integer;
use crate::regex::Regex;
use base::bson::{Document, MAX_DEPTH, Number, Type, Value};
use base::{Result, bail, err};
use foldhash::HashSet;

/// A keyword being parsed: its name, its value and its depth in the schema.
pub(super) struct Argument<'a> {
    pub(super) name: &'a str,
    pub(super) value: Value<'a>,
    pub(super) depth: usize,
}

impl<'a> Argument<'a> {
    /// Returns the error for a value of the wrong type; `must` describes the required type.
    pub(super) fn mismatch(&self, must: &str) -> base::Error {
        err!(TypeMismatch, "$jsonSchema keyword '{}' {must}", self.name)
    }

    /// Returns the error for a value that is invalid for another reason.
    pub(super) fn unfit(&self, why: &str) -> base::Error {
        err!(FailedToParse, "$jsonSchema keyword '{}' {why}", self.name)
    }

    /// Returns the value's strings: at least one, without duplicates.
    pub(super) fn strings(&self) -> Result<Vec<&'a str>> {
        let kind = self.value.kind().alias();
        let array = self.value.as_array().ok_or_else(|| {
            self.mismatch(&format!("must be an array, but found an element of type {kind}"))
        })?;
        let (mut found, mut known) = (Vec::new(), HashSet::default());
        for value in array.iter() {
            let kind = value.kind().alias();
            let text = value.as_str().ok_or_else(|| {
                self.mismatch(&format!("must be an array of strings, but found an element of type {kind}"))
            })?;
            if !known.insert(text) {
                return Err(self.unfit("array cannot contain duplicate values"));
            }
            found.push(text);
        }
        if found.is_empty() {
            return Err(self.unfit("cannot be an empty array"));
        }
        Ok(found)
    }
}

/// Parses the value of a keyword into the schema.
type Parse = fn(&mut Keywords, &Argument<'_>) -> Result<()>;

/// Every keyword, sorted by name.
const KEYWORDS: &[(&str, Parse)] = &[
    ("$ref", unsupported),
    ("$schema", unsupported),
    ("additionalItems", additional_items),
    ("additionalProperties", additional_properties),
    ("allOf", |k, a| set(&mut k.all_of, list(a))),
    ("anyOf", |k, a| set(&mut k.any_of, list(a))),
    ("bsonType", bson_type),
    ("default", unsupported),
    ("definitions", unsupported),
    ("dependencies", dependencies),
    ("description", text_only),
    ("encrypt", encryption),
    ("encryptMetadata", encryption),
    ("enum", enumeration),
    ("exclusiveMaximum", |k, a| set(&mut k.numbers.exclusive_maximum, flag(a))),
    ("exclusiveMinimum", |k, a| set(&mut k.numbers.exclusive_minimum, flag(a))),
    ("format", unsupported),
    ("id", unsupported),
    ("items", items),
    ("maxItems", |k, a| set(&mut k.arrays.count_max, count(a).map(Some))),
    ("maxLength", |k, a| set(&mut k.strings.length_max, count(a).map(Some))),
    ("maxProperties", |k, a| set(&mut k.objects.count_max, count(a).map(Some))),
    ("maximum", |k, a| set(&mut k.numbers.maximum, bound(a).map(Some))),
    ("minItems", |k, a| set(&mut k.arrays.count_min, count(a).map(Some))),
    ("minLength", |k, a| set(&mut k.strings.length_min, count(a).map(Some))),
    ("minProperties", |k, a| set(&mut k.objects.count_min, count(a).map(Some))),
    ("minimum", |k, a| set(&mut k.numbers.minimum, bound(a).map(Some))),
    ("multipleOf", multiple_of),
    ("not", not),
    ("oneOf", |k, a| set(&mut k.one_of, list(a))),
    ("pattern", pattern),
    ("patternProperties", pattern_properties),
    ("properties", properties),
    ("required", |k, a| set(&mut k.objects.required, a.strings().map(owned))),
    ("title", text_only),
    ("type", json_type),
    ("uniqueItems", |k, a| set(&mut k.arrays.unique, flag(a))),
];

fn set<T>(place: &mut T, value: Result<T>) -> Result<()> {
    *place = value?;
    Ok(())
}

/// Copies these texts.
pub(super) fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(String::from).collect()
}

/// Parses a schema at a depth of `depth` levels within another.
pub(super) fn parse(schema: Document<'_>, depth: usize) -> Result<Keywords> {
    if depth > MAX_DEPTH {
        bail!(Overflow, "$jsonSchema exceeded maximum nested depth: {MAX_DEPTH}");
    }
    let mut keywords = Keywords::default();
    for element in schema {
        let name = element.name();
        let row =
            KEYWORDS.binary_search_by(|(known, _)| (*known).cmp(name)).ok().and_then(|at| KEYWORDS.get(at));
        let (_, parse) = row.ok_or_else(|| err!(FailedToParse, "Unknown $jsonSchema keyword: {name}"))?;
        parse(&mut keywords, &Argument { name, value: element.value(), depth })?;
    }
    check_together(schema)?;
    Ok(keywords)
}

/// Checks constraints between keywords.
fn check_together(schema: Document<'_>) -> Result<()> {
    let has = |name: &str| schema.find(name).is_some();
    if has("type") && has("bsonType") {
        bail!(FailedToParse, "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'");
    }
    for (bound, exclusive) in [("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")] {
        if has(exclusive) && !has(bound) {
            let why = format!("must be a present if {exclusive} is present");
            bail!(FailedToParse, "$jsonSchema keyword '{bound}' {why}");
        }
    }
    let mut names: Vec<_> = schema.iter().map(|element| element.name()).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        if let [first, second] = pair
            && first == second
        {
            bail!(FailedToParse, "Duplicate $jsonSchema keyword: {first}");
        }
    }
    Ok(())
}

fn unsupported(_: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    Err(argument.unfit("is not currently supported"))
}

fn encryption(_: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    Err(err!(NotImplemented, "$jsonSchema keyword '{}' is not supported: no encryption", argument.name))
}

fn text_only(_: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    match argument.value {
        Value::String(_) => Ok(()),
        _ => Err(argument.mismatch("must be of type string")),
    }
}

fn flag(argument: &Argument<'_>) -> Result<bool> {
    argument.value.as_bool().ok_or_else(|| argument.mismatch("must be a boolean"))
}

fn count(argument: &Argument<'_>) -> Result<u64> {
    Ok(integer::parse_non_negative(argument.name, argument.value)?.unsigned_abs())
}

fn bound(argument: &Argument<'_>) -> Result<Number> {
    argument.value.as_number().ok_or_else(|| argument.mismatch("must be a number"))
}

/// `multipleOf`: a positive, finite number.
fn multiple_of(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    let number = bound(argument)?;
    if number.is_nan() || number.to_f64() <= 0.0 {
        return Err(argument.unfit("must have a positive value"));
    }
    if number.to_f64().is_infinite() {
        bail!(BadValue, "divisor cannot be infinite");
    }
    keywords.numbers.multiple_of = Some(number);
    Ok(())
}

fn pattern(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    let text = argument.value.as_str().ok_or_else(|| argument.mismatch("must be a string"))?;
    keywords.strings.pattern = Some(Regex::new(text, "")?);
    Ok(())
}

/// `enum`: a non-empty array of distinct values. Values that differ only in the order of fields are duplicates.
fn enumeration(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    let kind = argument.value.kind().alias();
    let array = argument.value.as_array().ok_or_else(|| {
        argument.mismatch(&format!("must be an array, but found an element of type {kind}"))
    })?;
    let mut values: Vec<_> = array.iter().map(evaluate::normalise).collect();
    let given = values.len();
    evaluate::sort_unique(&mut values);
    if values.is_empty() {
        return Err(argument.unfit("cannot be an empty array"));
    }
    if values.len() < given {
        return Err(argument.unfit("array cannot contain duplicate values"));
    }
    keywords.allowed = Some(values);
    Ok(())
}

fn bson_type(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    keywords.types = Some(types(argument, |alias| match (alias, Type::from_alias(alias)) {
        ("number", _) => Ok(None),
        (_, Some(kind)) => Ok(Some(kind)),
        ("integer", _) => Err(err!(FailedToParse, "$jsonSchema type 'integer' is not currently supported.")),
        _ => Err(err!(BadValue, "Unknown type name alias: {alias}")),
    })?);
    Ok(())
}

/// `type`: JSON's type names, without `integer`, as in MongoDB.
fn json_type(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    keywords.types = Some(types(argument, |alias| match alias {
        "number" => Ok(None),
        "array" => Ok(Some(Type::Array)),
        "boolean" => Ok(Some(Type::Boolean)),
        "null" => Ok(Some(Type::Null)),
        "object" => Ok(Some(Type::Document)),
        "string" => Ok(Some(Type::String)),
        "integer" => Err(err!(FailedToParse, "$jsonSchema type 'integer' is not currently supported.")),
        _ => Err(err!(BadValue, "Unknown type name alias: {alias}")),
    })?);
    Ok(())
}

/// Parses one alias or an array of them; `read` returns `None` for `number`.
fn types(argument: &Argument<'_>, read: impl Fn(&str) -> Result<Option<Type>>) -> Result<TypeSet> {
    let mut aliases = Vec::new();
    match argument.value {
        Value::String(alias) => aliases.push(alias),
        Value::Array(array) => {
            for value in array.iter() {
                let elements = "array elements must be strings";
                aliases.push(value.as_str().ok_or_else(|| argument.mismatch(elements))?);
            }
        }
        _ => return Err(argument.mismatch("must be either a string or an array of strings")),
    }
    let mut set = TypeSet::default();
    for alias in &aliases {
        let duplicate = match read(alias)? {
            None => std::mem::replace(&mut set.all_numbers, true),
            Some(kind) => {
                let known = set.types.contains(&kind);
                set.types.push(kind);
                known
            }
        };
        if duplicate {
            return Err(argument.unfit(&format!("has duplicate value: {alias}")));
        }
    }
    if aliases.is_empty() {
        return Err(argument.unfit("must name at least one type"));
    }
    Ok(set)
}

impl<'a> Argument<'a> {
    fn object(&self) -> Result<Document<'a>> {
        self.value.as_document().ok_or_else(|| self.mismatch("must be an object"))
    }

    fn deeper(&self, schema: Document<'_>) -> Result<Keywords> {
        parse(schema, self.depth + 1)
    }
}

/// `allOf anyOf oneOf`: one or more schemas.
pub(super) fn list(argument: &Argument<'_>) -> Result<Vec<Keywords>> {
    let array = argument.value.as_array().ok_or_else(|| argument.mismatch("must be an array"))?;
    if array.is_empty() {
        bail!(BadValue, "$jsonSchema keyword '{}' must be a non-empty array", argument.name);
    }
    let schemas = array.iter().map(|value| {
        let kind = value.kind().alias();
        let must = || format!("must be an array of objects, but found an element of type {kind}");
        argument.deeper(value.as_document().ok_or_else(|| argument.mismatch(&must()))?)
    });
    schemas.collect()
}

pub(super) fn not(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    let kind = argument.value.kind().alias();
    let must = || format!("must be an object, but found an element of type {kind}");
    let schema = argument.value.as_document().ok_or_else(|| argument.mismatch(&must()))?;
    keywords.not = Some(Box::new(argument.deeper(schema)?));
    Ok(())
}

/// `items`: one schema for all elements, or a schema for each position.
pub(super) fn items(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    keywords.arrays.items = Some(match argument.value {
        Value::Document(schema) => Items::Each(Box::new(argument.deeper(schema)?)),
        Value::Array(array) => {
            let schemas = array.iter().map(|value| {
                let kind = value.kind().alias();
                let must =
                    || format!("requires that each element of the array is an object, but found a {kind}");
                argument.deeper(value.as_document().ok_or_else(|| argument.mismatch(&must()))?)
            });
            Items::List(schemas.collect::<Result<_>>()?)
        }
        other => {
            let must = format!("must be an array or an object, not {}", other.kind().alias());
            return Err(argument.mismatch(&must));
        }
    });
    Ok(())
}

pub(super) fn additional_items(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    let kind = argument.value.kind().alias();
    let must = format!("must be either an object or a boolean, but got a {kind}");
    keywords.arrays.additional = additional(argument, &must)?;
    Ok(())
}

pub(super) fn additional_properties(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    keywords.objects.additional = additional(argument, "must be an object or a boolean")?;
    Ok(())
}

fn additional(argument: &Argument<'_>, must: &str) -> Result<Additional> {
    match argument.value {
        Value::Boolean(true) => Ok(Additional::Allowed),
        Value::Boolean(false) => Ok(Additional::Refused),
        Value::Document(schema) => Ok(Additional::Schema(Box::new(argument.deeper(schema)?))),
        _ => Err(argument.mismatch(must)),
    }
}

/// `properties`: schemas of fields by name.
pub(super) fn properties(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    for element in argument.object()? {
        let name = element.name();
        let schema = element.value().as_document().ok_or_else(|| {
            err!(TypeMismatch, "Nested schema for $jsonSchema property '{name}' must be an object")
        })?;
        keywords.objects.properties.push((name.to_string(), argument.deeper(schema)?));
    }
    keywords.objects.properties.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(())
}

/// `patternProperties`: schemas of fields whose names match a pattern.
pub(super) fn pattern_properties(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    for element in argument.object()? {
        let name = element.name();
        let schema = element
            .value()
            .as_document()
            .ok_or_else(|| argument.mismatch(&format!("has property '{name}' which is not an object")))?;
        let pattern = Regex::new(name, "").map_err(|error| {
            err!(BadValue, "Invalid regular expression in $jsonSchema patternProperties: {}", error.message())
        })?;
        keywords.objects.pattern_properties.push((pattern, argument.deeper(schema)?));
    }
    Ok(())
}

/// `dependencies`: names of required fields, or a schema for the whole document.
pub(super) fn dependencies(keywords: &mut Keywords, argument: &Argument<'_>) -> Result<()> {
    for element in argument.object()? {
        let name = element.name();
        let dependency = match element.value() {
            Value::Document(schema) => Dependency::Schema(Box::new(argument.deeper(schema)?)),
            value @ Value::Array(_) => {
                let inner = Argument { name: argument.name, value, depth: argument.depth };
                Dependency::Fields(owned(inner.strings()?))
            }
            other => {
                let kind = other.kind().alias();
                let must =
                    format!("property '{name}' must be either an object or an array, but got a {kind}");
                return Err(argument.mismatch(&must));
            }
        };
        keywords.objects.dependencies.push((name.to_string(), dependency));
    }
    Ok(())
}

#[cfg(test)]
mod table {
    #[test]
    fn is_sorted() {
        assert!(super::KEYWORDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}

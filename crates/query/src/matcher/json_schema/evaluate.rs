//! Evaluates a schema against a value.
//!
//! `enum` and `uniqueItems` ignore the order of fields: every document in a value is rewritten with its fields sorted
//! by name. The normal comparison then applies.

use super::super::siblings::{MANY, fields_by_name};
use super::{Additional, Arrays, Dependency, Items, Keywords, Numbers, Objects, Strings};
use crate::Interrupt;
use base::bson::{Array, Builder, Document, FieldName, Number, Value, ValueBuf, compare, equal};
use base::{Result, err};
use std::cmp::Ordering;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Maximum time that a pattern may spend on one string.
const PATTERN_TIMEOUT: Duration = Duration::from_millis(500);

/// Deadline of a pattern. Schemas have no operation that could be interrupted. A pattern beyond the deadline fails like
/// a pattern with too many steps.
#[derive(Default)]
struct PatternDeadline(OnceLock<Instant>);

impl Interrupt for PatternDeadline {
    fn check(&self) -> Result<()> {
        if self.0.get_or_init(Instant::now).elapsed() < PATTERN_TIMEOUT {
            return Ok(());
        }
        Err(err!(51156, "Error occurred while executing the regular expression. Result code: -47"))
    }
}

impl Keywords {
    /// Whether the value satisfies every keyword. Recursion is bounded by the depth of the schema, which the parser
    /// limits.
    pub(super) fn allows(&self, value: Value<'_>) -> Result<bool> {
        Ok(self.allows_type(value)
            && self.allows_constant(value)
            && match value {
                Value::String(text) => self.strings.allow(text)?,
                Value::Array(array) => self.arrays.allow(array)?,
                Value::Document(document) => self.objects.allow(document)?,
                other => other.as_number().is_none_or(|number| self.numbers.allow(number)),
            }
            && self.allows_combined(value)?)
    }

    fn allows_type(&self, value: Value<'_>) -> bool {
        self.types.as_ref().is_none_or(|types| types.contains(value.kind()))
    }

    fn allows_constant(&self, value: Value<'_>) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        let value = normalise(value);
        allowed.binary_search_by(|constant| compare(constant.view(), value.view())).is_ok()
    }

    /// Evaluates `allOf`, `anyOf`, `oneOf` and `not`.
    fn allows_combined(&self, value: Value<'_>) -> Result<bool> {
        for schema in &self.all_of {
            if !schema.allows(value)? {
                return Ok(false);
            }
        }
        if !self.any_of.is_empty() && count_allowing(&self.any_of, value, 1)? == 0 {
            return Ok(false);
        }
        if !self.one_of.is_empty() && count_allowing(&self.one_of, value, 2)? != 1 {
            return Ok(false);
        }
        match &self.not {
            Some(schema) => Ok(!schema.allows(value)?),
            None => Ok(true),
        }
    }
}

/// Counts the schemas that allow the value, up to `enough`.
fn count_allowing(schemas: &[Keywords], value: Value<'_>, enough: usize) -> Result<usize> {
    let mut count = 0;
    for schema in schemas {
        count += usize::from(schema.allows(value)?);
        if count >= enough {
            break;
        }
    }
    Ok(count)
}

impl Numbers {
    /// Whether a number is within the bounds and a multiple of the divisor. NaN satisfies only an inclusive bound of
    /// NaN.
    fn allow(&self, number: Number) -> bool {
        let within = |bound: Option<Number>, exclusive: bool, side: Ordering| {
            bound.is_none_or(|bound| match (number.is_nan(), bound.is_nan()) {
                (false, false) => {
                    let order = number.compare(bound);
                    order == side || (order == Ordering::Equal && !exclusive)
                }
                (one, other) => one && other && !exclusive,
            })
        };
        within(self.minimum, self.exclusive_minimum, Ordering::Greater)
            && within(self.maximum, self.exclusive_maximum, Ordering::Less)
            && self.multiple_of.is_none_or(|divisor| is_multiple(number, divisor))
    }
}

/// Whether a number is an integer multiple of the divisor. The decimal computation makes 0.3 a multiple of 0.1.
fn is_multiple(number: Number, divisor: Number) -> bool {
    match (number.is_integer(), divisor.is_integer()) {
        (true, true) => {
            number.to_i64_clamped().checked_rem(divisor.to_i64_clamped()).is_none_or(|rest| rest == 0)
        }
        _ => number.to_decimal().remainder(divisor.to_decimal()).is_zero(),
    }
}

impl Strings {
    /// Whether a string has an allowed length and matches the pattern.
    fn allow(&self, text: &str) -> Result<bool> {
        if self.length_min.is_some() || self.length_max.is_some() {
            let length = text.chars().count() as u64;
            if self.length_min.is_some_and(|min| length < min)
                || self.length_max.is_some_and(|max| length > max)
            {
                return Ok(false);
            }
        }
        self.pattern.as_ref().map_or(Ok(true), |pattern| pattern.is_match(text, &PatternDeadline::default()))
    }
}

impl Arrays {
    /// Whether an array has an allowed length, distinct elements if required, and allowed elements.
    fn allow(&self, array: Array<'_>) -> Result<bool> {
        if !count_within(array.as_document(), self.count_min, self.count_max) {
            return Ok(false);
        }
        if self.unique && !all_different(array) {
            return Ok(false);
        }
        for (position, value) in array.iter().enumerate() {
            if !self.allow_element(position, value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Evaluates `items` and `additionalItems` for one element.
    fn allow_element(&self, position: usize, value: Value<'_>) -> Result<bool> {
        match &self.items {
            None => Ok(true),
            Some(Items::Each(schema)) => schema.allows(value),
            Some(Items::List(schemas)) => match schemas.get(position) {
                Some(schema) => schema.allows(value),
                None => self.additional.allows(value),
            },
        }
    }
}

fn all_different(array: Array<'_>) -> bool {
    let mut values: Vec<_> = array.iter().map(normalise).collect();
    let count = values.len();
    sort_unique(&mut values);
    values.len() == count
}

/// Whether the number of elements is within the limits.
fn count_within(document: Document<'_>, min: Option<u64>, max: Option<u64>) -> bool {
    if min.is_none() && max.is_none() {
        return true;
    }
    let count = document.iter().count() as u64;
    min.is_none_or(|min| count >= min) && max.is_none_or(|max| count <= max)
}

impl Additional {
    fn allows(&self, value: Value<'_>) -> Result<bool> {
        match self {
            Additional::Allowed => Ok(true),
            Additional::Refused => Ok(false),
            Additional::Schema(schema) => schema.allows(value),
        }
    }
}

impl Objects {
    /// Whether a document has the required fields and allowed values.
    fn allow(&self, document: Document<'_>) -> Result<bool> {
        let index = (self.required.len() + self.properties.len() > MANY).then(|| fields_by_name(document));
        let find = |name: &str| match &index {
            Some(index) => index.get(name.as_bytes()).copied(),
            None => document.find(name),
        };
        let has = |name: &String| find(name).is_some();
        if !count_within(document, self.count_min, self.count_max) || !self.required.iter().all(has) {
            return Ok(false);
        }
        for (name, schema) in &self.properties {
            if let Some(element) = find(name)
                && !schema.allows(element.value())?
            {
                return Ok(false);
            }
        }
        Ok(self.allow_fields(document)? && self.allow_dependencies(document)?)
    }

    /// Evaluates `patternProperties` and `additionalProperties`, which inspect each field.
    fn allow_fields(&self, document: Document<'_>) -> Result<bool> {
        if self.pattern_properties.is_empty() && matches!(self.additional, Additional::Allowed) {
            return Ok(true);
        }
        for element in document {
            let mut named =
                self.properties.binary_search_by(|(name, _)| name.as_str().cmp(element.name())).is_ok();
            for (pattern, schema) in &self.pattern_properties {
                if pattern.is_match(element.name(), &PatternDeadline::default())? {
                    named = true;
                    if !schema.allows(element.value())? {
                        return Ok(false);
                    }
                }
            }
            if !named && !self.additional.allows(element.value())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Evaluates `dependencies` of the fields that are present.
    fn allow_dependencies(&self, document: Document<'_>) -> Result<bool> {
        for (name, dependency) in &self.dependencies {
            if document.find(name).is_none() {
                continue;
            }
            let satisfied = match dependency {
                Dependency::Fields(names) => names.iter().all(|name| document.find(name).is_some()),
                Dependency::Schema(schema) => schema.allows(Value::Document(document))?,
            };
            if !satisfied {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the value with the fields of every nested document sorted by name.
pub(super) fn normalise(value: Value<'_>) -> ValueBuf {
    match value {
        Value::Document(_) | Value::Array(_) => {
            let mut builder = Builder::new();
            append(c"".into(), value, &mut builder);
            let wrapped = builder.finish();
            wrapped.view().get("").map_or_else(ValueBuf::null, |value| value.to_owned())
        }
        scalar => scalar.to_owned(),
    }
}

/// Sorts normalised values and removes duplicates.
pub(super) fn sort_unique(values: &mut Vec<ValueBuf>) {
    values.sort_by(|a, b| compare(a.view(), b.view()));
    values.dedup_by(|a, b| equal(a.view(), b.view()));
}

/// Appends a normalised copy. Recursion is bounded by the depth of the value, which validation limits.
fn append(name: FieldName<'_>, value: Value<'_>, out: &mut Builder) {
    match value {
        Value::Document(document) => {
            out.begin_document(name);
            append_sorted(document, out);
            out.end();
        }
        Value::Array(array) => {
            out.begin_array(name);
            array.elements().for_each(|element| append(element.field_name(), element.value(), out));
            out.end();
        }
        scalar => {
            out.append(name, scalar);
        }
    }
}

fn append_sorted(document: Document<'_>, out: &mut Builder) {
    let mut elements: Vec<_> = document.iter().collect();
    elements.sort_by_key(|element| element.name_bytes());
    elements.iter().for_each(|element| append(element.field_name(), element.value(), out));
}

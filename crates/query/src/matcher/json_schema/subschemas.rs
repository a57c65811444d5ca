//! Keywords that contain schemas: `properties`, `items`, `allOf` and so on.

use super::keywords::{Additional, Dependency, Items, Keywords};
use super::parse::{Argument, owned, parse};
use crate::regex::Regex;
use base::bson::{Document, Value};
use base::{Result, bail, err};

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

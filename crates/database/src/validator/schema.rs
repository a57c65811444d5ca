//! Why a document failed a JSON schema, rule by rule.
//!
//! A rule is tried by matching a schema that has nothing but this rule, at the same place.

use super::details::{Refused, append_considered};
use base::Result;
use base::bson::{Builder, Document, DocumentBuf, Element, FieldName, Value};

/// Writes why the schema of a `$jsonSchema` fails into the open document.
pub(super) fn describe(refused: &Refused<'_>, out: &mut Builder, schema: Document<'_>) -> Result<()> {
    out.append(c"operatorName", "$jsonSchema");
    annotations(out, schema);
    out.begin_array(c"schemaRulesNotSatisfied");
    let mut place = Place { refused, path: Vec::new() };
    place.rules(out, schema)?;
    out.end();
    Ok(())
}

/// Where in the document a schema applies.
struct Place<'p, 'a> {
    refused: &'p Refused<'a>,
    path: Vec<&'p str>,
}

impl<'p> Place<'p, '_> {
    /// Appends every rule of the schema that fails to the open array.
    fn rules(&mut self, out: &mut Builder, schema: Document<'p>) -> Result<()> {
        for rule in schema {
            let is_rule =
                !matches!(rule.name(), "title" | "description" | "exclusiveMinimum" | "exclusiveMaximum");
            if is_rule && self.fails(&alone(&rule, schema))? {
                out.push_document();
                self.rule(out, &rule)?;
                out.end();
            }
        }
        Ok(())
    }

    fn rule(&mut self, out: &mut Builder, rule: &Element<'p>) -> Result<()> {
        let name = rule.name();
        out.append(c"operatorName", name);
        match (name, rule.value()) {
            ("properties", Value::Document(properties)) => return self.properties(out, properties),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                out.begin_array(c"schemasNotSatisfied");
                for (index, schema) in schemas.iter().enumerate() {
                    let Value::Document(schema) = schema else { continue };
                    if self.fails(&schema.to_owned())? {
                        out.push_document().append(c"index", index as i32).begin_array(c"details");
                        self.rules(out, schema)?;
                        out.end().end();
                    }
                }
                out.end();
                return Ok(());
            }
            _ => {}
        }
        out.begin_document(c"specifiedAs").append(FieldName::new(name)?, rule.value()).end();
        match (name, rule.value(), self.value()) {
            ("required", Value::Array(names), Some(Value::Document(document))) => {
                let mut missing: Vec<&str> = names.iter().filter_map(|name| name.as_str()).collect();
                missing.retain(|name| document.find(name).is_none());
                missing.sort_unstable();
                out.begin_array(c"missingProperties");
                for name in missing {
                    out.push(name);
                }
                out.end();
            }
            (_, _, Some(value)) => {
                if let Some(reason) = reason(name) {
                    out.append(c"reason", reason);
                }
                if !self.path.is_empty() {
                    append_considered(out, name, value);
                }
            }
            (_, _, None) => {}
        }
        Ok(())
    }

    fn properties(&mut self, out: &mut Builder, properties: Document<'p>) -> Result<()> {
        out.begin_array(c"propertiesNotSatisfied");
        for property in properties {
            let Value::Document(schema) = property.value() else { continue };
            self.path.push(property.name());
            if self.fails(&schema.to_owned())? {
                out.push_document().append(c"propertyName", property.name());
                annotations(out, schema);
                out.begin_array(c"details");
                self.rules(out, schema)?;
                out.end().end();
            }
            self.path.pop();
        }
        out.end();
        Ok(())
    }

    /// Whether a schema fails at this place.
    fn fails(&self, schema: &DocumentBuf) -> Result<bool> {
        let mut out = Builder::new();
        out.begin_document(c"$jsonSchema");
        for name in &self.path {
            out.begin_document(c"properties").begin_document(FieldName::new(name)?);
        }
        out.append_all(schema.view());
        for _ in &self.path {
            out.end().end();
        }
        out.end();
        Ok(!self.refused.matches(&out.finish())?)
    }

    /// The value at this place.
    fn value(&self) -> Option<Value<'p>>
    where
        Self: 'p,
    {
        let mut value = Value::Document(self.refused.document);
        for name in &self.path {
            value = value.as_document()?.get(name)?;
        }
        Some(value)
    }
}

fn annotations(out: &mut Builder, schema: Document<'_>) {
    for text in ["title", "description"].iter().filter_map(|name| schema.find(name)) {
        out.append_element(&text);
    }
}

/// A schema with nothing but this rule, and what the rule's meaning depends on.
fn alone(rule: &Element<'_>, schema: Document<'_>) -> DocumentBuf {
    let mut out = Builder::new();
    out.append_element(rule);
    let companions: &[&str] = match rule.name() {
        "minimum" => &["exclusiveMinimum"],
        "maximum" => &["exclusiveMaximum"],
        "additionalItems" => &["items"],
        "additionalProperties" => &["properties", "patternProperties"],
        _ => &[],
    };
    for companion in companions {
        match schema.get(companion) {
            // What they say of the properties that they name doesn't matter here.
            Some(Value::Document(named)) if *companion != "items" => {
                out.begin_document(FieldName::literal(companion));
                for property in named {
                    out.begin_document(property.field_name()).end();
                }
                out.end();
            }
            Some(value) => _ = out.append(FieldName::literal(companion), value),
            None => {}
        }
    }
    out.finish()
}

fn reason(rule: &str) -> Option<&'static str> {
    Some(match rule {
        "minimum" | "maximum" => "comparison failed",
        "bsonType" | "type" => "type did not match",
        "enum" => "value was not found in enum",
        "minLength" | "maxLength" => "specified string length was not satisfied",
        "pattern" => "regular expression did not match",
        "multipleOf" => "considered value is not a multiple of the specified value",
        "minItems" | "maxItems" => "array did not match specified length",
        "uniqueItems" => "found a duplicate item",
        "minProperties" | "maxProperties" => "specified number of properties was not satisfied",
        _ => return None,
    })
}

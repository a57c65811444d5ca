//! Reasons for a failed `$jsonSchema`: the list of its rules that failed, in MongoDB's shape.
//!
//! A rule is tested by matching a schema with this rule alone on the value. The text of a keyword is in `rule_reason`.
//! A keyword with nested schemas has its own case in `SchemaTarget::rule`.

use super::details::{Refused, append_considered};
use base::Result;
use base::bson::{Array, Builder, Document, DocumentBuf, Element, FieldName, Value, compare};
use query::matcher::Matcher;

/// Appends the reasons for the failure of a schema to the open document.
pub(super) fn describe(refused: &Refused<'_>, out: &mut Builder, schema: Document<'_>) -> Result<()> {
    out.append(c"operatorName", "$jsonSchema");
    annotations(out, schema);
    out.begin_array(c"schemaRulesNotSatisfied");
    let document = Value::Document(refused.document);
    SchemaTarget { refused, value: document, is_root: true }.rules(out, schema)?;
    out.end();
    Ok(())
}

/// A value to which a schema applies.
struct SchemaTarget<'p, 'a> {
    refused: &'p Refused<'a>,
    value: Value<'p>,
    /// Whether the value is the whole document, which details do not repeat.
    is_root: bool,
}

impl<'p> SchemaTarget<'p, '_> {
    /// Returns the target for a value inside this one.
    fn inner(&self, value: Value<'p>) -> Self {
        SchemaTarget { refused: self.refused, value, is_root: false }
    }

    /// Appends every failing rule of the schema to the open array.
    fn rules(&self, out: &mut Builder, schema: Document<'p>) -> Result<()> {
        for rule in schema {
            let is_rule =
                !matches!(rule.name(), "title" | "description" | "exclusiveMinimum" | "exclusiveMaximum");
            if is_rule && self.fails(alone(&rule, schema).view())? {
                out.push_document();
                self.rule(out, &rule, schema)?;
                out.end();
            }
        }
        Ok(())
    }

    /// Appends the failing rules of a schema for a value inside this one, as `details`.
    fn details(&self, out: &mut Builder, value: Value<'p>, schema: Document<'p>) -> Result<()> {
        out.begin_array(c"details");
        self.inner(value).rules(out, schema)?;
        out.end();
        Ok(())
    }

    fn rule(&self, out: &mut Builder, rule: &Element<'p>, schema: Document<'p>) -> Result<()> {
        let name = rule.name();
        out.append(c"operatorName", name);
        match (name, rule.value(), self.value) {
            ("properties", Value::Document(properties), Value::Document(document)) => {
                return self.properties(out, properties, document);
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas), _) => {
                return self.schemas(out, name == "oneOf", schemas);
            }
            ("not", ..) => {
                out.append(c"reason", "child expression matched");
                return Ok(());
            }
            ("items", Value::Array(schemas), Value::Array(items)) => return self.items(out, schemas, items),
            ("items", Value::Document(each), Value::Array(items)) => {
                return self.each_item(
                    out,
                    each,
                    (items, 0),
                    "At least one item did not match the sub-schema",
                );
            }
            ("additionalItems", Value::Document(each), Value::Array(items)) => {
                let reason = "At least one additional item did not match the sub-schema";
                return self.each_item(out, each, (items, count_items(schema)), reason);
            }
            ("patternProperties", Value::Document(patterns), Value::Document(document)) => {
                return self.patterns(out, patterns, document);
            }
            ("additionalProperties", Value::Document(each), Value::Document(document)) => {
                return self.additional(out, schema, each, document);
            }
            ("dependencies", Value::Document(dependencies), Value::Document(document)) => {
                return self.dependencies(out, dependencies, document);
            }
            _ => {}
        }
        out.begin_document(c"specifiedAs").append(FieldName::new(name)?, rule.value()).end();
        match (name, rule.value(), self.value) {
            ("required", Value::Array(names), Value::Document(document)) => {
                missing(out, names, document);
                return Ok(());
            }
            ("additionalProperties", _, Value::Document(document)) => {
                out.begin_array(c"additionalProperties");
                for property in document {
                    if self.is_additional(schema, property)? {
                        out.push(property.name());
                    }
                }
                out.end();
                return Ok(());
            }
            ("additionalItems", _, Value::Array(items)) => {
                out.begin_array(c"additionalItems");
                items.iter().skip(count_items(schema)).for_each(|item| _ = out.push(item));
                out.end();
                return Ok(());
            }
            _ => {}
        }
        if let Some(reason) = rule_reason(name) {
            out.append(c"reason", reason);
        }
        let is_count = matches!(name, "minProperties" | "maxProperties");
        if !self.is_root && !is_count {
            append_considered(out, name, self.value);
        }
        match (name, self.value) {
            ("minProperties" | "maxProperties", Value::Document(document)) => {
                out.append(c"numberOfProperties", document.iter().count() as i32);
            }
            ("minItems" | "maxItems", Value::Array(items)) => {
                out.append(c"numberOfItems", items.len() as i32);
            }
            ("uniqueItems", Value::Array(items)) => {
                out.append_optional(c"duplicatedValue", duplicate(items));
            }
            _ => {}
        }
        Ok(())
    }

    fn properties(&self, out: &mut Builder, properties: Document<'p>, document: Document<'p>) -> Result<()> {
        out.begin_array(c"propertiesNotSatisfied");
        for property in properties {
            let (Value::Document(schema), Some(value)) = (property.value(), document.get(property.name()))
            else {
                continue;
            };
            if self.inner(value).fails(schema)? {
                out.push_document().append(c"propertyName", property.name());
                annotations(out, schema);
                self.details(out, value, schema)?;
                out.end();
            }
        }
        out.end();
        Ok(())
    }

    /// Appends the schemas of `allOf`, `anyOf` or `oneOf` that failed. `oneOf` also fails if several match.
    fn schemas(&self, out: &mut Builder, is_one: bool, schemas: Array<'p>) -> Result<()> {
        let mut failed = Vec::new();
        let mut matching = Vec::new();
        for (index, schema) in schemas.iter().enumerate() {
            let Value::Document(schema) = schema else { continue };
            match self.fails(schema)? {
                true => failed.push((index, schema)),
                false => matching.push(index),
            }
        }
        if is_one && matching.len() > 1 {
            out.append(c"reason", "more than one subschema matched").begin_array(c"matchingSchemaIndexes");
            matching.into_iter().for_each(|index| _ = out.push(index as i32));
            out.end();
            return Ok(());
        }
        out.begin_array(c"schemasNotSatisfied");
        for (index, schema) in failed {
            out.push_document().append(c"index", index as i32);
            annotations(out, schema);
            out.begin_array(c"details");
            self.rules(out, schema)?;
            out.end().end();
        }
        out.end();
        Ok(())
    }

    /// Appends the items that fail the schema of their position.
    fn items(&self, out: &mut Builder, schemas: Array<'p>, items: Array<'p>) -> Result<()> {
        out.begin_array(c"details");
        for (index, (schema, item)) in schemas.iter().zip(items.iter()).enumerate() {
            let Value::Document(schema) = schema else { continue };
            if self.inner(item).fails(schema)? {
                out.push_document().append(c"itemIndex", index as i32);
                annotations(out, schema);
                self.details(out, item, schema)?;
                out.end();
            }
        }
        out.end();
        Ok(())
    }

    /// Appends the first item, from a position on, that fails the schema of all items.
    fn each_item(
        &self,
        out: &mut Builder,
        schema: Document<'p>,
        (items, from): (Array<'p>, usize),
        reason: &str,
    ) -> Result<()> {
        annotations(out, schema);
        out.append(c"reason", reason);
        let filter = self.filter(schema)?;
        for (index, item) in items.iter().enumerate().skip(from) {
            if self.inner(item).fails_by(&filter)? {
                out.append(c"itemIndex", index as i32);
                return self.details(out, item, schema);
            }
        }
        Ok(())
    }

    fn patterns(&self, out: &mut Builder, patterns: Document<'p>, document: Document<'p>) -> Result<()> {
        out.begin_array(c"details");
        for property in document {
            for pattern in patterns {
                let Value::Document(schema) = pattern.value() else { continue };
                let mut one = Builder::new();
                one.begin_document(c"patternProperties").append_element(&pattern).end();
                if self.fails_of(property, one.finish().view())? {
                    out.push_document().append(c"propertyName", property.name());
                    out.append(c"regexMatched", pattern.name());
                    annotations(out, schema);
                    self.details(out, property.value(), schema)?;
                    out.end();
                }
            }
        }
        out.end();
        Ok(())
    }

    /// Appends the first additional property that fails its schema.
    fn additional(
        &self,
        out: &mut Builder,
        schema: Document<'p>,
        subschema: Document<'p>,
        document: Document<'p>,
    ) -> Result<()> {
        annotations(out, subschema);
        out.append(c"reason", "at least one additional property did not match the subschema");
        for property in document {
            if self.is_additional(schema, property)? && self.inner(property.value()).fails(subschema)? {
                out.append(c"failingProperty", property.name());
                return self.details(out, property.value(), subschema);
            }
        }
        Ok(())
    }

    fn dependencies(
        &self,
        out: &mut Builder,
        dependencies: Document<'p>,
        document: Document<'p>,
    ) -> Result<()> {
        annotations(out, dependencies);
        out.begin_array(c"failingDependencies");
        for dependency in dependencies.iter().filter(|dependency| document.find(dependency.name()).is_some())
        {
            match dependency.value() {
                Value::Array(names)
                    if names
                        .iter()
                        .any(|name| name.as_str().is_some_and(|name| document.find(name).is_none())) =>
                {
                    out.push_document().append(c"conditionalProperty", dependency.name());
                    missing(out, names, document);
                    out.end();
                }
                Value::Document(schema) if self.fails(schema)? => {
                    out.push_document().append(c"conditionalProperty", dependency.name());
                    out.begin_array(c"details");
                    self.rules(out, schema)?;
                    out.end().end();
                }
                _ => {}
            }
        }
        out.end();
        Ok(())
    }

    /// Whether neither `properties` nor `patternProperties` of the schema names a property.
    fn is_additional(&self, schema: Document<'_>, property: Element<'_>) -> Result<bool> {
        let mut rule = Builder::new();
        rule.append(c"additionalProperties", false);
        let rule = rule.finish();
        match rule.view().first() {
            Some(rule) => self.fails_of(property, alone(&rule, schema).view()),
            None => Ok(false),
        }
    }

    /// Returns true if a schema fails for a document of one property.
    fn fails_of(&self, property: Element<'_>, schema: Document<'_>) -> Result<bool> {
        let mut document = Builder::new();
        document.append_element(&property);
        let document = document.finish();
        let target =
            SchemaTarget { refused: self.refused, value: Value::Document(document.view()), is_root: false };
        target.fails(schema)
    }

    /// Returns true if a schema fails for this value.
    fn fails(&self, schema: Document<'_>) -> Result<bool> {
        self.fails_by(&self.filter(schema)?)
    }

    /// Parses a schema for the values of [`fails_by`](Self::fails_by).
    fn filter(&self, schema: Document<'_>) -> Result<Matcher> {
        let mut filter = Builder::new();
        filter.begin_document(c"$jsonSchema").begin_document(c"properties");
        filter.append(c"v", schema).end().end();
        Matcher::parse(filter.finish().view(), self.refused.context)
    }

    /// Returns true if a parsed schema fails for this value. Errors: interruption; errors of the match.
    fn fails_by(&self, filter: &Matcher) -> Result<bool> {
        let context = self.refused.context;
        context.interrupt.check()?;
        let mut document = Builder::new();
        document.append(c"v", self.value);
        Ok(!filter.matches(document.finish().view(), context)?)
    }
}

fn annotations(out: &mut Builder, schema: Document<'_>) {
    for text in ["title", "description"].iter().filter_map(|name| schema.find(name)) {
        out.append_element(&text);
    }
}

/// Appends the names that a document does not have, sorted.
fn missing(out: &mut Builder, names: Array<'_>, document: Document<'_>) {
    let mut missing: Vec<&str> = names.iter().filter_map(|name| name.as_str()).collect();
    missing.retain(|name| document.find(name).is_none());
    missing.sort_unstable();
    out.begin_array(c"missingProperties");
    missing.into_iter().for_each(|name| _ = out.push(name));
    out.end();
}

/// Returns the number of items with schemas of their own.
fn count_items(schema: Document<'_>) -> usize {
    schema.get("items").and_then(|items| items.as_array()).map_or(0, |items| items.len())
}

/// Returns the first item that equals an earlier one.
fn duplicate(items: Array<'_>) -> Option<Value<'_>> {
    let mut sorted: Vec<(usize, Value<'_>)> = items.iter().enumerate().collect();
    sorted.sort_by(|(i, a), (j, b)| compare(*a, *b).then(i.cmp(j)));
    let repeated = sorted.windows(2).filter_map(|pair| match pair {
        [(_, a), (at, b)] if compare(*a, *b).is_eq() => Some((*at, *b)),
        _ => None,
    });
    repeated.min_by_key(|(at, _)| *at).map(|(_, value)| value)
}

/// Returns a schema with this rule and the keywords on which its meaning depends.
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
            // Only the names of properties matter here, not their schemas.
            Some(Value::Document(named)) if *companion != "items" => {
                out.begin_document(FieldName::literal(companion));
                for property in named {
                    out.begin_document(property.field_name()).end();
                }
                out.end();
            }
            // Only the number of items matters here, not their schemas.
            Some(Value::Array(schemas)) if *companion == "items" => {
                out.begin_array(c"items");
                schemas.iter().for_each(|_| _ = out.push_document().end());
                out.end();
            }
            Some(value) => _ = out.append(FieldName::literal(companion), value),
            None => {}
        }
    }
    out.finish()
}

fn rule_reason(rule: &str) -> Option<&'static str> {
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

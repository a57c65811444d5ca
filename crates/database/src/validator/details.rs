//! Reasons for a failed validation: the `details` of error 121, clause by clause.
//!
//! Each clause of the filter is matched again separately. Failing clauses are described in
//! MongoDB's shape. This code runs only for refused documents.
//!
//! For a JSON schema, the details list the failing rules. A rule is tested by matching a schema
//! with this rule alone, at the same location in the document.
//!
//! The text of a query operator is in `reason`, and the text of a schema keyword in `rule_reason`. A keyword with nested
//! schemas has its own case in `Place::rule`.

use base::Result;
use base::bson::{Array, Builder, Document, DocumentBuf, Element, FieldName, Value};
use query::Context;
use query::matcher::Matcher;

/// A refused document and the context for matching its clauses.
pub(super) struct Refused<'a> {
    pub(super) document: Document<'a>,
    pub(super) context: &'a Context,
}

/// One condition of a filter: a top-level operator, or one operator on one path.
struct Clause<'a> {
    name: &'a str,
    operator: Option<&'a str>,
    value: Value<'a>,
}

impl<'a> Refused<'a> {
    /// Returns true if a filter matches the document.
    pub(super) fn matches(&self, filter: &DocumentBuf) -> Result<bool> {
        Matcher::parse(filter.view(), self.context)?.matches(self.document, self.context)
    }

    /// Appends the reasons for the filter's failure to the open document.
    pub(super) fn filter(&self, out: &mut Builder, filter: Document<'a>) -> Result<()> {
        let clauses = clauses(filter);
        if let [only] = clauses.as_slice() {
            return self.clause(out, only);
        }
        out.append(c"operatorName", "$and").begin_array(c"clausesNotSatisfied");
        for (index, clause) in clauses.iter().enumerate() {
            if self.matches(&clause.filter())? {
                continue;
            }
            out.push_document().append(c"index", index as i32).begin_document(c"details");
            self.clause(out, clause)?;
            out.end().end();
        }
        out.end();
        Ok(())
    }

    fn clause(&self, out: &mut Builder, clause: &Clause<'a>) -> Result<()> {
        match (clause.name, clause.value) {
            ("$jsonSchema", Value::Document(schema)) => describe(self, out, schema),
            ("$and" | "$or" | "$nor", Value::Array(branches)) => self.branches(out, clause.name, branches),
            ("$expr", _) => {
                out.append(c"operatorName", "$expr").append(c"specifiedAs", &clause.filter());
                out.append(c"reason", "expression did not match").append(c"expressionResult", false);
                Ok(())
            }
            _ => {
                self.condition(out, clause);
                Ok(())
            }
        }
    }

    fn branches(&self, out: &mut Builder, name: &str, branches: Array<'a>) -> Result<()> {
        out.append(c"operatorName", name).begin_array(c"clausesNotSatisfied");
        // The branches of `$nor` are at fault if they match.
        let at_fault = name == "$nor";
        for (index, branch) in branches.iter().enumerate() {
            let Value::Document(branch) = branch else { continue };
            if self.matches(&branch.to_owned())? != at_fault {
                continue;
            }
            out.push_document().append(c"index", index as i32).begin_document(c"details");
            match at_fault {
                true => _ = out.append(c"specifiedAs", branch),
                false => self.filter(out, branch)?,
            }
            out.end().end();
        }
        out.end();
        Ok(())
    }

    fn condition(&self, out: &mut Builder, clause: &Clause<'a>) {
        let operator = clause.operator.unwrap_or("$eq");
        out.append(c"operatorName", operator).append(c"specifiedAs", &clause.filter());
        let considered = lookup(self.document, clause.name);
        match (operator, considered) {
            ("$exists", Some(_)) => _ = out.append(c"reason", "path does exist"),
            ("$exists", None) => _ = out.append(c"reason", "path does not exist"),
            (_, None) => _ = out.append(c"reason", "field was missing"),
            (_, Some(value)) => {
                if let Some(reason) = reason(operator) {
                    out.append(c"reason", reason);
                }
                append_considered(out, operator, value);
            }
        }
    }
}

/// Appends the considered value, with its type if the type was at fault.
pub(super) fn append_considered(out: &mut Builder, operator: &str, value: Value<'_>) {
    out.append(c"consideredValue", value);
    if matches!(operator, "$type" | "bsonType" | "type") {
        out.append(c"consideredType", value.kind().alias());
    }
}

fn reason(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" | "$ne" => "comparison failed",
        "$type" => "type did not match",
        "$in" => "no matching value found in array",
        "$nin" => "matching value found in array",
        "$regex" => "regular expression did not match",
        "$mod" => "$mod did not evaluate to expected remainder",
        "$size" => "array length was not equal to given size",
        "$elemMatch" => "array did not satisfy the child predicate",
        "$all" => "array did not contain all specified values",
        _ => return None,
    })
}

impl Clause<'_> {
    /// Returns the clause as a filter.
    fn filter(&self) -> DocumentBuf {
        let mut out = Builder::new();
        match self.operator {
            None => _ = out.append(FieldName::trusted(self.name), self.value),
            Some(operator) => {
                _ = out
                    .begin_document(FieldName::trusted(self.name))
                    .append(FieldName::trusted(operator), self.value)
                    .end()
            }
        }
        out.finish()
    }
}

/// Splits a filter into its conditions. Operators that depend on each other stay together.
fn clauses(filter: Document<'_>) -> Vec<Clause<'_>> {
    let mut found = Vec::new();
    for element in filter {
        let (name, value) = (element.name(), element.value());
        let operators = value.as_document().filter(|operators| {
            let is_operators = operators.first().is_some_and(|first| first.name().starts_with('$'));
            is_operators && !name.starts_with('$') && operators.find("$options").is_none()
        });
        match operators {
            None => found.push(Clause { name, operator: None, value }),
            Some(operators) => found.extend(operators.iter().map(|operator| Clause {
                name,
                operator: Some(operator.name()),
                value: operator.value(),
            })),
        }
    }
    found
}

/// Returns the value at a dotted path through documents.
pub(super) fn lookup<'a>(document: Document<'a>, path: &str) -> Option<Value<'a>> {
    let mut parts = path.split('.');
    let mut value = document.get(parts.next()?)?;
    for part in parts {
        value = value.as_document()?.get(part)?;
    }
    Some(value)
}

/// Appends the reasons for the failure of a `$jsonSchema` to the open document.
pub(super) fn describe(refused: &Refused<'_>, out: &mut Builder, schema: Document<'_>) -> Result<()> {
    out.append(c"operatorName", "$jsonSchema");
    annotations(out, schema);
    out.begin_array(c"schemaRulesNotSatisfied");
    let mut place = Place { refused, path: Vec::new() };
    place.rules(out, schema)?;
    out.end();
    Ok(())
}

/// Location in the document to which a schema applies.
struct Place<'p, 'a> {
    refused: &'p Refused<'a>,
    path: Vec<&'p str>,
}

impl<'p> Place<'p, '_> {
    /// Appends every failing rule of the schema to the open array.
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
                if let Some(reason) = rule_reason(name) {
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

    /// Returns true if a schema fails at this location.
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

    /// Returns the value at this location.
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
            // Only the property names matter here, not their schemas.
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

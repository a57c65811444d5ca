//! Why a document failed its validator: the `details` of error 121, clause by clause.
//!
//! Each clause of the filter is matched again on its own, and those that fail are described in
//! MongoDB's shape. This runs only for documents that are being refused.

use super::schema;
use base::Result;
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value};
use query::Context;
use query::matcher::Matcher;

/// A document being refused, and what its clauses are matched with.
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
    /// Whether a filter matches the document.
    pub(super) fn matches(&self, filter: &DocumentBuf) -> Result<bool> {
        Matcher::parse(filter.view(), self.context)?.matches(self.document, self.context)
    }

    /// Writes why the filter fails into the open document.
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
            ("$jsonSchema", Value::Document(schema)) => schema::describe(self, out, schema),
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
        // The branches of $nor are at fault for matching.
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

/// Appends the value that was looked at, with its type where that was at fault.
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
    /// The clause as a filter of its own.
    fn filter(&self) -> DocumentBuf {
        let mut out = Builder::new();
        match self.operator {
            None => _ = out.append(FieldName::known(self.name), self.value),
            Some(operator) => {
                _ = out
                    .begin_document(FieldName::known(self.name))
                    .append(FieldName::known(operator), self.value)
                    .end()
            }
        }
        out.finish()
    }
}

/// A filter's conditions one by one; operators that belong together stay so.
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

/// The value at a dotted path through documents.
pub(super) fn lookup<'a>(document: Document<'a>, path: &str) -> Option<Value<'a>> {
    let mut parts = path.split('.');
    let mut value = document.get(parts.next()?)?;
    for part in parts {
        value = value.as_document()?.get(part)?;
    }
    Some(value)
}

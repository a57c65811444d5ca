//! Reasons for a failed validation: the `details` of error 121, clause by clause.
//!
//! Each clause of the filter is matched again separately. Failing clauses are described in
//! MongoDB's shape. This code runs only for refused documents. JSON schemas have details of their own
//! ([`schema_details`](super::schema_details)).
//!
//! A clause under `$not` or `$nor` is at fault if it matches. The texts of operators for both cases are in `reasons`.

use super::schema_details;
use base::Result;
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value};
use query::expression::ErrorPrefix;
use query::matcher::Matcher;
use query::{Arena, Context, Expression};

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
    /// Returns true if a filter is at fault: its result is `inverted`, or an expression fails.
    fn is_at_fault(&self, filter: &DocumentBuf, inverted: bool) -> Result<bool> {
        let matched = Matcher::parse(filter.view(), self.context)?.matches(self.document, self.context);
        match matched {
            Ok(matched) => Ok(matched == inverted),
            Err(_) => self.context.interrupt.check().map(|()| true),
        }
    }

    /// Appends the reasons for the filter's failure to the open document. `inverted` means that the filter failed
    /// because it matches.
    pub(super) fn filter(&self, out: &mut Builder, filter: Document<'a>, inverted: bool) -> Result<()> {
        let clauses = clauses(filter);
        if let [only] = clauses.as_slice() {
            return self.clause(out, only, inverted);
        }
        out.append(c"operatorName", "$and").begin_array(at_fault(inverted));
        for (index, clause) in clauses.iter().enumerate() {
            if !self.is_at_fault(&clause.filter(), inverted)? {
                continue;
            }
            out.push_document().append(c"index", index as i32).begin_document(c"details");
            self.clause(out, clause, inverted)?;
            out.end().end();
        }
        out.end();
        Ok(())
    }

    fn clause(&self, out: &mut Builder, clause: &Clause<'a>, inverted: bool) -> Result<()> {
        match (clause.name, clause.operator, clause.value) {
            ("$jsonSchema", _, Value::Document(_)) if inverted => {
                out.append(c"operatorName", "$jsonSchema").append(c"reason", "schema matched");
                Ok(())
            }
            ("$jsonSchema", _, Value::Document(schema)) => schema_details::describe(self, out, schema),
            ("$and" | "$or" | "$nor", _, Value::Array(branches)) => {
                self.branches(out, clause.name, branches, inverted)
            }
            ("$expr", ..) => {
                out.append(c"operatorName", "$expr").append(c"specifiedAs", &clause.filter());
                self.expression(out, clause.value, inverted)
            }
            (_, Some("$not"), Value::Document(operators)) => {
                out.append(c"operatorName", "$not").begin_document(c"details");
                let mut negated = Builder::new();
                negated.append(FieldName::trusted(clause.name), operators);
                // The details are appended to `out`, so they do not borrow this filter.
                Refused { document: self.document, context: self.context }.filter(
                    out,
                    negated.finish().view(),
                    !inverted,
                )?;
                out.end();
                Ok(())
            }
            _ => {
                self.condition(out, clause, inverted);
                Ok(())
            }
        }
    }

    /// Appends the result of a `$expr`, or its error.
    fn expression(&self, out: &mut Builder, expression: Value<'_>, inverted: bool) -> Result<()> {
        let expression = Expression::parse_at(expression, self.context, ErrorPrefix::Plain)?;
        let arena = Arena::new();
        match expression.evaluate(self.document, self.context, &arena) {
            Ok(result) => {
                let reason = if inverted { "expression did match" } else { "expression did not match" };
                out.append(c"reason", reason).append_optional(c"expressionResult", result);
            }
            Err(error) => {
                self.context.interrupt.check()?;
                out.append(c"reason", "failed to evaluate aggregation expression").begin_document(c"details");
                out.append(c"code", error.code().number()).append(c"codeName", error.code().name().as_str());
                out.append(c"errmsg", error.message()).end();
            }
        }
        Ok(())
    }

    fn branches(&self, out: &mut Builder, name: &str, branches: Array<'a>, inverted: bool) -> Result<()> {
        // The branches of `$nor` are at fault if they match.
        let inverted = inverted != (name == "$nor");
        out.append(c"operatorName", name).begin_array(at_fault(inverted));
        for (index, branch) in branches.iter().enumerate() {
            let Value::Document(branch) = branch else { continue };
            if !self.is_at_fault(&branch.to_owned(), inverted)? {
                continue;
            }
            out.push_document().append(c"index", index as i32).begin_document(c"details");
            self.filter(out, branch, inverted)?;
            out.end().end();
        }
        out.end();
        Ok(())
    }

    fn condition(&self, out: &mut Builder, clause: &Clause<'a>, inverted: bool) {
        let operator = clause.operator.unwrap_or("$eq");
        out.append(c"operatorName", operator).append(c"specifiedAs", &clause.filter());
        let considered = lookup(self.document, clause.name);
        match (operator, considered) {
            ("$exists", Some(_)) => _ = out.append(c"reason", "path does exist"),
            ("$exists", None) => _ = out.append(c"reason", "path does not exist"),
            (_, None) => _ = out.append(c"reason", "field was missing"),
            (_, Some(value)) => {
                if let Some((failed, matched)) = reasons(operator) {
                    out.append(c"reason", if inverted { matched } else { failed });
                }
                append_considered(out, operator, value);
            }
        }
    }
}

/// Returns the name of the list of clauses at fault.
fn at_fault(inverted: bool) -> FieldName<'static> {
    if inverted { c"clausesSatisfied".into() } else { c"clausesNotSatisfied".into() }
}

/// Appends the considered value, with its type if the type was at fault.
pub(super) fn append_considered(out: &mut Builder, operator: &str, value: Value<'_>) {
    out.append(c"consideredValue", value);
    if matches!(operator, "$type" | "bsonType" | "type") {
        out.append(c"consideredType", value.kind().alias());
    }
}

/// Returns the texts for a condition that did not match, and for one that matched.
fn reasons(operator: &str) -> Option<(&'static str, &'static str)> {
    Some(match operator {
        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" => ("comparison failed", "comparison succeeded"),
        "$ne" => ("comparison succeeded", "comparison failed"),
        "$type" => ("type did not match", "type did match"),
        "$in" => ("no matching value found in array", "matching value found in array"),
        "$nin" => ("matching value found in array", "no matching value found in array"),
        "$regex" => ("regular expression did not match", "regular expression did match"),
        "$mod" => ("$mod did not evaluate to expected remainder", "$mod did evaluate to expected remainder"),
        "$size" => ("array length was not equal to given size", "array length was equal to given size"),
        "$elemMatch" => {
            ("array did not satisfy the child predicate", "array did satisfy the child predicate")
        }
        "$all" => ("array did not contain all specified values", "array did contain all specified values"),
        "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear" => {
            ("bitwise operator failed to match", "bitwise operator matched successfully")
        }
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
    let mut clauses = Vec::new();
    for element in filter {
        let (name, value) = (element.name(), element.value());
        let operators = value.as_document().filter(|operators| {
            let is_operators = operators.first().is_some_and(|first| first.name().starts_with('$'));
            is_operators && !name.starts_with('$') && operators.find("$options").is_none()
        });
        match operators {
            None => clauses.push(Clause { name, operator: None, value }),
            Some(operators) => clauses.extend(operators.iter().map(|operator| Clause {
                name,
                operator: Some(operator.name()),
                value: operator.value(),
            })),
        }
    }
    clauses
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

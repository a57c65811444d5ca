//! The `arrayFilters` of an update, which select elements for `$[identifier]`.

use crate::Context;
use crate::Matcher;
use base::bson::{Document, Value};
use base::{Result, bail};

/// One filter with its identifier.
#[derive(Debug)]
pub(crate) struct ArrayFilter {
    pub(crate) identifier: String,
    filter: Matcher,
}

/// Parses all filters.
///
/// Errors: FailedToParse for filters without a single identifier and for duplicate identifiers. BadValue for an
/// identifier that is not alphanumeric or does not begin with a lowercase letter.
pub(crate) fn parse(filters: &[Document<'_>], context: &Context) -> Result<Vec<ArrayFilter>> {
    let mut parsed: Vec<ArrayFilter> = Vec::with_capacity(filters.len());
    for filter in filters {
        let in_filter = |error: base::Error| error.context("Error parsing array filter");
        let matcher = Matcher::parse_plain(*filter, context).map_err(in_filter)?;
        let identifier = identifier(*filter).map_err(in_filter)?;
        if parsed.iter().any(|other| other.identifier == identifier) {
            bail!(
                FailedToParse,
                "Found multiple array filters with the same top-level field name {identifier}"
            );
        }
        parsed.push(ArrayFilter { identifier, filter: matcher });
    }
    Ok(parsed)
}

impl ArrayFilter {
    /// Whether the filter selects an array element.
    pub(crate) fn matches(&self, element: Value<'_>, context: &Context) -> Result<bool> {
        self.filter.matches_value(element, context)
    }
}

/// Returns the single top-level name in a filter.
fn identifier(filter: Document<'_>) -> Result<String> {
    let mut name: Option<&str> = None;
    collect(filter, &mut name)?;
    let Some(name) = name else {
        bail!(FailedToParse, "Cannot use an expression without a top-level field name in arrayFilters");
    };
    let mut characters = name.chars();
    let begins = characters.next().is_some_and(|first| first.is_ascii_lowercase());
    if !begins || !characters.all(|c| c.is_ascii_alphanumeric()) {
        bail!(
            BadValue,
            "The top-level field name must be an alphanumeric string beginning with a lowercase letter, \
             found '{name}'"
        );
    }
    Ok(name.to_owned())
}

/// Collects top-level names, also within logical operators. The validated filter bounds the nesting.
fn collect<'a>(filter: Document<'a>, known: &mut Option<&'a str>) -> Result<()> {
    for element in filter {
        if let ("$and" | "$or" | "$nor", Value::Array(clauses)) = (element.name(), element.value()) {
            for clause in clauses.iter().filter_map(|clause| clause.as_document()) {
                collect(clause, known)?;
            }
            continue;
        }
        if element.name().starts_with('$') {
            continue;
        }
        let name = element.name().split('.').next().unwrap_or("");
        match *known {
            Some(other) if other != name => {
                bail!(FailedToParse, "Expected a single top-level field name, found '{other}' and '{name}'");
            }
            _ => *known = Some(name),
        }
    }
    Ok(())
}

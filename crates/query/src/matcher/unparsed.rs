//! Properties of unparsed filters: their paths, and operators that some uses of filters refuse.

use base::bson::{Document, Path, Value};
use base::{Result, bail};

/// The names of these operators.
const SPECIAL: [&str; 4] = ["$expr", "$jsonSchema", "$text", "$where"];

/// Returns the first of these operators in a filter.
pub(super) fn first_special(filter: Document<'_>) -> Option<&str> {
    find(filter, &|name| SPECIAL.contains(&name))
}

/// Whether a filter contains `$expr`, even a constant one.
pub fn mentions_expr(filter: Document<'_>) -> bool {
    find(filter, &|name| name == "$expr").is_some()
}

/// Searches a filter. Recursion is bounded by the validated nesting of the filter.
fn find<'a>(filter: Document<'a>, selects: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    filter.iter().find_map(|element| match element.name() {
        name if selects(name) => Some(name),
        "$and" | "$or" | "$nor" => {
            let clauses = element.value().as_array()?;
            clauses.iter().find_map(|clause| find(clause.as_document()?, selects))
        }
        _ => None,
    })
}

/// Returns the paths that a filter reads; `None` if it may read the whole document (`$expr`, `$jsonSchema`, …).
pub(crate) fn paths(filter: Document<'_>) -> Option<Vec<Path>> {
    let mut paths = Vec::new();
    collect(filter, &mut paths).then_some(paths)
}

/// Collects the paths of a filter; false if an operator may read the whole document.
fn collect(filter: Document<'_>, paths: &mut Vec<Path>) -> bool {
    for element in filter {
        match (element.name(), element.value()) {
            ("$and" | "$or" | "$nor", Value::Array(branches)) => {
                let all =
                    branches.iter().all(|branch| branch.as_document().is_some_and(|b| collect(b, paths)));
                if !all {
                    return false;
                }
            }
            ("$comment" | "$alwaysTrue" | "$alwaysFalse", _) => {}
            (name, _) if name.starts_with('$') => return false,
            _ => paths.push(Path::new(element.field_name())),
        }
    }
    true
}

/// Whether a filter contains `$text`.
pub(crate) fn has_text(filter: Document<'_>) -> bool {
    filter.iter().any(|element| match (element.name(), element.value()) {
        ("$text", _) => true,
        ("$and" | "$or", Value::Array(branches)) => {
            branches.iter().filter_map(|branch| branch.as_document()).any(has_text)
        }
        _ => false,
    })
}

/// Operators that a filter may not contain in its place.
pub(crate) struct ForbiddenOperators {
    first: bool,
}

impl ForbiddenOperators {
    /// Returns the refusals of a `$match` at this position of its pipeline.
    pub(crate) fn of_match(position: usize) -> ForbiddenOperators {
        ForbiddenOperators { first: position == 0 }
    }
}

/// Checks a filter. Errors: BadValue for `$where`, 5626500 for `$near` and related operators, 17313 for `$text` after
/// the first stage.
pub(crate) fn check_filter(filter: Document<'_>, forbidden: &ForbiddenOperators) -> Result<()> {
    for element in filter {
        match (element.name(), element.value()) {
            ("$where", _) => bail!(BadValue, "$where is not allowed in this context"),
            ("$text", _) if !forbidden.first => {
                bail!(17313, "$match with $text is only allowed as the first pipeline stage");
            }
            ("$near" | "$nearSphere" | "$geoNear", _) => {
                bail!(
                    5626500,
                    "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require \
                     sorting geospatial data. If you do not need sort, consider using $geoWithin instead."
                );
            }
            ("$and" | "$or" | "$nor", Value::Array(branches)) => {
                for branch in branches.iter().filter_map(|branch| branch.as_document()) {
                    check_filter(branch, forbidden)?;
                }
            }
            (name, Value::Document(operators)) if !name.starts_with('$') => {
                check_filter(operators, forbidden)?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::{self, parse};

    #[test]
    fn special_conditions_are_found_within_logical_ones() {
        let found = |filter: &str| first_special(parse(filter).unwrap().view()).map(str::to_string);
        assert_eq!(found("{a: 1, $or: [{b: 1}, {$nor: [{$expr: true}]}]}").as_deref(), Some("$expr"));
        assert_eq!(found("{a: {$expr: 1}}"), None);
        assert!(!mentions_expr(parse("{$jsonSchema: {}}").unwrap().view()));
    }

    fn read(filter: &str) -> Option<Vec<String>> {
        let filter = extended_json::parse(filter).unwrap();
        Some(paths(filter.view())?.iter().map(|path| path.to_string()).collect())
    }

    #[test]
    fn lists_the_paths_read() {
        assert_eq!(read("{a: 1, 'b.c': {$gt: 1}}"), Some(vec!["a".into(), "b.c".into()]));
        assert_eq!(read("{$or: [{a: 1}, {$and: [{b: 1}]}]}"), Some(vec!["a".into(), "b".into()]));
        assert_eq!(read("{$expr: {$eq: ['$a', 1]}}"), None);
        assert_eq!(read("{$or: [{a: 1}, {$expr: true}]}"), None);
        assert_eq!(read("{$comment: 'x'}"), Some(vec![]));
    }
}

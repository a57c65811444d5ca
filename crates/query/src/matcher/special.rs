//! Operators that inspect more than fields. Some uses of filters refuse them.

use base::bson::Document;

/// The names of these operators.
const SPECIAL: [&str; 4] = ["$expr", "$jsonSchema", "$text", "$where"];

/// Returns the first of these operators in a filter.
pub(super) fn first(filter: Document<'_>) -> Option<&str> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn special_conditions_are_found_within_logical_ones() {
        let found = |filter: &str| first(parse(filter).unwrap().view()).map(str::to_string);
        assert_eq!(found("{a: 1, $or: [{b: 1}, {$nor: [{$expr: true}]}]}").as_deref(), Some("$expr"));
        assert_eq!(found("{a: {$expr: 1}}"), None);
        assert!(!mentions_expr(parse("{$jsonSchema: {}}").unwrap().view()));
    }
}

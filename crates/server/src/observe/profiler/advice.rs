//! Index suggestions for queries: first equality fields, then sort fields, then range fields.

use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};

/// Maximum number of fields in an index.
const FIELDS_MAX: usize = 32;

/// Fields of a filter that an index supports.
#[derive(Default)]
struct Fields<'a> {
    equal: Vec<&'a str>,
    bounded: Vec<&'a str>,
}

/// Returns the key of an index for a filter and a sort; `None` if no index helps or the `_id` index
/// suffices.
pub(super) fn index_for(filter: Option<Document<'_>>, sort: Option<Document<'_>>) -> Option<DocumentBuf> {
    let mut fields = Fields::default();
    if let Some(filter) = filter {
        fields.gather(filter);
    }
    if fields.equal.contains(&"_id") {
        return None;
    }
    let mut key: Vec<(&str, i32)> = Vec::new();
    let mut add = |name, direction| {
        if !key.iter().any(|(known, _)| *known == name) {
            key.push((name, direction));
        }
    };
    fields.equal.iter().for_each(|name| add(name, 1));
    // An index can only provide a sort by fields.
    for element in sort.unwrap_or(Document::EMPTY) {
        match element.value().as_number().map(|direction| direction.to_i64_clamped()) {
            Some(direction @ (1 | -1)) => add(element.name(), direction as i32),
            _ => return None,
        }
    }
    fields.bounded.iter().for_each(|name| add(name, 1));
    if key.is_empty() || key.len() > FIELDS_MAX || matches!(key.first(), Some(("_id", _))) {
        return None;
    }
    let mut out = Builder::new();
    for (name, direction) in key {
        out.append(FieldName::trusted(name), direction);
    }
    Some(out.finish())
}

impl<'a> Fields<'a> {
    fn gather(&mut self, filter: Document<'a>) {
        for element in filter {
            match (element.name(), element.value()) {
                ("$and", Value::Array(branches)) => {
                    branches
                        .iter()
                        .filter_map(|branch| branch.as_document())
                        .for_each(|branch| self.gather(branch));
                }
                // `$or` and similar operators need more than one index.
                (name, _) if name.starts_with('$') => {}
                (name, Value::Document(operators))
                    if operators.first().is_some_and(|first| first.name().starts_with('$')) =>
                {
                    let has =
                        |names: &[&str]| operators.iter().any(|operator| names.contains(&operator.name()));
                    if has(&["$eq", "$in", "$all"]) {
                        self.equal.push(name);
                    } else if has(&["$gt", "$gte", "$lt", "$lte"]) {
                        self.bounded.push(name);
                    }
                }
                (name, Value::Regex { pattern, .. }) => {
                    if pattern.starts_with('^') {
                        self.bounded.push(name);
                    }
                }
                (name, _) => self.equal.push(name),
            }
        }
    }
}

/// Returns true if an index key begins with another key, with equal or with all reversed
/// directions.
pub(super) fn begins_with(more: Document<'_>, less: Document<'_>) -> bool {
    let matches = |sign: i64| {
        let direction = |value: Value<'_>| value.as_number().map(|number| number.to_i64_clamped());
        let mut more = more.iter();
        less.iter().all(|field| {
            more.next().is_some_and(|part| {
                part.name() == field.name()
                    && direction(part.value())
                        .is_some_and(|part| Some(part * sign) == direction(field.value()))
            })
        })
    };
    matches(1) || matches(-1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn equality_precedes_sort_and_sort_precedes_range() {
        for (filter, sort, expected) in [
            ("{a: 1}", "{}", Some("{a: 1}")),
            ("{a: {$gt: 1}, b: {$in: [1, 2]}}", "{c: -1, d: 1}", Some("{b: 1, c: -1, d: 1, a: 1}")),
            ("{$and: [{a: 1}, {b: {$lt: 1}}], c: {$exists: true}}", "{a: -1}", Some("{a: 1, b: 1}")),
            ("{a: /^x/, b: /x/, c: {$ne: 1}}", "{}", Some("{a: 1}")),
            ("{}", "{a: -1}", Some("{a: -1}")),
            ("{_id: 1, a: 2}", "{}", None),
            ("{_id: {$gt: 1}}", "{}", None),
            ("{}", "{_id: 1, a: 1}", None),
            ("{a: 1}", "{b: {$meta: 'textScore'}}", None),
            ("{$or: [{a: 1}, {b: 1}]}", "{}", None),
            ("{}", "{}", None),
        ] {
            let [given, order] = [filter, sort].map(|text| parse(text).unwrap());
            let found = index_for(Some(given.view()), Some(order.view()));
            assert_eq!(found, expected.map(|text| parse(text).unwrap()), "{filter} {sort}");
        }
        assert_eq!(index_for(None, None), None);
    }

    #[test]
    fn an_index_serves_its_prefixes() {
        let begins =
            |more: &str, less: &str| begins_with(parse(more).unwrap().view(), parse(less).unwrap().view());
        assert!(begins("{a: 1, b: -1, c: 1}", "{a: 1, b: -1}") && begins("{a: -1, b: 1}", "{a: 1, b: -1}"));
        assert!(!begins("{a: 1}", "{a: 1, b: 1}") && !begins("{a: 1, b: 1}", "{a: 1, b: -1}"));
        assert!(!begins("{a: 'hashed'}", "{a: 1}"));
    }
}

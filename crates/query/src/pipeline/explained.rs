//! The stages that explain prints instead of a stage: MongoDB serializes the stages that it makes of the given one.
//! Expressions and windows are printed as given.

use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};

/// `{$sort: {sortKey: <pattern>}}`. The optimizer has already written this form, with `limit`, for a sort with a limit.
pub(crate) fn sort(specification: Value<'_>) -> Vec<DocumentBuf> {
    let pattern = specification.as_document().unwrap_or(Document::EMPTY);
    let has_form = pattern.get("limit").is_some()
        && pattern.get("sortKey").is_some_and(|key| key.as_document().is_some());
    vec![if has_form { stage("$sort", specification) } else { sort_by([pattern]) }]
}

/// `{$unwind: {path: <path>}}` with the options that are set.
pub(crate) fn unwind(specification: Value<'_>) -> Vec<DocumentBuf> {
    let Some(options) = specification.as_document() else {
        let mut path = Builder::new();
        path.append(c"path", specification);
        return vec![stage("$unwind", Value::Document(path.finish().view()))];
    };
    let mut out = Builder::new();
    out.append_optional(c"path", options.get("path"));
    let preserve = options.get("preserveNullAndEmptyArrays").filter(|preserve| preserve.is_truthy());
    out.append_optional(c"preserveNullAndEmptyArrays", preserve);
    out.append_optional(c"includeArrayIndex", options.get("includeArrayIndex"));
    vec![stage("$unwind", Value::Document(out.finish().view()))]
}

/// `{$replaceRoot: {newRoot: <expression>}}`.
pub(crate) fn replace_with(specification: Value<'_>) -> Vec<DocumentBuf> {
    let mut out = Builder::new();
    out.append(c"newRoot", specification);
    vec![stage("$replaceRoot", Value::Document(out.finish().view()))]
}

/// `{$project: {_id: true, <field>: true, <field>: <expression>}}`, with paths as nested documents. An exclusion has
/// `_id: true` last.
pub(crate) fn project(specification: Value<'_>) -> Vec<DocumentBuf> {
    let mut fields = Fields::default();
    fields.add_all("", specification.as_document().unwrap_or(Document::EMPTY));
    vec![fields.into_project()]
}

/// The `$project` that excludes the paths.
pub(crate) fn unset(specification: Value<'_>) -> Vec<DocumentBuf> {
    let mut fields = Fields::default();
    let paths = specification.as_array().into_iter().flat_map(|paths| paths.iter());
    for path in paths.chain([specification]).filter_map(|path| path.as_str()) {
        fields.add(path, Shown::Flag(false));
    }
    vec![fields.into_project()]
}

/// The fields of a projection, nested like the paths.
#[derive(Default)]
struct Fields<'v>(Vec<(String, Shown<'v>)>);

/// The treatment of a field.
enum Shown<'v> {
    Flag(bool),
    Computed(Value<'v>),
    Below(Fields<'v>),
}

impl<'v> Fields<'v> {
    /// Adds the fields of a specification below a path.
    fn add_all(&mut self, prefix: &str, specification: Document<'v>) {
        for field in specification {
            let path = format!("{prefix}{}", field.name());
            match field.value() {
                Value::Document(inner)
                    if inner.first().is_some_and(|first| !first.name().starts_with('$')) =>
                {
                    self.add_all(&format!("{path}."), inner);
                }
                Value::Boolean(flag) => self.add(&path, Shown::Flag(flag)),
                value => match value.as_number() {
                    Some(number) => self.add(&path, Shown::Flag(!number.is_zero())),
                    None => self.add(&path, Shown::Computed(value)),
                },
            }
        }
    }

    fn add(&mut self, path: &str, shown: Shown<'v>) {
        let Some((first, rest)) = path.split_once('.') else {
            return self.0.push((path.to_string(), shown));
        };
        let at = self.0.iter().position(|(name, _)| name == first).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push((first.to_string(), Shown::Below(Fields::default())));
        }
        if let Some((_, Shown::Below(below))) = self.0.get_mut(at) {
            below.add(rest, shown);
        }
    }

    fn into_project(mut self) -> DocumentBuf {
        let id = self.0.iter().position(|(name, shown)| name == "_id" && matches!(shown, Shown::Flag(_)));
        let id = id.and_then(|at| match self.0.remove(at).1 {
            Shown::Flag(flag) => Some(flag),
            _ => None,
        });
        let is_empty = self.0.is_empty();
        let includes = self.flag().or(id.filter(|_| is_empty)).unwrap_or(true);
        let has_other_id = self.0.iter().any(|(name, _)| name == "_id");
        let mut out = Builder::new();
        out.begin_document(c"$project");
        let is_listed = !has_other_id && id.unwrap_or(true) == includes;
        if is_listed {
            out.append(c"_id", includes);
        }
        self.append_to(&mut out);
        if !is_listed && !has_other_id {
            out.append(c"_id", !includes);
        }
        out.end();
        out.finish()
    }

    /// The value of the flags; `None` without a flag.
    fn flag(&self) -> Option<bool> {
        self.0.iter().find_map(|(_, shown)| match shown {
            Shown::Flag(flag) => Some(*flag),
            Shown::Computed(_) => None,
            Shown::Below(below) => below.flag(),
        })
    }

    /// Appends the fields, computed fields and nested documents last.
    fn append_to(&self, out: &mut Builder) {
        for (name, shown) in &self.0 {
            if let Shown::Flag(flag) = shown {
                out.append(FieldName::trusted(name), *flag);
            }
        }
        for (name, shown) in &self.0 {
            match shown {
                Shown::Flag(_) => {}
                Shown::Computed(value) => _ = out.append(FieldName::trusted(name), *value),
                Shown::Below(below) => {
                    below.append_to(out.begin_document(FieldName::trusted(name)));
                    out.end();
                }
            }
        }
    }
}

/// A `$sort` by the partitions and the field, and the `$_internalDensify`.
pub(crate) fn densify(specification: Value<'_>) -> Vec<DocumentBuf> {
    let options = specification.as_document().unwrap_or(Document::EMPTY);
    let range = options.get("range").and_then(|range| range.as_document()).unwrap_or(Document::EMPTY);
    let partitions = options.get("partitionByFields").and_then(|fields| fields.as_array());
    let names = partitions.into_iter().flat_map(|fields| fields.iter()).filter_map(|name| name.as_str());
    let is_full = range.get("bounds").and_then(|bounds| bounds.as_str()) == Some("full");
    let mut pattern = Builder::new();
    let field = options.get("field").and_then(|field| field.as_str());
    for name in names.clone().filter(|_| !is_full).chain(field) {
        pattern.append(FieldName::trusted(name), 1i32);
    }
    let mut out = Builder::new();
    out.append_optional(c"field", options.get("field")).begin_array(c"partitionByFields");
    names.for_each(|name| _ = out.push(name));
    out.end().begin_document(c"range");
    for name in ["step", "bounds", "unit"] {
        out.append_optional(FieldName::trusted(name), range.get(name));
    }
    out.end();
    vec![sort_by([pattern.finish().view()]), stage("$_internalDensify", Value::Document(out.finish().view()))]
}

/// A `$sort` by the partition and the pattern, and the `$_internalSetWindowFields`. The key of a partition that is no
/// field is added before and removed after them.
pub(crate) fn set_window_fields(specification: Value<'_>) -> Vec<DocumentBuf> {
    let options = specification.as_document().unwrap_or(Document::EMPTY);
    let key = options.get("partitionBy").and_then(partition_key);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut partition = Builder::new();
    if let Some((path, computed)) = &key {
        partition.append(FieldName::trusted(path), 1i32);
        if let Some(expression) = computed {
            let (mut add, mut remove) = (Builder::new(), Builder::new());
            add.append(FieldName::trusted(path), *expression);
            remove.append(FieldName::trusted(path), false).append(c"_id", true);
            before.push(stage("$addFields", Value::Document(add.finish().view())));
            after.push(stage("$project", Value::Document(remove.finish().view())));
        }
    }
    let pattern = options.get("sortBy").and_then(|pattern| pattern.as_document()).unwrap_or(Document::EMPTY);
    let partition = partition.finish();
    if !partition.view().is_empty() || !pattern.is_empty() {
        before.push(sort_by([partition.view(), pattern]));
    }
    let mut out = Builder::new();
    if let Some((path, _)) = &key {
        out.append(c"partitionBy", format!("${path}").as_str());
    }
    out.append_optional(c"sortBy", options.get("sortBy")).append_optional(c"output", options.get("output"));
    before.push(stage("$_internalSetWindowFields", Value::Document(out.finish().view())));
    before.append(&mut after);
    before
}

/// The field that holds the computed key of a partition.
const PARTITION_KEY: &str = "__internal_setWindowFields_partition_key";

/// Returns the field of a partition's key, and the expression if the key is computed; `None` for a constant.
fn partition_key(expression: Value<'_>) -> Option<(&str, Option<Value<'_>>)> {
    match expression {
        Value::String(path) => match field_of(path) {
            Some(field) => Some((field, None)),
            None => path.starts_with('$').then_some((PARTITION_KEY, Some(expression))),
        },
        Value::Document(operator) => {
            let name = operator.first().map_or("$const", |operator| operator.name());
            (!matches!(name, "$const" | "$literal")).then_some((PARTITION_KEY, Some(expression)))
        }
        _ => None,
    }
}

/// Returns the field that a path of an expression names; `None` for variables and constants.
fn field_of(path: &str) -> Option<&str> {
    let of_root = ["$$ROOT.", "$$CURRENT."].iter().find_map(|root| path.strip_prefix(root));
    of_root.or_else(|| path.strip_prefix('$').filter(|field| !field.starts_with('$')))
}

/// Returns a `$sort` by the fields of patterns, each field once.
fn sort_by<'p>(patterns: impl IntoIterator<Item = Document<'p>>) -> DocumentBuf {
    let mut key: Vec<(String, Value<'p>)> = Vec::new();
    for field in patterns.into_iter().flatten() {
        if !key.iter().any(|(name, _)| name == field.name()) {
            key.push((field.name().to_string(), field.value()));
        }
    }
    let mut out = Builder::new();
    out.begin_document(c"$sort").begin_document(c"sortKey");
    for (name, value) in &key {
        out.append(FieldName::trusted(name), *value);
    }
    out.end().end();
    out.finish()
}

fn stage(name: &str, specification: Value<'_>) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(FieldName::trusted(name), specification);
    out.finish()
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::pipeline;

    fn shown(stages: &str, expected: &str) {
        let shown: Vec<String> =
            pipeline(stages).unwrap().explained().map(|(stage, _)| stage.to_string()).collect();
        assert_eq!(shown.join(", "), expected);
    }

    #[test]
    fn stages_have_the_form_of_mongodb() {
        shown("[{$sort: {a: 1}}]", "{ $sort: { sortKey: { a: 1 } } }");
        shown(
            "[{$sort: {sortKey: {$meta: 'textScore'}}}]",
            "{ $sort: { sortKey: { sortKey: { $meta: \"textScore\" } } } }",
        );
        shown("[{$unwind: '$a'}]", "{ $unwind: { path: \"$a\" } }");
        shown(
            "[{$unwind: {includeArrayIndex: 'i', preserveNullAndEmptyArrays: false, path: '$a'}}]",
            "{ $unwind: { path: \"$a\", includeArrayIndex: \"i\" } }",
        );
        shown("[{$replaceWith: '$a'}]", "{ $replaceRoot: { newRoot: \"$a\" } }");
        shown("[{$unset: 'a'}]", "{ $project: { a: false, _id: true } }");
        shown("[{$unset: ['a.b', '_id', 'a.c']}]", "{ $project: { _id: false, a: { b: false, c: false } } }");
    }

    #[test]
    fn projections_have_the_form_of_mongodb() {
        let projected = |given: &str, expected: &str| {
            shown(&format!("[{{$project: {given}}}]"), &format!("{{ $project: {expected} }}"));
        };
        projected("{a: 0, 'b.c': 0, _id: 1}", "{ a: false, b: { c: false }, _id: true }");
        projected(
            "{a: {b: 1}, c: '$d', 'a.e': 1, f: 2}",
            "{ _id: true, f: true, a: { b: true, e: true }, c: \"$d\" }",
        );
        projected("{a: 1, _id: 0}", "{ a: true, _id: false }");
        projected("{a: '$b', _id: 0}", "{ a: \"$b\", _id: false }");
        projected("{_id: 0}", "{ _id: false }");
        projected("{_id: 1}", "{ _id: true }");
        projected("{'_id.a': 1}", "{ _id: { a: true } }");
    }

    #[test]
    fn stages_that_sort_show_the_sort() {
        shown(
            "[{$densify: {field: 'a', range: {bounds: [1, 9], step: 1}, partitionByFields: ['p']}}]",
            "{ $sort: { sortKey: { p: 1, a: 1 } } }, { $_internalDensify: { field: \"a\", partitionByFields: [ \"p\" ], \
             range: { step: 1, bounds: [ 1, 9 ] } } }",
        );
        shown(
            "[{$setWindowFields: {partitionBy: '$p', sortBy: {a: -1, p: 1}, output: {n: {$sum: 1}}}}]",
            "{ $sort: { sortKey: { p: 1, a: -1 } } }, { $_internalSetWindowFields: { partitionBy: \"$p\", sortBy: \
             { a: -1, p: 1 }, output: { n: { $sum: 1 } } } }",
        );
        shown(
            "[{$setWindowFields: {partitionBy: '$$ROOT.p', output: {n: {$sum: 1}}}}]",
            "{ $sort: { sortKey: { p: 1 } } }, { $_internalSetWindowFields: { partitionBy: \"$p\", output: { n: { \
             $sum: 1 } } } }",
        );
        shown(
            "[{$setWindowFields: {partitionBy: {$toLower: '$p'}, output: {n: {$sum: 1}}}}]",
            "{ $addFields: { __internal_setWindowFields_partition_key: { $toLower: \"$p\" } } }, { $sort: { sortKey: { \
             __internal_setWindowFields_partition_key: 1 } } }, { $_internalSetWindowFields: { partitionBy: \
             \"$__internal_setWindowFields_partition_key\", output: { n: { $sum: 1 } } } }, { $project: { \
             __internal_setWindowFields_partition_key: false, _id: true } }",
        );
        shown(
            "[{$setWindowFields: {partitionBy: {$literal: 1}, output: {n: {$sum: 1}}}}]",
            "{ $_internalSetWindowFields: { output: { n: { $sum: 1 } } } }",
        );
    }
}

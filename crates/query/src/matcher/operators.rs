//! The table of all filter operators: one row per operator, sorted by name.

use super::node::Node;
use super::parse::Parser;
use super::{array, comparison, geo, integer, json_schema, membership, near, regex_match, top_level};
use base::Result;
use base::bson::{Document, Element, Path, Value};

/// A filter operator, by its name.
pub struct Operator {
    /// The name, `$` included.
    pub name: &'static str,
    parse: Parse,
}

impl Operator {
    /// Whether the operator is used instead of a field name (`$and`), not in a field's document of operators (`$gt`).
    pub fn is_top_level(&self) -> bool {
        matches!(self.parse, Parse::Top(_))
    }
}

/// The parser of an operator. A result of `None` means no condition (`$comment`).
enum Parse {
    Top(fn(&Parser<'_>, &Element<'_>) -> Result<Option<Node>>),
    Field(fn(&Parser<'_>, &FieldArgument<'_>) -> Result<Option<Node>>),
}

/// An operator in a field's document of operators.
pub(super) struct FieldArgument<'a> {
    /// The field's path.
    pub(super) path: &'a Path,
    /// The operator and its argument.
    pub(super) element: Element<'a>,
    /// The whole document of operators, for operators that belong together (`$regex`, `$options`).
    pub(super) siblings: Document<'a>,
}

impl<'a> FieldArgument<'a> {
    /// The operator's name.
    pub(super) fn name(&self) -> &'a str {
        self.element.name()
    }

    /// The operator's argument.
    pub(super) fn value(&self) -> Value<'a> {
        self.element.value()
    }
}

/// Defines an operator that is used instead of a field name.
const fn top(name: &'static str, parse: fn(&Parser<'_>, &Element<'_>) -> Result<Option<Node>>) -> Operator {
    Operator { name, parse: Parse::Top(parse) }
}

/// Defines an operator in a field's document.
const fn field(
    name: &'static str,
    parse: fn(&Parser<'_>, &FieldArgument<'_>) -> Result<Option<Node>>,
) -> Operator {
    Operator { name, parse: Parse::Field(parse) }
}

/// All filter operators, including refused ones, sorted by name.
pub const OPERATORS: &[Operator] = &[
    top("$_internalSchemaMaxProperties", |_, element| json_schema::single_keyword(c"maxProperties", element)),
    top("$_internalSchemaMinProperties", |_, element| json_schema::single_keyword(c"minProperties", element)),
    field("$all", array::parse_all),
    top("$alwaysFalse", top_level::parse_always_false),
    top("$alwaysTrue", top_level::parse_always_true),
    top("$and", |parser, element| top_level::parse_group(parser, element).map(Node::And).map(Some)),
    field("$bitsAllClear", integer::parse_all_clear),
    field("$bitsAllSet", integer::parse_all_set),
    field("$bitsAnyClear", integer::parse_any_clear),
    field("$bitsAnySet", integer::parse_any_set),
    top("$comment", top_level::parse_comment),
    top("$db", top_level::parse_reference),
    field("$elemMatch", array::parse_elem_match),
    field("$eq", comparison::parse_eq),
    field("$exists", array::parse_exists),
    top("$expr", top_level::parse_expr),
    field("$geoIntersects", geo::parse_intersects),
    field("$geoNear", near::parse_near),
    field("$geoWithin", geo::parse_within),
    field("$gt", comparison::parse_gt),
    field("$gte", comparison::parse_gte),
    top("$id", top_level::parse_reference),
    field("$in", |parser, argument| membership::parse(parser, argument).map(Some)),
    top("$jsonSchema", json_schema::parse_json_schema),
    field("$lt", comparison::parse_lt),
    field("$lte", comparison::parse_lte),
    field("$mod", integer::parse_mod),
    field("$ne", comparison::parse_ne),
    field("$near", near::parse_near),
    field("$nearSphere", near::parse_near),
    field("$nin", |parser, argument| Ok(Some(Node::Not(Box::new(membership::parse(parser, argument)?))))),
    top("$nor", |parser, element| top_level::parse_group(parser, element).map(Node::Nor).map(Some)),
    field("$not", top_level::parse_not),
    field("$options", regex_match::parse_options),
    top("$or", |parser, element| top_level::parse_group(parser, element).map(Node::Or).map(Some)),
    top("$ref", top_level::parse_reference),
    field("$regex", regex_match::parse_regex),
    top("$sampleRate", top_level::parse_sample_rate),
    field("$size", array::parse_size),
    top("$text", top_level::parse_text),
    field("$type", array::parse_type),
    top("$where", top_level::parse_where),
    field("$within", geo::parse_within),
];

fn find(name: &str) -> Option<&'static Parse> {
    let at = OPERATORS.binary_search_by(|operator| operator.name.cmp(name)).ok()?;
    OPERATORS.get(at).map(|operator| &operator.parse)
}

/// Whether this is the name of an operator that is used instead of a field name.
pub(super) fn is_top_level(name: &str) -> bool {
    matches!(find(name), Some(Parse::Top(_)))
}

/// Whether this is the name of an operator in a field's document of operators.
pub(super) fn is_of_fields(name: &str) -> bool {
    matches!(find(name), Some(Parse::Field(_)))
}

/// Parses an operator that is used instead of a field name; `None` for an unknown name.
pub(super) fn parse_top(parser: &Parser<'_>, element: &Element<'_>) -> Option<Result<Option<Node>>> {
    match find(element.name())? {
        Parse::Top(parse) => Some(parse(parser, element)),
        Parse::Field(_) => None,
    }
}

/// Parses an operator of a field; `None` for an unknown name.
pub(super) fn parse_field(parser: &Parser<'_>, argument: &FieldArgument<'_>) -> Option<Result<Option<Node>>> {
    match find(argument.name())? {
        Parse::Field(parse) => Some(parse(parser, argument)),
        Parse::Top(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(OPERATORS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(is_top_level("$and") && !is_top_level("$gt") && !is_top_level("$nope"));
    }
}

//! Object literals: `{a: <expression>, b: {c: <expression>}}`.

use super::evaluate::{Computed, Scope};
use super::node::Node;
use super::ordered_fields::OrderedFields;
use super::parse::Parser;
use crate::field_path::check_field_name;
use base::bson::{Builder, Document, FieldNameBuf, Value};
use base::{Result, bail};

/// Parses the fields of a document without an operator.
///
/// Errors: errors of field names; 16406 for a duplicate name.
pub(super) fn parse(parser: &mut Parser<'_>, document: Document<'_>) -> Result<Node> {
    let mut fields: Vec<(FieldNameBuf, Node)> = Vec::new();
    let mut names = OrderedFields::default();
    for element in document {
        let name = element.name();
        check_field_name(name)?;
        if names.set(element.field_name(), Value::Null) {
            bail!(16406, "duplicate field name specified in object literal: {document}");
        }
        fields.push((element.field_name().to_owned(), parser.operand(element.value())?));
    }
    Ok(Node::Object(fields))
}

/// Builds the document; fields with missing values are omitted.
pub(super) fn evaluate<'a>(fields: &'a [(FieldNameBuf, Node)], scope: &Scope<'_, 'a>) -> Computed<'a> {
    let mut builder = Builder::new();
    for (name, node) in fields {
        if let Some(value) = node.evaluate(scope)? {
            let before = builder.len();
            builder.append(name, value);
            scope.charge_growth(before, &builder)?;
        }
    }
    scope.document(builder)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_parse_error};

    #[test]
    fn missing_fields_are_left_out() {
        check("{a: '$x', b: {c: '$y', d: 1}, e: {}}", "{x: 1}", "{a: 1, b: {d: 1}, e: {}}");
        check_parse_error("{a: 1, $b: 2}", 16410);
        check_parse_error("{a: 1, a: 2}", 16406);
    }
}

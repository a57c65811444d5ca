//! Formats the tree as a filter, in the normalised form that explain prints as `parsedQuery`.

use super::array::type_number;
use super::node::{Node, Predicate};
use super::regex_match::RegexMatch;
use base::bson::{Builder, FieldName, Value, ValueBuf};
use std::ffi::CStr;

/// Appends a condition's field to the open document.
pub(super) fn describe(node: &Node, out: &mut Builder) {
    match node {
        Node::And(children) if children.is_empty() => {}
        Node::And(children) => group(c"$and", children, out),
        Node::Or(children) => group(c"$or", children, out),
        Node::Nor(children) => group(c"$nor", children, out),
        Node::Field { path, .. } => {
            out.begin_document(path);
            describe_operators(node, out);
            out.end();
        }
        Node::Not(child) => match node.path() {
            Some(path) => {
                out.begin_document(path);
                describe_operators(node, out);
                out.end();
            }
            None => group(c"$nor", [&**child], out),
        },
        Node::Expr(expr) => {
            out.append(c"$expr", &expr.source);
        }
        Node::Schema(schema) => {
            out.append(c"$jsonSchema", schema.source());
        }
        Node::Text(query) => query.describe(out),
        Node::SampleRate(rate) => {
            out.append(c"$sampleRate", *rate);
        }
        Node::AlwaysTrue => {
            out.append(c"$alwaysTrue", 1.0);
        }
        Node::AlwaysFalse => {
            out.append(c"$alwaysFalse", 1.0);
        }
    }
}

/// Appends an array of conditions under an operator.
pub(super) fn group<'n>(
    name: &'static CStr,
    children: impl IntoIterator<Item = &'n Node>,
    out: &mut Builder,
) {
    out.begin_array(name);
    for child in children {
        out.push_document();
        describe(child, out);
        out.end();
    }
    out.end();
}

/// Appends the value of the path's field: the operators of a condition on a single path.
fn describe_operators(node: &Node, out: &mut Builder) {
    match node {
        Node::Field { predicate, .. } => describe_predicate(predicate, out),
        // An empty document would be a filter, so this prints the weakest condition: the value exists.
        Node::And(children) if children.is_empty() => {
            out.append(c"$exists", true);
        }
        Node::And(children) => children.iter().for_each(|child| describe_operators(child, out)),
        Node::Not(child) => {
            out.begin_document(c"$not");
            describe_operators(child, out);
            out.end();
        }
        other => describe(other, out),
    }
}

/// Appends the operators of a predicate to the open document of its field.
fn describe_predicate(predicate: &Predicate, out: &mut Builder) {
    match predicate {
        Predicate::Compare(comparison) => {
            out.append(FieldName::literal(comparison.op.name()), &comparison.operand);
        }
        Predicate::In(within) => {
            let patterns = within.regexes.iter();
            let patterns = patterns.map(RegexMatch::value);
            list(FieldName::literal("$in"), within.values.iter().map(ValueBuf::view).chain(patterns), out);
        }
        Predicate::Regex(regex) => {
            out.append(c"$regex", &regex.pattern);
            if !regex.options.is_empty() {
                out.append(c"$options", &regex.options);
            }
        }
        Predicate::Exists => {
            out.append(c"$exists", true);
        }
        Predicate::Type(types) => {
            let number = types.all_numbers.then_some(Value::String("number"));
            let codes = types.types.iter().map(|kind| Value::Int32(type_number(*kind)));
            list(FieldName::literal("$type"), number.into_iter().chain(codes), out);
        }
        Predicate::Mod(modulo) => {
            list(
                FieldName::literal("$mod"),
                [modulo.divisor, modulo.remainder].into_iter().map(Value::Int64),
                out,
            );
        }
        Predicate::Size(size) => {
            out.append(c"$size", size.0 as i32);
        }
        Predicate::Geo(geo) => {
            out.append_all(geo.source.view());
        }
        Predicate::Near(near) => {
            out.append_all(near.source());
        }
        Predicate::Bits(bits) => {
            list(
                FieldName::literal(bits.name()),
                bits.positions.iter().map(|&position| Value::Int32(position as i32)),
                out,
            );
        }
        Predicate::ElemMatchObject(filter) => {
            out.begin_document(c"$elemMatch");
            describe(filter, out);
            out.end();
        }
        Predicate::ElemMatchValue(operators) => {
            out.begin_document(c"$elemMatch");
            describe_operators(operators, out);
            out.end();
        }
    }
}

fn list<'v>(name: FieldName<'_>, values: impl Iterator<Item = Value<'v>>, out: &mut Builder) {
    out.begin_array(name);
    values.for_each(|value| {
        out.push(value);
    });
    out.end();
}

//! The tree as a filter again, in the normalised form that explain prints as `parsedQuery`.

use super::element::type_number;
use super::node::{Node, Predicate};
use base::bson::Builder;

/// Appends a condition's field to the open document.
pub(super) fn describe(node: &Node, out: &mut Builder) {
    match node {
        Node::And(children) if children.is_empty() => {}
        Node::And(children) => group("$and", children, out),
        Node::Or(children) => group("$or", children, out),
        Node::Nor(children) => group("$nor", children, out),
        Node::Field { path, .. } => {
            out.begin_document(path.as_str());
            describe_operators(node, out);
            out.end();
        }
        Node::Not(child) => match node.path() {
            Some(path) => {
                out.begin_document(path.as_str());
                describe_operators(node, out);
                out.end();
            }
            None => group("$nor", std::slice::from_ref(child), out),
        },
        Node::Expr(expr) => {
            out.append("$expr", &expr.source);
        }
        Node::Schema(schema) => {
            out.append("$jsonSchema", schema.source());
        }
        Node::SampleRate(rate) => {
            out.append("$sampleRate", *rate);
        }
        Node::AlwaysTrue => {
            out.append("$alwaysTrue", 1.0);
        }
        Node::AlwaysFalse => {
            out.append("$alwaysFalse", 1.0);
        }
    }
}

fn group(name: &str, children: &[Node], out: &mut Builder) {
    out.begin_array(name);
    for child in children {
        out.push_document();
        describe(child, out);
        out.end();
    }
    out.end();
}

/// Appends what stands right of the path: the operators of a condition on a single path.
fn describe_operators(node: &Node, out: &mut Builder) {
    match node {
        Node::Field { predicate, .. } => describe_predicate(predicate, out),
        Node::And(children) => children.iter().for_each(|child| describe_operators(child, out)),
        Node::Not(child) => {
            out.begin_document("$not");
            describe_operators(child, out);
            out.end();
        }
        other => describe(other, out),
    }
}

fn describe_predicate(predicate: &Predicate, out: &mut Builder) {
    match predicate {
        Predicate::Compare(comparison) => {
            out.append(comparison.op.name(), &comparison.operand);
        }
        Predicate::In(within) => {
            out.begin_array("$in");
            within.values.iter().for_each(|value| {
                out.push(value);
            });
            for regex in &within.regexes {
                out.push(base::bson::Value::Regex { pattern: &regex.pattern, options: &regex.options });
            }
            out.end();
        }
        Predicate::Regex(regex) => {
            out.append("$regex", &regex.pattern);
            if !regex.options.is_empty() {
                out.append("$options", &regex.options);
            }
        }
        Predicate::Exists => {
            out.append("$exists", true);
        }
        Predicate::Type(types) => {
            out.begin_array("$type");
            if types.all_numbers {
                out.push("number");
            }
            types.types.iter().for_each(|kind| {
                out.push(type_number(*kind));
            });
            out.end();
        }
        Predicate::Mod(modulo) => {
            out.begin_array("$mod").push(modulo.divisor).push(modulo.remainder).end();
        }
        Predicate::Size(size) => {
            out.append("$size", size.0 as i32);
        }
        Predicate::Bits(bits) => {
            out.begin_array(bits.name());
            bits.positions.iter().for_each(|&position| {
                out.push(position as i32);
            });
            out.end();
        }
        Predicate::ElemMatchObject(filter) => {
            out.begin_document("$elemMatch");
            describe(filter, out);
            out.end();
        }
        Predicate::ElemMatchValue(operators) => {
            out.begin_document("$elemMatch");
            describe_operators(operators, out);
            out.end();
        }
    }
}

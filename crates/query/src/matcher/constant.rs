//! Operators without a field: `$comment $alwaysTrue $alwaysFalse $sampleRate`.
//!
//! The parts of a database reference are here too: they are field names that start with `$`.

use super::comparison::{self, ComparisonOp};
use super::node::Node;
use super::number;
use super::parse::Parser;
use base::bson::{Element, Path};
use base::{Result, bail, err};

/// `$comment`: for logs and profilers; no condition.
pub(super) fn parse_comment(_: &Parser<'_>, _: &Element<'_>) -> Result<Option<Node>> {
    Ok(None)
}

pub(super) fn parse_always_true(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    require_one(element)?;
    Ok(Some(Node::AlwaysTrue))
}

pub(super) fn parse_always_false(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    require_one(element)?;
    Ok(Some(Node::AlwaysFalse))
}

fn require_one(element: &Element<'_>) -> Result<()> {
    let name = element.name();
    match number::parse_integer(name, element.value())? {
        1 => Ok(()),
        _ => Err(err!(FailedToParse, "{name} must be an integer value of 1")),
    }
}

/// `$sampleRate`: matches each document with the given probability.
pub(super) fn parse_sample_rate(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    let Some(number) = element.value().as_number() else {
        bail!(BadValue, "argument to $sampleRate must be a numeric type");
    };
    let rate = number.to_f64();
    if !(0.0..=1.0).contains(&rate) {
        bail!(BadValue, "numeric argument to $sampleRate must be in [0, 1]");
    }
    Ok(Some(Node::SampleRate(rate)))
}

/// `$ref $id $db`: equality with a part of a database reference.
pub(super) fn parse_reference(_: &Parser<'_>, element: &Element<'_>) -> Result<Option<Node>> {
    comparison::field(&Path::new(element.field_name()), ComparisonOp::Eq, element.value()).map(Some)
}

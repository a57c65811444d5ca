//! Operators known by name and refused: each says what it would need.

use super::node::Node;
use super::parse::Parser;
use base::bson::Element;
use base::{Result, err};

/// `$text`: needs a text index, and there are none, as MongoDB says itself in that case.
pub(super) fn parse_text(_: &Parser<'_>, _: &Element<'_>) -> Result<Option<Node>> {
    Err(err!(IndexNotFound, "text index required for $text query"))
}

/// `$where`: MongoDB's answer where it runs without JavaScript.
pub(super) fn parse_where(_: &Parser<'_>, _: &Element<'_>) -> Result<Option<Node>> {
    Err(err!(BadValue, "$where is not supported: no globalScriptEngine in $where parsing"))
}

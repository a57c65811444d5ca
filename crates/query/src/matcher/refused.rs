//! Operators known by name and refused: each says what it would need.

use super::node::Node;
use super::parse::Parser;
use base::bson::Element;
use base::{Result, err};

/// `$where`: MongoDB's answer where it runs without JavaScript.
pub(super) fn parse_where(_: &Parser<'_>, _: &Element<'_>) -> Result<Option<Node>> {
    Err(err!(BadValue, "$where is not supported: no globalScriptEngine in $where parsing"))
}

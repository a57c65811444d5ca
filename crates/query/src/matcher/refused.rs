//! Operators that are known by name and refused. Each error names the missing feature.

use super::node::Node;
use super::parse::Parser;
use base::bson::Element;
use base::{Result, err};

/// `$where`: MongoDB's error when it runs without JavaScript.
pub(super) fn parse_where(_: &Parser<'_>, _: &Element<'_>) -> Result<Option<Node>> {
    Err(err!(BadValue, "$where is not supported: no globalScriptEngine in $where parsing"))
}

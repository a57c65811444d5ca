//! Array literals: `[<expression>, …]`.

use super::evaluate::{Computed, Scope};
use super::node::Node;
use base::bson::{Builder, Value};

/// Builds the array; missing values become null, which keeps the positions.
pub(super) fn evaluate<'a>(nodes: &'a [Node], scope: &Scope<'_, 'a>) -> Computed<'a> {
    let mut builder = Builder::new();
    for node in nodes {
        let value = node.evaluate(scope)?.unwrap_or(Value::Null);
        let before = builder.len();
        builder.push(value);
        scope.charge_growth(before, &builder)?;
    }
    scope.array(builder)
}

//! `$currentOp`: the operations of the server.

use super::definition::{Asker, Resource, Right, is_set};
use super::external::{External, check_flags, options};
use base::bson::{Element, Value};
use base::{ErrorCode, Result};

/// The last asks all nodes of a sharded cluster.
const OPTIONS: &[&str] = &[
    "allUsers",
    "idleConnections",
    "idleCursors",
    "idleSessions",
    "localOps",
    "truncateOps",
    "targetAllNodes",
];

/// Errors: TypeMismatch unless the options are a document; those of flags.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    let options = options(spec, ErrorCode::TypeMismatch)?;
    check_flags(spec.name(), options, OPTIONS)?;
    Ok(External::CurrentOp(options.to_owned()))
}

/// A user's own operations need no action.
pub(crate) fn rights<'v>(specification: Value<'v>, _asker: &Asker<'_>) -> Vec<Right<'v>> {
    match is_set(specification, "allUsers") {
        true => vec![Right { on: Resource::Cluster, actions: &["inprog"] }],
        false => Vec::new(),
    }
}

//! `$currentOp`: the operations of the server.
//!
//! ```text
//! {$currentOp: {
//!     allUsers: <boolean>, idleConnections: <boolean>, idleCursors: <boolean>, idleSessions: <boolean>,
//!     localOps: <boolean>, truncateOps: <boolean>,
//! }}
//! ```
//!
//! All options are optional. `targetAllNodes` is for sharded clusters and is refused if true.

use super::definition::{Requester, Resource, Right, is_set};
use super::external::{External, check_flags, options, refuse_sharded};
use base::bson::{Element, Value};
use base::{ErrorCode, Result};

const OPTIONS: &[&str] = &[
    "allUsers",
    "idleConnections",
    "idleCursors",
    "idleSessions",
    "localOps",
    "truncateOps",
    "targetAllNodes",
];

/// Parses `$currentOp`. Errors: TypeMismatch unless the options are a document; the errors of flags.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    let options = options(spec, ErrorCode::TypeMismatch)?;
    check_flags(spec.name(), options, OPTIONS)?;
    refuse_sharded(spec.name(), options, "targetAllNodes")?;
    Ok(External::CurrentOp(options.to_owned()))
}

/// Returns the required rights. A user's own operations need no action.
pub(crate) fn rights<'v>(specification: Value<'v>, _requester: &Requester<'_>) -> Vec<Right<'v>> {
    match is_set(specification, "allUsers") {
        true => vec![Right { on: Resource::Cluster, actions: &["inprog"] }],
        false => Vec::new(),
    }
}

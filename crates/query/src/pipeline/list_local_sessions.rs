//! `$listLocalSessions` and `$listSessions`: the sessions in the server's cache. MongoDB copies its cache to the
//! collection that `$listSessions` reads. Here both read the cache.

use super::definition::{Requester, Resource, Right, is_set, values};
use super::external::{External, options};
use base::bson::{Document, Element, Value};
use base::{ErrorCode, Result};

/// Parses the stage. Errors: FailedToParse unless the options are a document.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    Ok(External::ListLocalSessions(options(spec, ErrorCode::FailedToParse)?.to_owned()))
}

/// Returns the required rights. A user's own sessions need no action.
pub(crate) fn rights<'v>(specification: Value<'v>, requester: &Requester<'_>) -> Vec<Right<'v>> {
    let options = specification.as_document().unwrap_or(Document::EMPTY);
    let mut users = values(options, "users").filter_map(|users| users.as_array());
    let only_own = users.all(|users| users.iter().all(|user| (requester.is)(user)));
    match is_set(specification, "allUsers") || !only_own {
        true => vec![Right { on: Resource::Cluster, actions: &["listSessions"] }],
        false => Vec::new(),
    }
}

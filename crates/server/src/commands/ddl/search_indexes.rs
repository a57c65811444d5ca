//! Commands on search indexes. MongoDB needs its search process for them. This server has no search
//! indexes.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::{Result, err};

const HELP: &str = "Manages search indexes. Refused, as by MongoDB without a search process.";

/// The row of `createSearchIndexes`.
pub(crate) const CREATE: Row = Row::new(
    "createSearchIndexes",
    Kind::Admin,
    HELP,
    refuse,
    Requirements::Collection(Action::CreateSearchIndexes),
);
/// The row of `dropSearchIndex`.
pub(crate) const DROP: Row =
    Row::new("dropSearchIndex", Kind::Admin, HELP, refuse, Requirements::Collection(Action::DropSearchIndex));
/// The row of `listSearchIndexes`.
pub(crate) const LIST: Row = Row::new(
    "listSearchIndexes",
    Kind::Admin,
    HELP,
    refuse,
    Requirements::Collection(Action::ListSearchIndexes),
);
/// The row of `updateSearchIndex`.
pub(crate) const UPDATE: Row = Row::new(
    "updateSearchIndex",
    Kind::Admin,
    HELP,
    refuse,
    Requirements::Collection(Action::UpdateSearchIndex),
);

/// Refuses the command.
///
/// Errors: SearchNotEnabled.
fn refuse(_: &mut Call<'_>) -> Result<HandlerStatus> {
    Err(err!(
        SearchNotEnabled,
        "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional \
         configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on \
         how to connect, see https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs"
    ))
}

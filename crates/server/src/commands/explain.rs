//! `explain`: how another command would be, or was, carried out.

use crate::call::{Answer, Call};
use crate::command::{Command, Kind};
use base::{Result, err};

/// What MongoDB reports where the client doesn't say.
pub(crate) const DEFAULT_VERBOSITY: &str = "allPlansExecution";

/// The row of the table.
pub(crate) const EXPLAIN: Command =
    Command::new("explain", Kind::Read, "Tells how a command is carried out.", explain)
        .stable_api()
        .takes_read_concern();

fn explain(_: &mut Call<'_>) -> Result<Answer> {
    Err(err!(NotImplemented, "explain is not implemented"))
}

/// The explanation of an aggregate.
pub(crate) fn aggregate(_: &mut Call<'_>, _: super::aggregate::Parts<'_>, _: &str) -> Result<Answer> {
    Err(err!(NotImplemented, "explain is not implemented"))
}

//! The commands on the plan cache. Plans are made anew for every query, so there are none to
//! clear; index filters, which would tie a shape of query to some indexes, can't be set, and so
//! there are none to list or clear either.

use crate::call::{Answer, Call};
use crate::command::{Command, Kind};
use base::bson::Document;
use base::{Result, err};
use database::language::{Matcher, SortPattern};

/// The row of `planCacheClear`.
pub(crate) const CLEAR: Command = Command::new(
    "planCacheClear",
    Kind::Admin,
    "Forgets the plans of a collection; there are none.",
    clear_plans,
);

/// The row of `planCacheClearFilters`.
pub(crate) const CLEAR_FILTERS: Command = Command::new(
    "planCacheClearFilters",
    Kind::Admin,
    "Forgets the index filters of a collection; there are none.",
    clear_plans,
);

/// Checks the shape that is meant, and does nothing with it.
fn clear_plans(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.namespace()?;
    let query = fields.document("query")?;
    let sort = fields.document("sort")?;
    let projection = fields.document("projection")?;
    fields.collation()?;
    fields.finish()?;
    if query.is_none() && (sort.is_some() || projection.is_some()) {
        return Err(err!(BadValue, "sort, projection, and collation are not allowed without query"));
    }
    let surroundings = call.surroundings();
    Matcher::parse(query.unwrap_or(Document::EMPTY), &surroundings.context)?;
    sort.filter(|sort| !sort.is_empty()).map(SortPattern::parse).transpose()?;
    Ok(Answer::Done)
}

/// The row of `planCacheListFilters`.
pub(crate) const LIST_FILTERS: Command = Command::new(
    "planCacheListFilters",
    Kind::Read,
    "Lists the index filters of a collection; there are none.",
    list_filters,
);

fn list_filters(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.namespace()?;
    fields.finish()?;
    call.reply.begin_array("filters").end();
    Ok(Answer::Done)
}

//! Privileges for commands that change collections and views.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::data::full;
use super::pipeline::stages;
use super::{Authorizer, values};
use base::bson::{Array, Value};
use base::{Result, bail};

/// `create`: a view also requires the privileges to read its source, unless the user cannot read
/// the view.
pub(crate) fn create(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let own = authorizer.collection();
    if authorizer.has("capped") {
        authorizer.require(own, Action::ConvertToCapped)?;
    }
    let is_view = values(authorizer.body, "viewOn").any(|on| !on.is_nullish());
    // A user with the insert privilege can create the collection by an insert anyway.
    let by_insert = !is_view
        && !authorizer.is_authorized(own, Action::CreateCollection)
        && authorizer.is_authorized(own, Action::Insert);
    authorizer.require(own, if by_insert { Action::Insert } else { Action::CreateCollection })?;
    view(authorizer)
}

/// `collMod`: a change of a view also requires the privileges to read its new source.
///
/// Errors: Unauthorized; InvalidOptions for only one of `viewOn` and `pipeline`.
pub(crate) fn coll_mod(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(authorizer.collection(), Action::CollMod)?;
    let has = |name: &str| authorizer.body.get(name).is_some();
    if has("viewOn") != has("pipeline") {
        bail!(
            InvalidOptions,
            "Must specify both 'viewOn' and 'pipeline' when modifying a view and auth is enabled"
        );
    }
    view(authorizer)
}

/// Requires the privileges to read the source of a view if the user may read the view. A view
/// therefore gives no access to documents that its creator cannot read.
fn view(authorizer: &mut Authorizer<'_>) -> Result<()> {
    if !authorizer.is_authorized(authorizer.collection(), Action::Find) {
        return Ok(());
    }
    let on: Vec<&str> = values(authorizer.body, "viewOn").filter_map(|on| on.as_str()).collect();
    let pipelines: Vec<Array<'_>> =
        values(authorizer.body, "pipeline").filter_map(|pipeline| pipeline.as_array()).collect();
    for collection in on {
        if pipelines.is_empty() {
            authorizer.require(Resource::named(authorizer.database, Some(collection)), Action::Find)?;
        }
        for pipeline in &pipelines {
            stages(authorizer, collection, *pipeline)?;
        }
    }
    Ok(())
}

/// `cloneCollectionAsCapped`: requires find on the source, and the actions that create the target.
pub(crate) fn clone_as_capped(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(authorizer.collection(), Action::Find)?;
    let to = authorizer.body.get("toCollection").and_then(|name| name.as_str());
    let actions = Actions::of(&[Action::ConvertToCapped, Action::CreateIndex, Action::Insert]);
    authorizer.require_all(Resource::named(authorizer.database, to), actions)
}

/// `renameCollection`: within a database a separate privilege suffices, unless the new name lets
/// the user read documents that were unreadable before. Across databases it requires the privileges
/// to copy and drop.
pub(crate) fn rename(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let text = |value: Option<Value<'_>>| value.and_then(|name| name.as_str().map(str::to_string));
    let (Some(from), Some(to)) = (text(authorizer.value()), text(authorizer.body.get("to"))) else {
        return authorizer.require(Resource::AnyNormal, Action::RenameCollectionSameDB);
    };
    let (source, target) = (full(&from), full(&to));
    let database = |name: &str| name.split_once('.').map_or(name.to_string(), |parts| parts.0.to_string());
    let (source_database, target_database) = (database(&from), database(&to));
    if authorizer.has("dropTarget") {
        authorizer.require(target, Action::DropCollection)?;
    }
    let shows_more =
        !authorizer.is_authorized(source, Action::Find) && authorizer.is_authorized(target, Action::Find);
    let within = source_database == target_database
        && !shows_more
        && authorizer.is_authorized(Resource::Database(&source_database), Action::RenameCollectionSameDB);
    if within && both_normal(&from, &to) {
        return authorizer.require(Resource::Database(&source_database), Action::RenameCollectionSameDB);
    }
    authorizer.require_all(source, Actions::of(&[Action::DropCollection, Action::Find]))?;
    authorizer.require_all(target, Actions::of(&[Action::CreateIndex, Action::Insert]))
}

/// Returns true if neither is a system collection. Privileges on a database do not cover system
/// collections.
fn both_normal(from: &str, to: &str) -> bool {
    let is_normal = |name: &str| {
        name.split_once('.').is_some_and(|(database, name)| super::super::resource::is_normal(database, name))
    };
    is_normal(from) && is_normal(to)
}

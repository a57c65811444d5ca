//! Privileges for commands that read and write documents.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::{Authorizer, is_set, values};
use base::Result;
use base::bson::{Document, Value};

const BYPASS: &str = "bypassDocumentValidation";

/// Adds the action to bypass validation if the request has the flag.
fn with_bypass(authorizer: &Authorizer<'_>, actions: Actions) -> Actions {
    match authorizer.has(BYPASS) {
        true => actions.and(Actions::one(Action::BypassDocumentValidation)),
        false => actions,
    }
}

/// `insert`: requires insert, and the action to bypass validation if the request has the flag.
pub(crate) fn insert(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let actions = with_bypass(authorizer, Actions::one(Action::Insert));
    authorizer.require_all(authorizer.collection(), actions)
}

/// `update`: also requires insert if a statement has `upsert`.
pub(crate) fn update(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let mut actions = with_bypass(authorizer, Actions::one(Action::Update));
    if authorizer.documents("updates").iter().any(|statement| is_set(*statement, "upsert")) {
        actions = actions.and(Actions::one(Action::Insert));
    }
    authorizer.require_all(authorizer.collection(), actions)
}

/// `findAndModify`: requires find, and the actions of `remove`, `update` and `upsert`.
pub(crate) fn find_and_modify(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let mut actions = with_bypass(authorizer, Actions::one(Action::Find));
    if authorizer.has("remove") {
        actions = actions.and(Actions::one(Action::Remove));
    }
    if authorizer.body.get("update").is_some() {
        actions = actions.and(Actions::one(Action::Update));
    }
    if authorizer.has("upsert") {
        actions = actions.and(Actions::one(Action::Insert));
    }
    authorizer.require_all(authorizer.collection(), actions)
}

/// `bulkWrite`: requires on each namespace the actions of its operations.
pub(crate) fn bulk_write(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let namespaces = authorizer.documents("nsInfo");
    let mut actions = vec![Actions::NONE; namespaces.len()];
    for operation in authorizer.documents("ops") {
        let Some(first) = operation.first() else { continue };
        let index = first.value().as_number().and_then(|index| usize::try_from(index.to_i64_clamped()).ok());
        // The handler refuses an operation without a valid namespace before the first write.
        let Some(needed) = index.and_then(|index| actions.get_mut(index)) else { continue };
        let one = match first.name() {
            "insert" => Actions::one(Action::Insert),
            "delete" => Actions::one(Action::Remove),
            _ if is_set(operation, "upsert") => Actions::of(&[Action::Insert, Action::Update]),
            _ => Actions::one(Action::Update),
        };
        *needed = needed.and(one);
    }
    for (information, actions) in namespaces.into_iter().zip(actions) {
        let actions = if actions.is_empty() { actions } else { with_bypass(authorizer, actions) };
        for name in values(information, "ns").filter_map(|name| name.as_str()) {
            authorizer.require_all(full(name), actions)?;
        }
    }
    Ok(())
}

/// Returns the resource of a full name (`database.collection`).
pub(super) fn full(name: &str) -> Resource<'_> {
    let (database, collection) = name.split_once('.').unwrap_or((name, ""));
    Resource::named(database, Some(collection))
}

/// `dataSize` and `checkShardingIndex`: require find on the full name in the command's own field.
pub(crate) fn find_in_named(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let resource = match authorizer.value().and_then(|value| value.as_str()) {
        Some(name) => full(name),
        None => Resource::Database(authorizer.database),
    };
    authorizer.require(resource, Action::Find)
}

/// `filemd5`: reads the chunks of a file.
pub(crate) fn file_md5(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let root = authorizer.body.get("root").and_then(|root| root.as_str()).unwrap_or("fs");
    let chunks = format!("{root}.chunks");
    authorizer.require(Resource::Collection(authorizer.database, &chunks), Action::Find)
}

/// `explain`: requires the privileges of the explained command.
pub(crate) fn explain(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let inner = authorizer.value().and_then(|inner| inner.as_document()).unwrap_or(Document::EMPTY);
    authorizer.check_other(authorizer.database, inner)
}

/// `mapReduce`: reads, and writes if it has a target.
pub(crate) fn map_reduce(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(authorizer.collection(), Action::Find)?;
    let targets: Vec<Value<'_>> = values(authorizer.body, "out").collect();
    for target in targets {
        match target {
            Value::String(name) => {
                let actions = Actions::of(&[Action::Insert, Action::Remove]);
                authorizer.require_all(
                    Resource::named(authorizer.database, Some(name)),
                    with_bypass(authorizer, actions),
                )?;
            }
            Value::Document(target) => {
                let database = target.get("db").and_then(|name| name.as_str()).unwrap_or(authorizer.database);
                for (mode, action) in
                    [("replace", Action::Remove), ("merge", Action::Update), ("reduce", Action::Update)]
                {
                    let Some(name) = target.get(mode).and_then(|name| name.as_str()) else { continue };
                    let actions = with_bypass(authorizer, Actions::of(&[Action::Insert, action]));
                    authorizer.require_all(Resource::named(database, Some(name)), actions)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

//! Privileges for commands that read and write documents.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::{Asked, is_set, values};
use base::Result;
use base::bson::{Document, Value};

const BYPASS: &str = "bypassDocumentValidation";

/// Adds the action to bypass validation if the request has the flag.
fn with_bypass(asked: &Asked<'_>, actions: Actions) -> Actions {
    match asked.has(BYPASS) {
        true => actions.and(Actions::one(Action::BypassDocumentValidation)),
        false => actions,
    }
}

/// `insert`: requires insert, and the action to bypass validation if the request has the flag.
pub(crate) fn insert(asked: &mut Asked<'_>) -> Result<()> {
    let actions = with_bypass(asked, Actions::one(Action::Insert));
    asked.need_all(asked.collection(), actions)
}

/// `update`: also requires insert if a statement has `upsert`.
pub(crate) fn update(asked: &mut Asked<'_>) -> Result<()> {
    let mut actions = with_bypass(asked, Actions::one(Action::Update));
    if asked.documents("updates").iter().any(|statement| is_set(*statement, "upsert")) {
        actions = actions.and(Actions::one(Action::Insert));
    }
    asked.need_all(asked.collection(), actions)
}

/// `findAndModify`: requires find, and the actions of `remove`, `update` and `upsert`.
pub(crate) fn find_and_modify(asked: &mut Asked<'_>) -> Result<()> {
    let mut actions = with_bypass(asked, Actions::one(Action::Find));
    if asked.has("remove") {
        actions = actions.and(Actions::one(Action::Remove));
    }
    if asked.body.get("update").is_some() {
        actions = actions.and(Actions::one(Action::Update));
    }
    if asked.has("upsert") {
        actions = actions.and(Actions::one(Action::Insert));
    }
    asked.need_all(asked.collection(), actions)
}

/// `bulkWrite`: requires on each namespace the actions of its operations.
pub(crate) fn bulk_write(asked: &mut Asked<'_>) -> Result<()> {
    let namespaces = asked.documents("nsInfo");
    let mut actions = vec![Actions::NONE; namespaces.len()];
    for operation in asked.documents("ops") {
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
        let actions = if actions.is_empty() { actions } else { with_bypass(asked, actions) };
        for name in values(information, "ns").filter_map(|name| name.as_str()) {
            asked.need_all(full(name), actions)?;
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
pub(crate) fn find_in_named(asked: &mut Asked<'_>) -> Result<()> {
    let resource = match asked.value().and_then(|value| value.as_str()) {
        Some(name) => full(name),
        None => Resource::Database(asked.database),
    };
    asked.need(resource, Action::Find)
}

/// `filemd5`: reads the chunks of a file.
pub(crate) fn file_md5(asked: &mut Asked<'_>) -> Result<()> {
    let root = asked.body.get("root").and_then(|root| root.as_str()).unwrap_or("fs");
    let chunks = format!("{root}.chunks");
    asked.need(Resource::Collection(asked.database, &chunks), Action::Find)
}

/// `explain`: requires the privileges of the explained command.
pub(crate) fn explain(asked: &mut Asked<'_>) -> Result<()> {
    let inner = asked.value().and_then(|inner| inner.as_document()).unwrap_or(Document::EMPTY);
    asked.check_other(asked.database, inner)
}

/// `mapReduce`: reads, and writes if it has a target.
pub(crate) fn map_reduce(asked: &mut Asked<'_>) -> Result<()> {
    asked.need(asked.collection(), Action::Find)?;
    let targets: Vec<Value<'_>> = values(asked.body, "out").collect();
    for target in targets {
        match target {
            Value::String(name) => {
                let actions = Actions::of(&[Action::Insert, Action::Remove]);
                asked.need_all(Resource::named(asked.database, Some(name)), with_bypass(asked, actions))?;
            }
            Value::Document(target) => {
                let database = target.get("db").and_then(|name| name.as_str()).unwrap_or(asked.database);
                for (mode, action) in
                    [("replace", Action::Remove), ("merge", Action::Update), ("reduce", Action::Update)]
                {
                    let Some(name) = target.get(mode).and_then(|name| name.as_str()) else { continue };
                    let actions = with_bypass(asked, Actions::of(&[Action::Insert, action]));
                    asked.need_all(Resource::named(database, Some(name)), actions)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

//! The comparison of all stored data with the model.

use crate::action::{Action, COLLECTIONS, Doc, Outcome, namespace};
use crate::model::Model;
use crate::process::Process;
use base::bson::extended_json;

/// Compares all data of a process with the model's latest version.
pub(crate) fn verify(process: &Process, model: &Model) -> Result<(), String> {
    COLLECTIONS.iter().try_for_each(|place| verify_collection(process, model, place))
}

fn verify_collection(process: &Process, model: &Model, place: &'static str) -> Result<(), String> {
    let state = model.state();
    let (database, name) = namespace(place);
    let list = format!("{{listCollections: 1, filter: {{name: '{name}'}}, $db: '{database}'}}");
    let found = process.command(&list)?;
    let found = extended_json::to_relaxed(found.view());
    if found.contains(&format!("\"name\":\"{name}\"")) != state.contains_key(place) {
        return Err(format!("{place} exists or not: {found}"));
    }
    if !state.contains_key(place) {
        return Ok(());
    }
    let docs: Vec<Doc> = state.get(place).into_iter().flat_map(|docs| docs.values().copied()).collect();
    let mut ways = vec!["$natural", "_id"];
    let indexes = process.command(&format!("{{listIndexes: '{name}', $db: '{database}'}}"))?;
    let indexes = extended_json::to_relaxed(indexes.view());
    let exists = |name: &str| indexes.contains(&format!("\"name\":\"{name}\""));
    ways.extend(
        [("u", "u"), ("n", "n"), ("v", "u")].iter().filter(|(name, _)| exists(name)).map(|(_, field)| *field),
    );
    for way in ways {
        let reply = process.command(&format!("{{find: '{name}', hint: {{{way}: 1}}, $db: '{database}'}}"))?;
        let found = Action::Find(None).outcome(reply.view())?;
        if found != Outcome::Docs(docs.clone()) {
            return Err(format!("{place} by {way} has {found:?}, expected {docs:?}"));
        }
    }
    let reply = process.command(&format!("{{count: '{name}', $db: '{database}'}}"))?;
    let count = Action::Count.outcome(reply.view())?;
    if count != Outcome::Count(docs.len() as i64) {
        return Err(format!("{place} has {} documents, and counts {count:?}", docs.len()));
    }
    let reply = process.command(&format!("{{validate: '{name}', $db: '{database}'}}"))?;
    match reply.view().get("valid").and_then(|valid| valid.as_bool()) {
        Some(true) => Ok(()),
        _ => Err(format!("{place} is not valid: {}", extended_json::to_relaxed(reply.view()))),
    }
}

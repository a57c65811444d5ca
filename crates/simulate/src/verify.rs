//! The comparison of all stored data with the model.

use crate::action::{Action, COLLECTIONS, Doc, Outcome, USERS, cursor, namespace, user_name};
use crate::model::Model;
use crate::process::Process;
use base::bson::extended_json;
use std::collections::BTreeSet;

/// Compares all data of a process with the model's latest version.
pub(crate) fn verify(process: &Process, model: &Model) -> Result<(), String> {
    let users = process.command("{find: 'system.users', $db: 'admin'}")?;
    let (_, users) = cursor(users.view())?;
    let names = users.iter().filter_map(|user| user.get("user")?.as_str().map(str::to_string));
    let found: BTreeSet<String> = names.collect();
    let expected = model.state().get(USERS).into_iter().flat_map(|users| users.keys());
    let expected: BTreeSet<String> = expected.map(|user| user_name(*user)).collect();
    if found != expected {
        return Err(format!("the users {found:?} instead of {expected:?}"));
    }
    let mut existing = BTreeSet::new();
    for database in COLLECTIONS.map(|collection| namespace(collection).0).into_iter().collect::<BTreeSet<_>>()
    {
        let list = format!("{{listCollections: 1, nameOnly: true, $db: '{database}'}}");
        let reply = process.command(&list)?;
        let (_, collections) = cursor(reply.view())?;
        let names = collections.iter().filter_map(|collection| collection.get("name")?.as_str());
        existing.extend(names.map(|name| (database, name.to_string())));
    }
    for collection in COLLECTIONS {
        let (database, name) = namespace(collection);
        let exists = existing.contains(&(database, name.to_string()));
        if exists != model.state().contains_key(collection) {
            return Err(format!("{collection} exists: {exists}, existing {existing:?}"));
        }
        if exists {
            verify_collection(process, model, collection)?;
        }
    }
    Ok(())
}

fn verify_collection(process: &Process, model: &Model, collection: &'static str) -> Result<(), String> {
    let state = model.state();
    let (database, name) = namespace(collection);
    let docs: Vec<Doc> = state.get(collection).into_iter().flat_map(|docs| docs.values().copied()).collect();
    let mut ways = vec!["$natural", "_id"];
    // The check by `validate` suffices for indexes without entries.
    if !docs.is_empty() {
        let indexes = process.command(&format!("{{listIndexes: '{name}', $db: '{database}'}}"))?;
        let indexes = extended_json::to_relaxed(indexes.view());
        let exists = |name: &str| indexes.contains(&format!("\"name\":\"{name}\""));
        let fields = [("u", "u"), ("n", "n"), ("v", "u")];
        ways.extend(fields.iter().filter(|(name, _)| exists(name)).map(|(_, field)| *field));
    }
    for way in ways {
        let reply = process.command(&format!("{{find: '{name}', hint: {{{way}: 1}}, $db: '{database}'}}"))?;
        let found = Action::Find(None).outcome(reply.view())?;
        if found != Outcome::Docs(docs.clone()) {
            return Err(format!("{collection} by {way} has {found:?}, expected {docs:?}"));
        }
    }
    let reply = process.command(&format!("{{count: '{name}', $db: '{database}'}}"))?;
    let count = Action::Count.outcome(reply.view())?;
    if count != Outcome::Count(docs.len() as i64) {
        return Err(format!("{collection} has {} documents, and counts {count:?}", docs.len()));
    }
    let reply = process.command(&format!("{{validate: '{name}', $db: '{database}'}}"))?;
    match reply.view().get("valid").and_then(|valid| valid.as_bool()) {
        Some(true) => Ok(()),
        _ => Err(format!("{collection} is not valid: {}", extended_json::to_relaxed(reply.view()))),
    }
}

//! Privileges for `applyOps`: its own action, and for each operation the privileges of the matching command.
//!
//! As in MongoDB, UUIDs require separate actions. An empty list requires all actions, as does a list that creates or
//! renames a collection among other operations.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::data::{full, with_bypass};
use super::{Authorizer, values};
use base::bson::{Document, Value};
use base::{CompatibleWith, Result};

/// `applyOps`.
pub(crate) fn apply_ops(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(Resource::Cluster, Action::ApplyOps)?;
    operations(authorizer, authorizer.body, authorizer.compatible_with < CompatibleWith::V8_2)
}

/// Checks the operations of the command or of a nested applyOps, which inherits `always_upsert`. The nesting limit
/// of messages bounds the recursion.
fn operations(authorizer: &mut Authorizer<'_>, command: Document<'_>, always_upsert: bool) -> Result<()> {
    let given: Vec<bool> = values(command, "alwaysUpsert").map(|upsert| upsert.is_truthy()).collect();
    let always_upsert = if given.is_empty() { always_upsert } else { given.contains(&true) };
    let Some(listed) = command.first().and_then(|first| first.value().as_array()) else { return Ok(()) };
    let count = listed.iter().count();
    let operations: Vec<Document<'_>> = listed.iter().filter_map(|listed| listed.as_document()).collect();
    let has = |name: &str| operations.iter().any(|operation| command_in(*operation) == Some(name));
    if count == 0 || count > 1 && (has("create") || has("renameCollection")) {
        authorizer.require_all(Resource::Any, Actions::ALL)?;
    }
    for operation in operations {
        let command = command_in(operation);
        if has_uuid(operation) || command.is_some() && object(operation).is_some_and(has_uuid) {
            authorizer.require(Resource::Cluster, Action::UseUUID)?;
            // The entry creates a collection with this UUID, or renames the present one.
            if command == Some("create") {
                authorizer.require(Resource::Cluster, Action::ForceUUID)?;
            }
        }
        let kinds: Vec<&str> = values(operation, "op").filter_map(|kind| kind.as_str()).collect();
        let names: Vec<&str> = values(operation, "ns").filter_map(|name| name.as_str()).collect();
        for (kind, name) in kinds.iter().flat_map(|kind| names.iter().map(move |name| (*kind, *name))) {
            applied(authorizer, kind, name, operation, always_upsert)?;
        }
    }
    Ok(())
}

fn object(operation: Document<'_>) -> Option<Document<'_>> {
    operation.get("o").and_then(|object| object.as_document())
}

/// Returns the name of the command that an operation contains.
fn command_in(operation: Document<'_>) -> Option<&str> {
    let is_command = values(operation, "op").any(|kind| kind.as_str() == Some("c"));
    object(operation).filter(|_| is_command)?.first().map(|first| first.name())
}

/// Returns true if a field of the document is a UUID.
fn has_uuid(document: Document<'_>) -> bool {
    document.iter().any(|field| matches!(field.value(), Value::Binary { subtype: 4, .. }))
}

fn applied(
    authorizer: &mut Authorizer<'_>,
    kind: &str,
    name: &str,
    operation: Document<'_>,
    always_upsert: bool,
) -> Result<()> {
    match kind {
        "n" => authorizer.require(Resource::Cluster, Action::AppendOplogNote),
        "i" => {
            let actions = with_bypass(authorizer, Actions::one(Action::Insert));
            authorizer.require_all(full(name), actions)
        }
        "u" => {
            let upserts = always_upsert || values(operation, "b").any(|upsert| upsert.is_truthy());
            let actions = if upserts { &[Action::Update, Action::Insert][..] } else { &[Action::Update] };
            authorizer.require_all(full(name), with_bypass(authorizer, Actions::of(actions)))
        }
        "d" => authorizer.require(full(name), Action::Remove),
        "c" => {
            let database = name.split_once('.').map_or(name, |parts| parts.0);
            let command = object(operation).unwrap_or(Document::EMPTY);
            let collection = command.first().and_then(|first| first.value().as_str());
            let collection = Resource::named(database, collection);
            match command.first().map_or("", |first| first.name()) {
                "applyOps" => operations(authorizer, command, always_upsert),
                // createIndexes derives the same privilege from its request. Here the entry names
                // the collection.
                "startIndexBuild" | "commitIndexBuild" | "abortIndexBuild" => {
                    authorizer.require(collection, Action::CreateIndex)
                }
                "dropIndex" | "deleteIndex" => authorizer.require(collection, Action::DropIndex),
                name if (authorizer.requirements_of)(name).is_none() => {
                    authorizer.require(Resource::Cluster, Action::Internal)
                }
                _ => authorizer.check_other(database, command),
            }
        }
        _ => authorizer.require(Resource::Cluster, Action::Internal),
    }
}

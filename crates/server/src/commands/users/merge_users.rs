//! `_mergeAuthzCollections`: moves users and roles of a dump from mongorestore's temporary
//! collections to the system collections.

use crate::access::{Requirements, requirements};
use crate::auth::store;
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use crate::state::system_collections;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Namespace, Result, bail, err};

/// Position in the command table.
pub(crate) const MERGE: Row =
    Row::write("_mergeAuthzCollections", merge, Requirements::By(requirements::merge_users))
        .help("Imports the users and roles of a dump.")
        .admin_only();

/// A kind of documents that the command moves: users or roles.
struct Part {
    /// Target collection.
    target: &'static str,
    /// Field with the name.
    name: &'static str,
    /// Required array fields, and required document fields.
    lists: &'static [&'static str],
    documents: &'static [&'static str],
}

const USERS: Part =
    Part { target: store::USERS, name: "user", lists: &["roles"], documents: &["credentials"] };
const ROLES: Part =
    Part { target: store::ROLES, name: "role", lists: &["roles", "privileges"], documents: &[] };

fn merge(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let users = fields.string("tempUsersCollection")?.filter(|name| !name.is_empty());
    let roles = fields.string("tempRolesCollection")?.filter(|name| !name.is_empty());
    let db = fields.required("db", Fields::string)?;
    let drops = fields.required("drop", Fields::flag)?;
    fields.finish()?;
    if users.is_none() && roles.is_none() {
        bail!(BadValue, "Must provide at least one of \"tempUsersCollection\" and \"tempRolesCollection\"");
    }
    let _changing = call.server.auth.changing.lock();
    for (part, from) in [(USERS, users), (ROLES, roles)] {
        if let Some(from) = from {
            take_over(call, &part, &Namespace::parse(from)?, db, drops)?;
        }
    }
    call.acknowledge(None)
}

/// Moves the documents of a collection to its target, limited to a database if one is named.
///
/// Validates all documents before the first change.
fn take_over(call: &Call<'_>, part: &Part, from: &Namespace, db: &str, drops: bool) -> Result<()> {
    let mut filter = Builder::new();
    if !db.is_empty() {
        filter.append(c"db", db);
    }
    let filter = filter.finish();
    let found = system_collections::find(&call.server.database, from, filter.view(), 0)?;
    found.iter().try_for_each(|document| check(part, document.view()))?;
    for document in &found {
        let mut update = Builder::new();
        update.append(c"update", part.target).begin_array(c"updates").push_document();
        update.begin_document(c"q").append_optional(c"_id", document.view().get("_id")).end();
        update.append(c"u", document).append(c"upsert", true).end().end();
        run(call, update)?;
    }
    if !drops {
        return Ok(());
    }
    let mut delete = Builder::new();
    delete.append(c"delete", part.target).begin_array(c"deletes").push_document();
    delete.begin_document(c"q").append_all(filter.view());
    delete.begin_document(c"_id").begin_array(c"$nin");
    for id in found.iter().filter_map(|document| document.view().get("_id")) {
        delete.push(id);
    }
    delete.end().end().end().append(c"limit", 0).end().end();
    run(call, delete).map(drop)
}

fn run(call: &Call<'_>, mut command: Builder) -> Result<DocumentBuf> {
    command.begin_document(c"writeConcern").append(c"w", 1).end().append(c"$db", "admin");
    call.run_inner(command.finish().view())
}

/// Checks that a document is a valid user or role.
fn check(part: &Part, document: Document<'_>) -> Result<()> {
    let text =
        |name: &str| document.get(name).and_then(|value| value.as_str()).filter(|text| !text.is_empty());
    let invalid = |message: String| Err(err!(BadValue, "Invalid document for {}: {message}", part.target));
    let (Some(name), Some(db)) = (text(part.name), text("db")) else {
        return invalid(format!("it needs '{}' and 'db' to be non-empty strings", part.name));
    };
    if text("_id") != Some(format!("{db}.{name}").as_str()) {
        return invalid(format!("'_id' of {name}@{db} does not match"));
    }
    let is_list = |name: &&&str| matches!(document.get(name), Some(Value::Array(_)));
    let is_document = |name: &&&str| matches!(document.get(name), Some(Value::Document(_)));
    let missing = part.lists.iter().find(|name| !is_list(name));
    match missing.or(part.documents.iter().find(|name| !is_document(name))) {
        Some(missing) => invalid(format!("'{missing}' of {name}@{db} is missing, or of another type")),
        None => Ok(()),
    }
}

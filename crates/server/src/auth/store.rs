//! The documents of users and roles: read without a client, written as clients would.

use crate::direct;
use crate::names::UserName;
use crate::server::Server;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{ErrorCode, Namespace, Result};
use database::FindRequest;
use database::Scope;
use database::language::Context;
use std::sync::Arc;

/// The collection of users, in `admin`.
pub(crate) const USERS: &str = "system.users";

/// The collection of roles that aren't built in, in `admin`.
pub(crate) const ROLES: &str = "system.roles";

/// The documents of a collection of `admin` that match. They are read whatever the server's part in its set is.
///
/// Errors: the filter's; the store's.
pub(crate) fn find(server: &Server, collection: &str, filter: Document<'_>) -> Result<Vec<DocumentBuf>> {
    find_in(server, &Namespace::new("admin", collection)?, filter)
}

/// The documents of any collection that match.
///
/// Errors: the filter's; the store's.
pub(crate) fn find_in(
    server: &Server,
    namespace: &Namespace,
    filter: Document<'_>,
) -> Result<Vec<DocumentBuf>> {
    find_some(server, namespace, filter, 0)
}

/// The document of a user, if there is one.
///
/// Errors: the store's.
pub(crate) fn user(server: &Server, user: &UserName) -> Result<Option<DocumentBuf>> {
    let mut filter = Builder::new();
    filter.append(c"_id", &user.id()).append(c"user", &user.name).append(c"db", &user.db);
    let users = Namespace::new("admin", USERS)?;
    Ok(find_some(server, &users, filter.finish().view(), 1)?.pop())
}

/// Whether a collection of `admin` has any document.
///
/// Errors: the store's.
pub(super) fn has_any(server: &Server, collection: &str) -> Result<bool> {
    let namespace = Namespace::new("admin", collection)?;
    Ok(!find_some(server, &namespace, Document::EMPTY, 1)?.is_empty())
}

fn find_some(
    server: &Server,
    namespace: &Namespace,
    filter: Document<'_>,
    limit: u64,
) -> Result<Vec<DocumentBuf>> {
    server.database.by_latest_catalog(|| find_once(server, namespace, filter, limit))
}

fn find_once(
    server: &Server,
    namespace: &Namespace,
    filter: Document<'_>,
    limit: u64,
) -> Result<Vec<DocumentBuf>> {
    let database = &server.database;
    let operation = Arc::new(database.operation(0));
    let context = Context::new(database.now_millis(), server.random(), operation.clone());
    let request = FindRequest { limit, ..FindRequest::new(filter) };
    let mut cursor = database.find(&Scope::new(&operation, namespace, &Arc::new(context)), &request)?;
    let mut found = Vec::new();
    let mut ended = false;
    while !ended {
        let mut batch = Builder::new();
        batch.begin_array(c"found");
        ended = cursor.next_batch(u64::MAX, &mut batch)?.1;
        batch.end();
        let batch = batch.finish();
        let documents = batch.view().get("found").and_then(|documents| documents.as_array());
        let documents = documents.into_iter().flat_map(|documents| documents.iter());
        found.extend(documents.filter_map(|document| Some(document.as_document()?.to_owned())));
    }
    Ok(found)
}

/// The `_id` of the document in `admin.system.version` that a server writes while it makes the first user.
const FIRST: &str = "localhostException";

/// How long such a document keeps other servers out, in milliseconds.
const FIRST_LASTS: i64 = 30_000;

/// Claims the making of the first user for this server; `false` if another server has claimed it.
///
/// Errors: the store's.
pub(super) fn claim_first(server: &Server) -> Result<bool> {
    let now = server.database.now_millis();
    let mut claim = Builder::new();
    claim.append(c"update", "system.version").begin_array(c"updates").push_document();
    claim.begin_document(c"q").append(c"_id", FIRST).begin_document(c"at");
    claim.append(c"$lt", Value::DateTime(now - FIRST_LASTS)).end().end();
    claim.begin_document(c"u").begin_document(c"$set").append(c"at", Value::DateTime(now)).end().end();
    claim.append(c"upsert", true).end().end().append(c"$db", "admin");
    match run(server, claim.finish().view()) {
        Ok(_) => Ok(true),
        Err(error) if error.code() == ErrorCode::DuplicateKey => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the claim back.
///
/// Errors: the store's.
pub(super) fn release_first(server: &Server) -> Result<()> {
    let mut delete = Builder::new();
    delete.append(c"delete", "system.version").begin_array(c"deletes").push_document();
    delete
        .begin_document(c"q")
        .append(c"_id", FIRST)
        .end()
        .append(c"limit", 1)
        .end()
        .end()
        .append(c"$db", "admin");
    run(server, delete.finish().view()).map(drop)
}

/// Runs a command of the server's own, `$db` included.
///
/// Errors: the command's.
pub(crate) fn run(server: &Server, command: Document<'_>) -> Result<DocumentBuf> {
    direct::run(server, command)
}

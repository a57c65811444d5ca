//! The documents of users and roles, and the claim of who makes the first user.

use crate::names::UserName;
use crate::server::Server;
use crate::system_collections;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{ErrorCode, Namespace, Result};

/// The collection of users, in `admin`.
pub(crate) const USERS: &str = "system.users";

/// The collection of roles that aren't built in, in `admin`.
pub(crate) const ROLES: &str = "system.roles";

/// The documents of a collection of `admin` that match.
///
/// Errors: the filter's; the store's.
pub(crate) fn find(server: &Server, collection: &str, filter: Document<'_>) -> Result<Vec<DocumentBuf>> {
    system_collections::find(&server.database, &Namespace::new("admin", collection)?, filter, 0)
}

/// The document of a user, if there is one.
///
/// Errors: the store's.
pub(crate) fn user(server: &Server, user: &UserName) -> Result<Option<DocumentBuf>> {
    let mut filter = Builder::new();
    filter.append(c"_id", &user.id()).append(c"user", &user.name).append(c"db", &user.db);
    let users = Namespace::new("admin", USERS)?;
    Ok(system_collections::find(&server.database, &users, filter.finish().view(), 1)?.pop())
}

/// Whether a collection of `admin` has any document.
///
/// Errors: the store's.
pub(super) fn has_any(server: &Server, collection: &str) -> Result<bool> {
    let namespace = Namespace::new("admin", collection)?;
    Ok(!system_collections::find(&server.database, &namespace, Document::EMPTY, 1)?.is_empty())
}

/// The collection of versions, and of the claim below, in `admin`.
const VERSIONS: &str = "system.version";

/// The `_id` of the document that a server writes while it makes the first user.
const FIRST: &str = "localhostException";

/// How long such a document keeps other servers out, in milliseconds.
const FIRST_LASTS: i64 = 30_000;

/// Claims the making of the first user for this server; `false` if another server has claimed it.
///
/// Errors: the store's.
pub(super) fn claim_first(server: &Server) -> Result<bool> {
    let now = server.database.now_millis();
    let mut filter = Builder::new();
    filter.append(c"_id", FIRST).begin_document(c"at");
    filter.append(c"$lt", Value::DateTime(now - FIRST_LASTS)).end();
    let mut update = Builder::new();
    update.begin_document(c"$set").append(c"at", Value::DateTime(now)).end();
    let versions = Namespace::new("admin", VERSIONS)?;
    match system_collections::upsert(
        &server.database,
        &versions,
        filter.finish().view(),
        update.finish().view(),
    ) {
        Ok(()) => Ok(true),
        Err(error) if error.code() == ErrorCode::DuplicateKey => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the claim back.
///
/// Errors: the store's.
pub(super) fn release_first(server: &Server) -> Result<()> {
    system_collections::delete(&server.database, &Namespace::new("admin", VERSIONS)?, FIRST)
}

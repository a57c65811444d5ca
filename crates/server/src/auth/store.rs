//! Documents of users and roles, and the lease for the creation of the first user.

use crate::protocol::names::UserName;
use crate::state::system_collections;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{ErrorCode, Namespace, Result};
use database::Database;
use std::sync::Arc;

/// Collection of users in `admin`.
pub(crate) const USERS: &str = "system.users";

/// Collection of user-defined roles in `admin`.
pub(crate) const ROLES: &str = "system.roles";

/// Returns the matching documents of a collection in `admin`.
///
/// Errors: an invalid filter; the store's errors.
pub(crate) fn find(
    database: &Arc<Database>,
    collection: &str,
    filter: Document<'_>,
) -> Result<Vec<DocumentBuf>> {
    system_collections::find(database, &Namespace::new("admin", collection)?, filter, 0)
}

/// Returns the document of a user.
///
/// Errors: the store's errors.
pub(crate) fn user(database: &Arc<Database>, user: &UserName) -> Result<Option<DocumentBuf>> {
    let mut filter = Builder::new();
    filter.append(c"_id", &user.id()).append(c"user", &user.name).append(c"db", &user.db);
    let users = Namespace::new("admin", USERS)?;
    Ok(system_collections::find(database, &users, filter.finish().view(), 1)?.pop())
}

/// Returns true if a collection of `admin` has a document.
///
/// Errors: the store's errors.
pub(super) fn has_any(database: &Arc<Database>, collection: &str) -> Result<bool> {
    let namespace = Namespace::new("admin", collection)?;
    Ok(!system_collections::find(database, &namespace, Document::EMPTY, 1)?.is_empty())
}

/// Collection of versions and of the lease, in `admin`.
const VERSIONS: &str = "system.version";

/// `_id` of the lease document, which a server writes while it creates the first user.
const FIRST: &str = "localhostException";

/// Lifetime of a lease in milliseconds.
const FIRST_LASTS: i64 = 30_000;

/// Takes the lease for the creation of the first user; false if another server has it.
///
/// Errors: the store's errors.
pub(super) fn lease_first_user(database: &Arc<Database>) -> Result<bool> {
    let now = database.now_millis();
    let mut filter = Builder::new();
    filter.append(c"_id", FIRST).begin_document(c"at");
    filter.append(c"$lt", Value::DateTime(now - FIRST_LASTS)).end();
    let mut update = Builder::new();
    update.begin_document(c"$set").append(c"at", Value::DateTime(now)).end();
    let versions = Namespace::new("admin", VERSIONS)?;
    match system_collections::upsert(database, &versions, filter.finish().view(), update.finish().view()) {
        Ok(()) => Ok(true),
        Err(error) if error.code() == ErrorCode::DuplicateKey => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the lease.
///
/// Errors: the store's errors.
pub(super) fn release_first_user(database: &Arc<Database>) -> Result<()> {
    system_collections::delete(database, &Namespace::new("admin", VERSIONS)?, FIRST)
}

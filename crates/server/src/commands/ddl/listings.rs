//! `listDatabases` and `listCollections`.

use crate::access::{Action, Requirements, Resource, requirements};
use crate::auth;
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::cursors;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Namespace, Result, err};
use database::language::Matcher;
use std::collections::BTreeSet;

/// The row of `listDatabases`.
pub(crate) const LIST_DATABASES: Row = Row::read("listDatabases", list_databases, Requirements::Nothing)
    .help("Lists the databases.")
    .admin_only()
    .stable_api();

fn list_databases(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let filter = fields.document("filter")?.unwrap_or(Document::EMPTY);
    let name_only = fields.flag("nameOnly")?.unwrap_or(false);
    let authorized = fields.boolean("authorizedDatabases")?;
    fields.finish()?;
    let only_own = shows_only_own(call, authorized)?;
    let operation = call.operation();
    let context = call.context(&operation);
    let matcher = Matcher::parse(filter, &context)?;
    let database = call.server.database.clone();
    let catalog = database.catalog();
    let mut total = 0i64;
    call.reply.begin_array(c"databases");
    for name in with_system_databases(catalog.databases()) {
        if only_own && !auth::privileges(&call.server.auth, call.connection).touches(name) {
            continue;
        }
        let mut size = 0;
        let mut empty = true;
        for collection in catalog.collections(name) {
            empty = false;
            if name_only {
                break;
            }
            let statistics = database.statistics_of(&operation, collection)?;
            size +=
                statistics.storage_size + statistics.total_index_size() + database.entry_bytes(collection);
        }
        if name == "local" && !call.server.settings.shared {
            size += database.log_bytes().unwrap_or(0) as i64;
            empty &= database.log_bytes().is_none();
        }
        // The filter applies to the fields of the reply.
        let mut shown = Builder::new();
        shown.append(c"name", name);
        if !name_only {
            shown.append(c"sizeOnDisk", size).append(c"empty", empty);
        }
        let shown = shown.finish();
        if matcher.matches(shown.view(), &context)? {
            total += size;
            call.reply.push(&shown);
        }
    }
    call.reply.end();
    if !name_only {
        call.reply.append(c"totalSize", total).append(c"totalSizeMb", total / (1024 * 1024));
    }
    Ok(HandlerStatus::Done)
}

/// Returns true if the list is limited to databases on which the user has privileges. A user with
/// `listDatabases` sees all.
///
/// Errors: Unauthorized if the user requests all databases without that privilege.
fn shows_only_own(call: &Call<'_>, authorized: Option<bool>) -> Result<bool> {
    if !call.connection.is_access_controlled(&call.server.auth) {
        return Ok(false);
    }
    let sees_all =
        auth::is_authorized(&call.server.auth, call.connection, Resource::Cluster, Action::ListDatabases);
    match authorized {
        Some(false) if !sees_all => Err(err!(Unauthorized, "Insufficient permissions to list all databases")),
        authorized => Ok(!sees_all || authorized == Some(true)),
    }
}

/// Adds the system databases, which MongoDB lists even while they are empty.
fn with_system_databases<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    names.into_iter().chain(["admin", "config", "local"]).collect()
}

/// The row of `listCollections`.
pub(crate) const LIST_COLLECTIONS: Row =
    Row::read("listCollections", list_collections, Requirements::By(requirements::list_collections))
        .help("Lists the collections and views of a database.")
        .stable_api();

fn list_collections(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let filter = fields.document("filter")?.unwrap_or(Document::EMPTY);
    let name_only = fields.boolean("nameOnly")?.unwrap_or(false);
    let authorized = fields.boolean("authorizedCollections")?.unwrap_or(false);
    let batch_size = cursors::batch_size(fields.document("cursor")?, "listCollections")?;
    // MongoDB ignores this flag since 4.2.
    fields.flag("includePendingDrops")?;
    fields.finish()?;
    let context = call.context(&call.operation());
    let matcher = Matcher::parse(filter, &context)?;
    let catalog = call.server.database.catalog();
    let mut listed = Vec::new();
    let asks = authorized && call.connection.is_access_controlled(&call.server.auth);
    for collection in catalog.collections(call.request.database) {
        let resource = Resource::Collection(call.request.database, collection.namespace.collection());
        if asks && auth::privileges(&call.server.auth, call.connection).on(resource).is_empty() {
            continue;
        }
        // The filter applies to the fields of the reply.
        let shown = if name_only { collection.listed_name() } else { collection.listed() };
        if matcher.matches(shown.view(), &context)? {
            listed.push(shown);
        }
    }
    let log = Resource::Collection("local", "oplog.rs");
    // Neither a mongos nor a front lists the oplog.
    if call.request.database == "local"
        && !call.server.settings.shared
        && !(asks && auth::privileges(&call.server.auth, call.connection).on(log).is_empty())
        && let Some(size) = call.server.database.log_limit()
    {
        let entry = describe_log(size, name_only);
        if matcher.matches(entry.view(), &context)? {
            listed.push(entry);
        }
    }
    let namespace = Namespace::new(call.request.database, "$cmd.listCollections")?;
    cursors::listing(call, namespace, listed, batch_size.unwrap_or(u64::MAX))?;
    Ok(HandlerStatus::Done)
}

/// Describes the oplog as a capped collection without an index.
fn describe_log(size: u64, name_only: bool) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"name", "oplog.rs").append(c"type", "collection");
    if !name_only {
        out.begin_document(c"options").append(c"capped", true).append(c"size", size as i64);
        out.append(c"autoIndexId", false).end();
        out.begin_document(c"info").append(c"readOnly", false).end();
    }
    out.finish()
}

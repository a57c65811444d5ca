//! Commands on indexes: create, drop, list, modify.
//!
//! `checkShardingIndex` checks if a collection has an index that a shard key could use. MongoDB's routers send this
//! command. The check itself needs no shards.
//!
//! MongoDB needs its search process for search indexes. This server has no search indexes.

use crate::access::{Action, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::cursors;
use crate::commands::ddl::in_steps;
use crate::protocol::fields::Fields;
use base::bson::{Builder, Document, Value, equal};
use base::{Namespace, Result, bail, err};
use database::index::{Index, IndexSpec};
use database::{BuildProgress, IndexChange, IndexCreation, Scope, checked_age};

/// The row of `createIndexes`.
pub(crate) const CREATE_INDEXES: Row =
    Row::write("createIndexes", create_indexes, Requirements::Collection(Action::CreateIndex))
        .help("Creates indexes.")
        .stable_api()
        .in_transactions()
        .restarts();

fn create_indexes(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.named_collection()?;
    if fields.peek("indexes").is_some_and(|indexes| indexes.is_nullish()) {
        bail!(10065, "invalid parameter: expected an object (indexes)");
    }
    let indexes = fields.required("indexes", Fields::sequence)?;
    check_quorum(fields.any("commitQuorum")?)?;
    let ignore_unknown = fields.boolean("ignoreUnknownIndexOptions")?.unwrap_or(false);
    let uuid = fields.uuid("collectionUUID")?;
    // The version of the command's format, which MongoDB does not use.
    fields.integer("v")?;
    fields.finish()?;
    call.check_uuid(&namespace, uuid)?;
    // As in MongoDB, also if this server has no such records.
    if namespace.as_str() == "config.transactions" {
        bail!(IllegalOperation, "config.transactions is written by the server alone");
    }
    if indexes.is_empty() {
        bail!(BadValue, "Must specify at least one index to create");
    }
    let begin = |call: &Call<'_>| {
        let database = &call.server.database;
        // Indexes use the collection's collation. The call refreshes the catalog, because no later read
        // would detect an old collation.
        database.catalog();
        let scope = call.scope_to_write(&namespace, None, None)?;
        let specs = indexes.iter().map(|spec| {
            let known = match ignore_unknown {
                true => {
                    let known = IndexSpec::without_unknown(spec);
                    database.index_spec(known.view(), &namespace, &scope.context)
                }
                false => database.index_spec(spec, &namespace, &scope.context),
            };
            known.map_err(|error| in_specification(error, spec))
        });
        let creation = IndexCreation::new(specs.collect::<Result<_>>()?, BuildProgress::new(database));
        Ok((scope, creation))
    };
    let outcome = in_steps(call, begin, IndexCreation::has_build, |call, scope, creation| {
        let Scope { operation, context, .. } = scope;
        call.server.database.create_indexes_in_steps(operation, &namespace, context, creation)
    })?;
    call.reply.append(c"numIndexesBefore", outcome.before as i32);
    call.reply.append(c"numIndexesAfter", outcome.after as i32);
    call.reply.append(c"createdCollectionAutomatically", outcome.created_collection);
    if outcome.before == outcome.after {
        call.reply.append(c"note", "all indexes already exist");
    }
    call.acknowledge(outcome.committed)
}

/// Checks `commitQuorum`. A single node is the majority and all voting members.
///
/// Errors: UnsatisfiableCommitQuorum, UnknownReplWriteConcern, FailedToParse.
fn check_quorum(quorum: Option<Value<'_>>) -> Result<()> {
    match quorum {
        None | Some(Value::String("majority" | "votingMembers")) => Ok(()),
        Some(Value::String(name)) => Err(err!(
            UnknownReplWriteConcern,
            "No commit quorum mode named '{name}' found in the configuration"
        )),
        Some(other) => match other.as_i64() {
            Some(0 | 1) => Ok(()),
            Some(_) => Err(err!(
                UnsatisfiableCommitQuorum,
                "Commit quorum cannot be satisfied with the current replica set configuration"
            )),
            None => Err(err!(FailedToParse, "commitQuorum must be a number or a string, not {other}")),
        },
    }
}

/// Adds the index specification to an error, as MongoDB does.
fn in_specification(error: base::Error, spec: Document<'_>) -> base::Error {
    match error.code() {
        base::ErrorCode::NotImplemented | base::ErrorCode::InvalidIndexSpecificationOption => error,
        _ => error.context(&format!("Error in specification {spec}")),
    }
}

/// The row of `dropIndexes`.
pub(crate) const DROP_INDEXES: Row =
    Row::write("dropIndexes", drop_indexes, Requirements::Collection(Action::DropIndex))
        .help("Drops indexes.")
        .stable_api()
        .restarts();

/// Returns true for `"*"` and `["*"]`, which name all indexes.
fn is_all(index: Value<'_>) -> bool {
    match index {
        Value::Array(names) => {
            names.iter().count() == 1 && names.iter().all(|name| name.as_str() == Some("*"))
        }
        _ => index.as_str() == Some("*"),
    }
}

fn drop_indexes(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.named_collection()?;
    let index = fields.required("index", Fields::any)?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.finish()?;
    call.check_uuid(&namespace, uuid)?;
    let operation = call.operation();
    let database = &call.server.database;
    let (before, committed) = match index {
        _ if is_all(index) => database.drop_indexes(operation.as_ref(), &namespace, None)?,
        Value::Array(names) => {
            let names = names
                .iter()
                .map(|name| name.as_str().map(str::to_string))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| err!(TypeMismatch, "index names must be strings"))?;
            database.drop_indexes(operation.as_ref(), &namespace, Some(&names))?
        }
        Value::String(_) | Value::Document(_) => {
            let name = database.index_name(&namespace, index)?;
            database.drop_indexes(operation.as_ref(), &namespace, Some(&[name]))?
        }
        other => {
            bail!(
                TypeMismatch,
                "BSON field 'dropIndexes.index' is the wrong type '{}', expected types '[string, object, array]'",
                other.kind().alias()
            );
        }
    };
    call.reply.append(c"nIndexesWas", before as i32);
    if is_all(index) {
        call.reply.append(c"msg", "non-_id indexes dropped for collection");
    }
    call.acknowledge(Some(committed))
}

/// The row of `listIndexes`.
pub(crate) const LIST_INDEXES: Row =
    Row::read("listIndexes", list_indexes, Requirements::Collection(Action::ListIndexes))
        .help("Lists the indexes of a collection.")
        .stable_api();

fn list_indexes(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let batch_size = cursors::batch_size(fields.document("cursor")?, "listIndexes")?;
    fields.check_flags(&["includeBuildUUIDs", "includeIndexBuildInfo"])?;
    if ["includeBuildUUIDs", "includeIndexBuildInfo"]
        .iter()
        .all(|name| fields.peek(name).is_some_and(|value| value.is_truthy()))
    {
        bail!(InvalidOptions, "includeBuildUUIDs and includeIndexBuildInfo can't both be true");
    }
    fields.refuse_unless_default("includeBuildUUIDs")?;
    fields.refuse_unless_default("includeIndexBuildInfo")?;
    fields.finish()?;
    let Some(collection) = call.server.database.collection(&namespace) else {
        bail!(NamespaceNotFound, "ns does not exist: {namespace}");
    };
    let Some(data) = &collection.data else {
        bail!(CommandNotSupportedOnView, "Namespace {namespace} is a view, not a collection");
    };
    let documents = data.indexes.iter().map(|index| index.spec.to_document()).collect();
    cursors::listing(call, namespace, documents, batch_size.unwrap_or(u64::MAX))?;
    Ok(HandlerStatus::Done)
}

/// The row of `reIndex`.
pub(crate) const RE_INDEX: Row = Row::write("reIndex", re_index, Requirements::Collection(Action::ReIndex))
    .help("Rebuilds the indexes of a collection.")
    .restarts();

fn re_index(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    fields.finish()?;
    if call.server.is_replica_set() {
        bail!(IllegalOperation, "reIndex is only allowed on a standalone mongod instance.");
    }
    let Some(collection) = call.server.database.collection(&namespace) else {
        bail!(NamespaceNotFound, "collection does not exist");
    };
    let indexes = &collection.data()?.indexes;
    let committed = in_steps(
        call,
        |call| Ok((call.scope(namespace), BuildProgress::new(&call.server.database))),
        BuildProgress::has_build,
        |call, scope, progress| call.server.database.rebuild_indexes(scope, progress),
    )?;
    let count = indexes.len() as i32;
    call.reply.append(c"nIndexesWas", count).append(c"nIndexes", count).begin_array(c"indexes");
    for index in indexes {
        call.reply.push(&index.spec.to_document());
    }
    call.reply.end();
    call.acknowledge(committed)
}

/// Parses the `index` part of collMod: hides or shows an index, changes its expiry, refuses new
/// duplicates, or makes the index unique or non-unique.
pub(crate) fn change(index: Document<'_>, dry_run: bool) -> Result<IndexChange<'_>> {
    let mut fields = Fields::of_document("collMod.index", index);
    let name = fields.string("name")?;
    let key = fields.document("keyPattern")?;
    let expire_after_seconds = fields.number("expireAfterSeconds")?;
    let hidden = fields.flag("hidden")?;
    let unique = fields.boolean("unique")?;
    let prepare_unique = fields.flag("prepareUnique")?;
    let force_non_unique = fields.flag("forceNonUnique")?;
    fields.finish()?;
    let index = match (name, key) {
        (Some(name), None) => Value::String(name),
        (None, Some(key)) => Value::Document(key),
        (None, None) => bail!(InvalidOptions, "Must specify either index name or key pattern."),
        (Some(_), Some(_)) => bail!(InvalidOptions, "Cannot specify both key pattern and name."),
    };
    let alone = expire_after_seconds.is_none() && hidden.is_none() && prepare_unique.is_none();
    match force_non_unique {
        None if alone && unique.is_none() => {
            bail!(InvalidOptions, "no expireAfterSeconds, hidden, unique, or prepareUnique field");
        }
        Some(_) if unique.is_some() => {
            bail!(
                InvalidOptions,
                "collMod does not support 'unique' and 'forceNonUnique' options at the same time"
            );
        }
        _ => {}
    }
    // MongoDB checks the age before it looks for the index.
    if let Some(seconds) = expire_after_seconds {
        checked_age(seconds as i64)?;
    }
    if unique == Some(false) {
        bail!(BadValue, "Cannot make index non-unique");
    }
    if force_non_unique == Some(false) {
        bail!(BadValue, "'forceNonUnique: false' is not supported");
    }
    if unique.is_some() && prepare_unique.is_some() {
        bail!(InvalidOptions, "collMod takes 'unique' and 'prepareUnique' one after the other only");
    }
    if dry_run && !(alone && unique.is_some()) {
        bail!(InvalidOptions, "collMod only supports dry run mode for making an index unique");
    }
    let (unique, force_non_unique) = (unique.is_some(), force_non_unique.is_some());
    Ok(IndexChange { index, expire_after_seconds, hidden, prepare_unique, unique, force_non_unique, dry_run })
}

/// Appends the changed properties of an index to the reply of collMod.
pub(crate) fn append_change(
    reply: &mut Builder,
    change: &IndexChange<'_>,
    before: &IndexSpec,
    after: &IndexSpec,
) {
    if after.unique && !before.unique {
        reply.append(c"unique_new", true);
    }
    if before.unique && !after.unique {
        reply.append(c"forceNonUnique_new", true);
    }
    if let Some(seconds) = change.expire_after_seconds {
        let old = before.expire_after_seconds.map(|old| Value::Int64(old as i64));
        reply.append_optional(c"expireAfterSeconds_old", old);
        reply.append(c"expireAfterSeconds_new", seconds as i64);
    }
    if after.hidden != before.hidden {
        reply.append(c"hidden_old", before.hidden).append(c"hidden_new", after.hidden);
    }
    if change.prepare_unique.is_some() && after.prepare_unique != before.prepare_unique {
        reply.append(c"prepareUnique_old", before.prepare_unique);
        reply.append(c"prepareUnique_new", after.prepare_unique);
    }
}

/// Position in the command table.
pub(crate) const CHECK_SHARDING_INDEX: Row =
    Row::admin("checkShardingIndex", check_sharding_index, Requirements::By(requirements::find_in_named))
        .help("Checks that a collection has an index for a shard key.");

fn check_sharding_index(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = match fields.command_value() {
        Value::String(name) => Namespace::parse(name)?,
        _ => bail!(InvalidNamespace, "'checkShardingIndex' must be of type String"),
    };
    let key = fields.document("keyPattern")?.unwrap_or(Document::EMPTY);
    let bounds = (fields.document("min")?, fields.document("max")?);
    fields.finish()?;
    if key.is_empty() {
        bail!(UnknownError, "no key pattern found in checkShardingindex");
    }
    if key.iter().map(|part| part.name()).eq(["_id"]) {
        call.reply.append(c"idskip", true);
        return Ok(HandlerStatus::Done);
    }
    if bounds.0.is_some() != bounds.1.is_some() {
        bail!(UnknownError, "either provide both min and max or leave both empty");
    }
    let collection = call.server.database.collection(&namespace);
    let collection = collection.ok_or_else(|| err!(UnknownError, "ns not found"))?;
    match collection.data()?.indexes.iter().any(|index| suits(index, key)) {
        true => Ok(HandlerStatus::Done),
        false => Err(err!(UnknownError, "couldn't find valid index for shard key")),
    }
}

/// Returns true if an index begins with the fields of a shard key and has one key for each
/// document.
fn suits(index: &Index, key: Document<'_>) -> bool {
    let spec = &index.spec;
    let mut parts = spec.key.view().iter();
    let begins = key.iter().all(|field| {
        parts.next().is_some_and(|part| part.name() == field.name() && equal(part.value(), field.value()))
    });
    let has_all = !spec.sparse && spec.partial.is_none() && spec.wildcard.is_none() && !spec.hidden;
    begins && has_all && spec.collation.is_simple() && !index.is_multikey()
}

const SEARCH_HELP: &str = "Manages search indexes. Refused, as by MongoDB without a search process.";

/// The row of `createSearchIndexes`.
pub(crate) const CREATE_SEARCH_INDEXES: Row =
    Row::admin("createSearchIndexes", refuse_search, Requirements::Collection(Action::CreateSearchIndexes))
        .help(SEARCH_HELP);
/// The row of `dropSearchIndex`.
pub(crate) const DROP_SEARCH_INDEX: Row =
    Row::admin("dropSearchIndex", refuse_search, Requirements::Collection(Action::DropSearchIndex))
        .help(SEARCH_HELP);
/// The row of `listSearchIndexes`.
pub(crate) const LIST_SEARCH_INDEXES: Row =
    Row::admin("listSearchIndexes", refuse_search, Requirements::Collection(Action::ListSearchIndexes))
        .help(SEARCH_HELP);
/// The row of `updateSearchIndex`.
pub(crate) const UPDATE_SEARCH_INDEX: Row =
    Row::admin("updateSearchIndex", refuse_search, Requirements::Collection(Action::UpdateSearchIndex))
        .help(SEARCH_HELP);

/// Refuses the command.
///
/// Errors: SearchNotEnabled.
fn refuse_search(_: &mut Call<'_>) -> Result<HandlerStatus> {
    Err(err!(
        SearchNotEnabled,
        "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional \
         configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on \
         how to connect, see https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs"
    ))
}

//! Commands on collections: create, drop, rename, modify, convert.
//!
//! Each command has a row for the command table and a handler below it. The handler reads the command's fields and
//! calls `Database`, which has the rules of the catalog.

use crate::access::{Action, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::ddl::in_steps;
use crate::protocol::fields::{Fields, uuid};
use crate::state::set_settings::feature_version;
use base::bson::{Builder, Value};
use base::{CompatibleWith, Error, Namespace, Result, bail, err};
use database::{CappedCopy, CollModProgress, CollectionChange, RenameRequest, ValidatorChange, check_capped};
use std::sync::Arc;

/// The row of `create`.
pub(crate) const CREATE: Row = Row::write("create", create, Requirements::By(requirements::create))
    .help("Creates a collection or a view.")
    .stable_api()
    .in_transactions()
    .restarts();

fn create(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let mut options = Builder::new();
    for element in fields.rest() {
        if element.name() == "validationLevel" && element.value().as_str() == Some("constraint") {
            check_constraint_level(call)?;
        }
        options.append_element(&element);
        if element.name() == "autoIndexId" {
            let note = "the autoIndexId option is deprecated and will be removed in a future release";
            call.reply.append(c"note", note);
        }
    }
    let operation = call.operation();
    let context = Arc::new(call.context(&operation));
    let options = options.finish();
    let committed =
        call.server.database.create_collection(&operation, &namespace, options.view(), &context)?;
    call.acknowledge(committed)
}

/// Refuses the validation level `constraint` below version 9.0.
///
/// Errors: BadValue for an older server, InvalidOptions for an older feature compatibility version.
fn check_constraint_level(call: &Call<'_>) -> Result<()> {
    let own = call.server.settings.compatible_with;
    if own < CompatibleWith::V9_0 {
        return Err(database::unknown_level("constraint"));
    }
    if Some(&feature_version(&call.server.database, own)) != own.feature_versions().last() {
        bail!(InvalidOptions, "Validation level 'constraint' is not supported with current FCV");
    }
    Ok(())
}

/// The row of `drop`.
pub(crate) const DROP: Row =
    Row::write("drop", drop_collection, Requirements::Collection(Action::DropCollection))
        .help("Drops a collection or a view.")
        .stable_api()
        .restarts();

fn drop_collection(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.finish()?;
    if is_log(&namespace) {
        match call.server.is_replica_set() {
            true => bail!(5255000, "can't drop live oplog while replicating"),
            false => {
                bail!(5255001, "can't drop oplog on storage engines that support replSetResizeOplog command")
            }
        }
    }
    call.check_uuid(&namespace, uuid)?;
    if namespace.collection() == "system.profile" && call.server.profiler.level(namespace.database()) > 0 {
        bail!(IllegalOperation, "turn off profiling before dropping system.profile collection");
    }
    if is_undroppable(&namespace) && call.server.database.collection(&namespace).is_some() {
        bail!(IllegalOperation, "can't drop system collection {namespace}");
    }
    if namespace.collection() == "system.views" {
        let committed = call.server.database.drop_views(call.operation().as_ref(), namespace.database())?;
        if committed.is_some() {
            call.reply.append(c"nIndexesWas", 1);
            call.reply.append(c"ns", namespace.as_str());
        }
        return call.acknowledge(committed);
    }
    let Some((dropped, committed)) =
        call.server.database.drop_collection(call.operation().as_ref(), &namespace)?
    else {
        call.acknowledge(None)?;
        return Ok(HandlerStatus::Done);
    };
    call.server.activities.remove_usage(|usage| usage.remove(namespace.as_str()));
    call.connection.activity.skip_usage();
    if let Some(data) = &dropped.data {
        call.reply.append(c"nIndexesWas", data.indexes.len() as i32);
    }
    call.reply.append(c"ns", namespace.as_str());
    call.acknowledge(Some(committed))
}

/// Returns true for a system collection that only the server removes.
fn is_undroppable(namespace: &Namespace) -> bool {
    let can_drop = matches!(namespace.collection(), "system.profile" | "system.views" | "system.js")
        || matches!(namespace.as_str(), "config.system.sessions" | "config.system.preimages");
    namespace.collection().starts_with("system.") && !can_drop
}

/// The row of `dropDatabase`.
pub(crate) const DROP_DATABASE: Row =
    Row::write("dropDatabase", drop_database, Requirements::Database(Action::DropDatabase))
        .help("Drops a database.")
        .stable_api()
        .restarts();

fn drop_database(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    check_is_one(fields.command_value())?;
    fields.finish()?;
    let name = call.request.database;
    if name == "admin" {
        bail!(IllegalOperation, "Dropping the 'admin' database is prohibited.");
    }
    if name == "local" && call.server.set().is_some() {
        bail!(IllegalOperation, "Cannot drop 'local' database while replication is active");
    }
    let committed = call.server.database.drop_database(call.operation().as_ref(), name)?;
    if committed.is_some() {
        call.server.activities.remove_usage(|usage| usage.remove_database(name));
        call.connection.activity.skip_usage();
        call.reply.append(c"dropped", name);
    }
    call.acknowledge(committed)
}

fn check_is_one(value: Value<'_>) -> Result<()> {
    match value.as_number() {
        Some(number) if number.to_i64_coerced() == 1 => Ok(()),
        None if value.is_nullish() => Err(Error::missing_field("dropDatabase.dropDatabase")),
        Some(_) => Err(err!(5255100, "Have to pass 1 as 'drop' parameter")),
        None => {
            Err(Error::wrong_type("dropDatabase.dropDatabase", value.kind(), "[long, int, decimal, double"))
        }
    }
}

/// The row of `renameCollection`.
pub(crate) const RENAME_COLLECTION: Row =
    Row::write("renameCollection", rename, Requirements::By(requirements::rename))
        .help("Renames a collection.")
        .admin_only()
        .restarts();

fn rename(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let from = match fields.command_value() {
        Value::String(from) => Namespace::parse(from)?,
        other => {
            return Err(Error::wrong_type("renameCollection.renameCollection", other.kind(), "string"));
        }
    };
    let to = Namespace::parse(fields.required("to", Fields::string)?)?;
    let (drop_target, target_uuid) = drop_target(&mut fields)?;
    // Vellum has no temporary collections, so the flag has no effect.
    fields.boolean("stayTemp")?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.finish()?;
    if (uuid.is_some() || target_uuid.is_some()) && from.database() != to.database() {
        bail!(InvalidOptions, "Cannot provide an expected collection UUID when renaming across databases");
    }
    let is_set = call.server.set().is_some();
    for (namespace, direction) in [(&from, ""), (&to, "to ")] {
        if is_set && call.server.database.is_oplog(namespace) {
            bail!(IllegalOperation, "can't rename {direction}live oplog while replicating");
        }
    }
    to.check_length().map_err(|error| error.context("error with target namespace"))?;
    for namespace in [&from, &to] {
        check_renamable(namespace)?;
        if namespace.as_str().len() > RENAMED_MAX {
            bail!(
                IllegalOperation,
                "Fully qualified namespace is too long to rename. Namespace: {namespace} Max: {RENAMED_MAX}"
            );
        }
    }
    // The members of a set do not share the database local.
    if is_set && (from.database() == "local") != (to.database() == "local") {
        bail!(
            IllegalOperation,
            "Cannot rename collections between a replicated and an unreplicated database"
        );
    }
    let operation = call.operation();
    let request = RenameRequest { from, to, drop_target, uuid, target_uuid };
    let committed = call.server.database.rename_collection(operation.as_ref(), &request)?;
    call.server.activities.remove_usage(|usage| {
        usage.remove(request.from.as_str());
        usage.remove(request.to.as_str());
    });
    call.acknowledge(Some(committed))
}

/// Takes `dropTarget`: true if the target is dropped, and its required UUID.
///
/// Errors: TypeMismatch, InvalidUUID.
fn drop_target(fields: &mut Fields<'_>) -> Result<(bool, Option<[u8; 16]>)> {
    match fields.any("dropTarget")? {
        None => Ok((false, None)),
        Some(Value::Boolean(drops)) => Ok((drops, None)),
        Some(Value::Binary { subtype: 4, bytes }) => uuid(bytes).map(|uuid| (true, Some(uuid))),
        Some(Value::Binary { .. }) => uuid(&[]).map(|_| (true, None)),
        Some(other) => Err(fields.wrong_type("dropTarget", other.kind(), "[bool, binData']")),
    }
}

/// The longest namespace of a rename, in bytes. MongoDB reserves the rest of 255 bytes for a temporary name.
const RENAMED_MAX: usize = 218;

/// Whether the name is one of an oplog, also if nothing is logged there. Its last part is the kind of replication.
fn is_log(namespace: &Namespace) -> bool {
    namespace.database() == "local" && namespace.collection().starts_with("oplog.")
}

/// Refuses to rename system collections and the oplog.
///
/// Errors: IllegalOperation.
fn check_renamable(namespace: &Namespace) -> Result<()> {
    match is_log(namespace) || namespace.collection().starts_with("system.") {
        true => Err(err!(IllegalOperation, "system collections can't be renamed, nor the log: {namespace}")),
        false => Ok(()),
    }
}

/// The row of `convertToCapped`.
pub(crate) const CONVERT_TO_CAPPED: Row =
    Row::write("convertToCapped", convert_to_capped, Requirements::Collection(Action::ConvertToCapped))
        .help("Makes a collection capped.")
        .restarts();

fn convert_to_capped(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.existing_namespace()?;
    let size = fields.required("size", Fields::integer)?;
    // MongoDB ignores other fields of this command.
    fields.rest();
    if matches!(namespace.collection(), "system.profile" | "system.views") {
        bail!(BadValue, "{namespace} cannot be converted to a capped collection");
    }
    if size <= 0 {
        bail!(InvalidOptions, "Capped collection size must be greater than zero");
    }
    let committed = in_steps(
        call,
        |call| Ok((call.scope(namespace), None)),
        Option::is_some,
        |call, scope, converted| call.server.database.convert_to_capped(scope, size, converted),
    )?;
    call.acknowledge(Some(committed))
}

/// The row of `cloneCollectionAsCapped`.
pub(crate) const CLONE_COLLECTION_AS_CAPPED: Row =
    Row::write("cloneCollectionAsCapped", clone_as_capped, Requirements::By(requirements::clone_as_capped))
        .help("Copies a collection's newest documents into a new capped one.")
        .restarts();

fn clone_as_capped(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let from = match fields.command_value() {
        Value::String(name) => Namespace::new(call.request.database, name)?,
        other => bail!(TypeMismatch, "collection name has invalid type {}", other.kind().alias()),
    };
    let Some(to) = fields.string("toCollection")? else {
        bail!(TypeMismatch, "cloneCollectionAsCapped needs toCollection, a string");
    };
    let to = Namespace::new(call.request.database, to)?;
    let Some(size) = fields.any("size")?.and_then(|size| size.as_number()) else {
        bail!(InvalidOptions, "Capped collection size must be a number");
    };
    let size = size.to_i64_clamped();
    fields.refuse_unless_default("temp")?;
    fields.finish()?;
    if size <= 0 {
        bail!(InvalidOptions, "Capped collection size must be greater than zero");
    }
    in_steps(
        call,
        |call| Ok((call.scope(to), None)),
        Option::is_some,
        |call, scope, copy: &mut Option<CappedCopy>| match copy {
            Some(copy) => copy.run(),
            None => copy.insert(call.server.database.clone_as_capped(&from, scope, size)?).run(),
        },
    )?;
    call.acknowledge(None)
}

/// The row of `collMod`.
pub(crate) const COLL_MOD: Row = Row::write("collMod", coll_mod, Requirements::By(requirements::coll_mod))
    .help("Changes a collection, a view or an index.")
    .stable_api()
    .restarts();

/// Parses `expireAfterSeconds`. The value `off` is `None`.
fn expiry(value: Value<'_>) -> Result<Option<i64>> {
    match value {
        Value::String("off") => Ok(None),
        Value::String(text) => Err(err!(
            InvalidOptions,
            "Invalid string value for the 'clusteredIndex::expireAfterSeconds' option. Got: '{text}'. Accepted \
                 value is 'off'"
        )),
        _ => match value.as_number() {
            Some(number) => Ok(Some(number.to_i64_clamped())),
            None => Err(err!(
                TypeMismatch,
                "BSON field 'collMod.expireAfterSeconds' is the wrong type '{}', expected types '[string, int, \
                 decimal, double, long]'",
                value.kind().alias()
            )),
        },
    }
}

fn coll_mod(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let validator = fields.document("validator")?;
    if validator.is_some_and(|filter| !filter.is_empty()) && namespace.is_internal() {
        bail!(InvalidOptions, "Document validators are not allowed on {namespace}");
    }
    let level = fields.string("validationLevel")?;
    let action = fields.string("validationAction")?;
    let is_newer = call.server.settings.compatible_with >= CompatibleWith::V9_0;
    let prepares = if is_newer { fields.boolean("prepareConstraintValidationLevel")? } else { None };
    if prepares == Some(true) || level == Some("constraint") {
        check_constraint_level(call)?;
    }
    let view_on = fields.string("viewOn")?;
    let pipeline = fields.array("pipeline")?;
    let index = fields.document("index")?;
    let capped_size = fields.integer("cappedSize")?;
    let capped_max = fields.integer("cappedMax")?;
    check_capped(["cappedSize", "cappedMax"], capped_size, capped_max)?;
    let expiry = fields.any("expireAfterSeconds")?.map(expiry).transpose()?;
    let dry_run = fields.boolean("dryRun")?.unwrap_or(false);
    let images = fields.document("changeStreamPreAndPostImages")?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.refuse_unless_default("timeseries")?;
    let mixed_schema = fields.flag("timeseriesBucketsMayHaveMixedSchemaData")?;
    fields.finish()?;
    call.check_uuid(&namespace, uuid)?;

    let validator = ValidatorChange { filter: validator, level, action, prepares };
    let index = index.map(|index| super::indexes::change(index, dry_run)).transpose()?;
    let request = CollectionChange {
        view_on,
        pipeline,
        validator,
        capped_size,
        capped_max,
        expire_after_seconds: expiry,
        pre_images: images,
        index,
    };
    if call.server.database.collection(&namespace).is_none() {
        bail!(NamespaceNotFound, "ns does not exist");
    }
    if mixed_schema.is_some() {
        bail!(
            InvalidOptions,
            "option only supported on a time-series collection: timeseriesBucketsMayHaveMixedSchemaData"
        );
    }
    let others = [expiry.is_some(), images.is_some(), capped_size.is_some(), capped_max.is_some()];
    if dry_run && (validator.is_any() || others.contains(&true) || index.is_none()) {
        bail!(InvalidOptions, "collMod only supports dry run mode for making an index unique");
    }
    let changed = in_steps(
        call,
        |call| Ok((call.scope(namespace.clone()), CollModProgress::new(&call.server.database))),
        CollModProgress::has_begun,
        |call, scope, progress| call.server.database.coll_mod(scope, &request, progress),
    )?;
    if let (Some(index), Some((before, after))) = (&request.index, &changed.index) {
        super::indexes::append_change(call.reply, index, before, after);
    }
    call.acknowledge(changed.committed)
}

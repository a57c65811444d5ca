//! Reads of one collection by a filter: `find` returns documents through a cursor, `count` their number, `distinct` the
//! values of a field.

use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::cursors;
use crate::protocol::fields::Fields;
use crate::protocol::read_concern::ReadConcern;
use base::bson::{Document, Value};
use base::{Namespace, Result, bail};
use database::language::Collation;
use database::{FIRST_BATCH, FindRequest, Hint};

/// Position in the command table.
pub(crate) const FIND: Row = Row::read("find", find, Requirements::Collection(Action::Find))
    .help("Finds documents.")
    .stable_api()
    .takes_read_concern()
    .in_transactions()
    .restarts();

/// Parsed fields of the command. `explain` uses them too.
pub(crate) struct Parts<'a> {
    pub(crate) namespace: Namespace,
    pub(crate) collation: Option<Collation>,
    pub(crate) request: FindRequest<'a>,
    pub(crate) variables: Option<Document<'a>>,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) settings: Option<Document<'a>>,
    batch_size: u64,
    single_batch: bool,
    no_timeout: bool,
    read_once: bool,
}

fn find(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = Parts::read(&mut call.fields())?;
    if parts.request.tailable && call.transaction.is_some() {
        bail!(InvalidOptions, "It is illegal to open a tailable cursor in a transaction");
    }
    // Apart from this rule, reading once has no effect here: the cache needs no hint.
    if parts.read_once && call.transaction.is_some() {
        bail!(
            OperationNotSupportedInTransaction,
            "The 'readOnce' option is not supported within a transaction."
        );
    }
    call.check_uuid(&parts.namespace, parts.uuid)?;
    call.apply_query_settings(parts.settings)?;
    let (collation, variables) = (parts.collation.as_ref(), parts.variables);
    let scope = match parts.request.tailable {
        // A tailable cursor waits for inserts, and only the primary reports them.
        true => call.scope_to_read_here(&parts.namespace, collation, variables)?,
        false => call.scope_to_read(&parts.namespace, collation, variables)?,
    };
    let mut cursor = call.server.database.find(&scope, &parts.request)?;
    if cursor.missing {
        cursors::nothing(call, &cursor);
        return Ok(HandlerStatus::Done);
    }
    cursor.no_timeout = parts.no_timeout;
    // Other cursors read the view of their first batch to the end, and the first reply waits for
    // the journal.
    cursor.durable =
        cursor.tailable && call.arguments.read_concern.level.is_some_and(ReadConcern::is_durable);
    cursors::first(call, cursor, parts.batch_size, parts.single_batch)?;
    Ok(HandlerStatus::Done)
}

impl<'a> Parts<'a> {
    /// Parses the fields of the command.
    ///
    /// Errors: invalid, missing or unknown fields.
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<Parts<'a>> {
        let namespace = fields.namespace()?;
        // In this command only `filter` does not accept null for a missing value.
        let filter = fields.not_null("filter", Fields::document)?.unwrap_or(Document::EMPTY);
        let request = FindRequest {
            projection: fields.document("projection")?.unwrap_or(Document::EMPTY),
            sort: fields.document("sort")?.unwrap_or(Document::EMPTY),
            skip: fields.natural("skip")?.unwrap_or(0),
            limit: fields.natural("limit")?.unwrap_or(0),
            hint: fields.hint()?,
            min: fields.document("min")?.filter(|bound| !bound.is_empty()),
            max: fields.document("max")?.filter(|bound| !bound.is_empty()),
            return_key: fields.strict_boolean("returnKey")?.unwrap_or(false),
            show_record_id: fields.strict_boolean("showRecordId")?.unwrap_or(false),
            tailable: fields.strict_boolean("tailable")?.unwrap_or(false),
            await_data: fields.strict_boolean("awaitData")?.unwrap_or(false),
            allow_disk_use: fields.strict_boolean("allowDiskUse")?,
            ..FindRequest::new(filter)
        };
        let batch_size = fields.natural("batchSize")?;
        let mut parts = Parts {
            namespace,
            request,
            collation: fields.collation()?,
            variables: fields.document("let")?,
            uuid: fields.uuid("collectionUUID")?,
            settings: fields.document("querySettings")?,
            batch_size: batch_size.unwrap_or(FIRST_BATCH),
            single_batch: fields.strict_boolean("singleBatch")?.unwrap_or(false),
            no_timeout: fields.strict_boolean("noCursorTimeout")?.unwrap_or(false),
            read_once: fields.strict_boolean("readOnce")?.unwrap_or(false),
        };
        // Only sharded clusters have partial results, and each oplog read is already fast. Both
        // flags have no effect on a single node, as in MongoDB.
        let partial = fields.strict_boolean("allowPartialResults")?.unwrap_or(false);
        fields.strict_boolean("oplogReplay")?;
        fields.refuse_unless_default("includeQueryStatsMetrics")?;
        fields.refuse_unless_default("term")?;
        fields.finish()?;
        parts.check()?;
        let options = [
            ("noCursorTimeout", parts.no_timeout),
            ("allowPartialResults", partial),
            ("singleBatch", parts.single_batch && parts.request.limit != 1),
            ("readOnce", parts.read_once),
        ];
        parts.request.not_on_views = options.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name);
        Ok(parts)
    }

    fn check(&self) -> Result<()> {
        let FindRequest { min, max, sort, tailable, await_data, .. } = &self.request;
        if let (Some(min), Some(max)) = (min, max)
            && !min.iter().map(|field| field.name()).eq(max.iter().map(|field| field.name()))
        {
            bail!(51176, "min and max must have the same field names");
        }
        if *await_data && !tailable {
            bail!(FailedToParse, "Cannot set 'awaitData' without also setting 'tailable'");
        }
        let is_natural = || {
            let direction = sort.get("$natural").and_then(|direction| direction.as_number());
            sort.iter().count() == 1 && direction.is_some_and(|number| number.to_f64() == 1.0)
        };
        if *tailable && !sort.is_empty() && !is_natural() {
            bail!(BadValue, "cannot use tailable option with a sort other than {{$natural: 1}}");
        }
        if *tailable && self.single_batch {
            bail!(BadValue, "cannot use tailable option with the 'singleBatch' option");
        }
        Ok(())
    }
}

/// Position in the command table.
pub(crate) const COUNT: Row = Row::read("count", count, Requirements::Collection(Action::Find))
    .help("Counts the documents that match.")
    .stable_api()
    .takes_read_concern()
    .restarts();

/// Parsed fields of the command. `explain` uses them too.
pub(crate) struct CountParts<'a> {
    pub(crate) namespace: Namespace,
    pub(crate) collation: Option<Collation>,
    pub(crate) query: Document<'a>,
    pub(crate) limit: u64,
    pub(crate) skip: u64,
    pub(crate) hint: Option<Hint>,
    pub(crate) uuid: Option<[u8; 16]>,
}

fn count(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = CountParts::read(&mut call.fields())?;
    call.check_uuid(&parts.namespace, parts.uuid)?;
    let scope = call.scope_to_read(&parts.namespace, parts.collation.as_ref(), None)?;
    let n = call.server.database.count(&scope, parts.query, parts.hint, parts.skip, parts.limit)?;
    match i32::try_from(n) {
        Ok(small) => call.reply.append(c"n", small),
        Err(_) => call.reply.append(c"n", n as i64),
    };
    Ok(HandlerStatus::Done)
}

impl<'a> CountParts<'a> {
    /// Parses the fields of the command.
    ///
    /// Errors: invalid, missing or unknown fields.
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<CountParts<'a>> {
        let parts = CountParts {
            namespace: fields.namespace()?,
            query: fields.document("query")?.unwrap_or(Document::EMPTY),
            // A negative limit equals its absolute value.
            limit: fields.integer("limit")?.unwrap_or(0).unsigned_abs(),
            skip: fields.natural("skip")?.unwrap_or(0),
            hint: fields.hint()?,
            collation: fields.collation()?,
            uuid: fields.uuid("collectionUUID")?,
        };
        // Old clients send a projection here. MongoDB accepts and ignores it.
        fields.any("fields")?;
        fields.finish()?;
        Ok(parts)
    }
}

/// Position in the command table.
pub(crate) const DISTINCT: Row = Row::read("distinct", distinct, Requirements::Collection(Action::Find))
    .help("Lists the distinct values of a field.")
    .takes_read_concern()
    .in_transactions()
    .restarts();

/// Parsed fields of the command. `explain` uses them too.
pub(crate) struct DistinctParts<'a> {
    pub(crate) namespace: Namespace,
    pub(crate) collation: Option<Collation>,
    pub(crate) key: &'a str,
    pub(crate) query: Document<'a>,
    pub(crate) hint: Option<Hint>,
    pub(crate) settings: Option<Document<'a>>,
}

fn distinct(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = DistinctParts::read(&mut call.fields())?;
    call.apply_query_settings(parts.settings)?;
    let scope = call.scope_to_read(&parts.namespace, parts.collation.as_ref(), None)?;
    let values = call.server.database.distinct(&scope, parts.key, parts.query, parts.hint)?;
    call.reply.append_all(values.view());
    if let Some((time, _)) = scope.operation.snapshot() {
        call.reply.append(c"atClusterTime", Value::Timestamp(*time));
    }
    Ok(HandlerStatus::Done)
}

impl<'a> DistinctParts<'a> {
    /// Parses the fields of the command.
    ///
    /// Errors: invalid, missing or unknown fields.
    pub(crate) fn read(fields: &mut Fields<'a>) -> Result<DistinctParts<'a>> {
        let parts = DistinctParts {
            namespace: fields.namespace()?,
            key: fields.required("key", Fields::string)?,
            query: fields.document("query")?.unwrap_or(Document::EMPTY),
            hint: fields.hint()?,
            settings: fields.document("querySettings")?,
            collation: fields.collation()?,
        };
        fields.finish()?;
        if parts.key.contains('\0') {
            bail!(31032, "Distinct key contains embedded null byte");
        }
        Ok(parts)
    }
}

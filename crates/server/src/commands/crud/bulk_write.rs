//! `bulkWrite`: inserts, updates and deletes on several collections in one command.

use super::retry::Retryable;
use super::write_batch::{WriteCommand, check_count, ends_command, is_suspended, may_retry};
use super::{delete, update};
use crate::access::{Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row, transaction_rules};
use crate::commands::cursors;
use crate::process::Counter;
use crate::protocol::fields::Fields;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value, ValueBuf};
use base::{Error, Namespace, Result, bail, err};
use database::language::Collation;
use database::{
    Committed, InsertRequest, RetryKey, Scope, UpdateOutcome, WriteProgress, check_writable, time,
};
use std::mem;
use std::time::Instant;
use wire::request::Documents;

/// Position in the command table.
pub(crate) const BULK_WRITE: Row =
    Row::write("bulkWrite", bulk_write, Requirements::By(requirements::bulk_write))
        .help("Inserts, updates and deletes in several collections.")
        .admin_only()
        .stable_api()
        .retryable_write()
        .restarts();

/// An unparsed element of `ops`.
pub(super) enum Operation<'a> {
    Insert(Document<'a>),
    Update(update::Statement<'a>),
    Delete(delete::Statement<'a>),
}

/// Result of an operation.
#[derive(Default)]
struct Done {
    n: u64,
    modified: Option<u64>,
    upserted: Option<ValueBuf>,
    committed: Option<Committed>,
}

/// Sums over all operations.
#[derive(Default)]
struct Totals {
    errors: i32,
    inserted: i32,
    matched: i32,
    modified: i32,
    upserted: i32,
    deleted: i32,
}

/// Parsed fields of the command. `explain` uses them too.
pub(super) struct BulkWrite<'a> {
    /// Number of operations.
    count: usize,
    targets: Vec<Target>,
    ordered: bool,
    errors_only: bool,
    pub(super) bypass_validation: bool,
    keeps_timestamps: bool,
    pub(super) variables: Option<Document<'a>>,
    batch_size: Option<u64>,
    /// Namespace of the command itself.
    namespace: Namespace,
}

/// A running command.
pub(super) struct Bulk {
    scope: Scope,
    retryable: Option<Retryable>,
    totals: Totals,
    /// Results of the operations for the reply's cursor.
    replies: Vec<DocumentBuf>,
    committed: Option<Committed>,
    /// Progress of the running operation.
    progress: WriteProgress,
    group: Option<Group>,
}

/// Operations that count as one command on their collection: an update, a delete, or successive inserts.
struct Group {
    command: &'static str,
    namespace: Namespace,
    began: Instant,
}

impl Group {
    /// Begins the group of an operation, unless the present group includes it.
    fn begin(group: &mut Option<Group>, call: &Call<'_>, command: &'static str, namespace: &Namespace) {
        let includes = |group: &Group| group.command == command && group.namespace == *namespace;
        if !group.as_ref().is_some_and(includes) {
            Group::end(group, call);
            *group = Some(Group { command, namespace: namespace.clone(), began: time::now() });
        }
    }

    /// Counts the present group for `top` and `latencyStats`.
    fn end(group: &mut Option<Group>, call: &Call<'_>) {
        if let Some(Group { command, namespace, began }) = group.take() {
            call.connection.activity.count_part(namespace.as_str(), command, began);
        }
    }
}

fn bulk_write(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let (command, operations) = BulkWrite::read(call, &mut call.fields())?;
    if call.arguments.transaction.is_some() {
        command.targets.iter().try_for_each(|Target { namespace, .. }| {
            transaction_rules::check_namespace(namespace.database(), namespace.collection(), true)
        })?;
    }
    command.run_list(call, operations)
}

impl<'a> BulkWrite<'a> {
    /// Parses the fields of the command. Also returns its operations.
    ///
    /// Errors: invalid, missing or unknown fields; those of [`check_count`].
    pub(super) fn read(call: &Call<'_>, fields: &mut Fields<'a>) -> Result<(BulkWrite<'a>, Documents<'a>)> {
        fields.command_value();
        let operations = fields.required("ops", Fields::sequence)?;
        let infos = fields.required("nsInfo", Fields::sequence)?;
        let mut command = BulkWrite {
            count: operations.len(),
            targets: Vec::new(),
            ordered: fields.boolean("ordered")?.unwrap_or(true),
            errors_only: fields.boolean("errorsOnly")?.unwrap_or(false),
            bypass_validation: fields.flag("bypassDocumentValidation")?.unwrap_or(false),
            keeps_timestamps: fields.boolean("bypassEmptyTsReplacement")?.unwrap_or(false),
            variables: fields.document("let")?,
            batch_size: cursors::batch_size(fields.document("cursor")?, "bulkWrite")?,
            namespace: Namespace::new("admin", "$cmd.bulkWrite")?,
        };
        fields.finish()?;
        check_count(call, operations.len())?;
        command.targets = infos.iter().map(target).collect::<Result<_>>()?;
        Ok((command, operations))
    }
}

impl<'d> WriteCommand<'d> for BulkWrite<'_> {
    type Statement = (Target, Operation<'d>);
    type State = Bulk;

    fn parse(&self, operation: Document<'d>) -> Result<(Target, Operation<'d>)> {
        read(operation, &self.targets)
    }

    fn begin(&self, call: &Call<'_>) -> Result<Bulk> {
        let scope = call.scope_to_write(&self.namespace, None, self.variables)?;
        let scope = scope.keep_empty_timestamps(self.keeps_timestamps);
        scope.operation.keep_progress();
        let retryable = Retryable::begin(call, self.count)?;
        let (totals, replies, committed, group) = Default::default();
        let progress = WriteProgress::default();
        Ok(Bulk { scope, retryable, totals, replies, committed, progress, group })
    }

    fn run(
        &self,
        call: &mut Call<'_>,
        state: &mut Bulk,
        position: usize,
        (target, operation): &(Target, Operation<'d>),
    ) -> Result<bool> {
        let Bulk { scope, retryable, totals, replies, committed, progress, group } = state;
        Group::begin(group, call, operation.command(), &target.namespace);
        let is_multi = match operation {
            Operation::Update(statement) => statement.multi,
            Operation::Delete(statement) => !statement.single,
            Operation::Insert(_) => false,
        };
        let recall = |answer: Document<'_>| recalled(operation, answer);
        let run = |key| {
            let run = || operation.run(call, target, scope, self.bypass_validation, key, progress);
            call.server.database.by_latest_catalog(run)
        };
        let message = "Cannot use retryable writes with multi=true";
        let done = Retryable::check_single(retryable.as_ref(), is_multi, message).and_then(|()| {
            Retryable::run(retryable.as_mut(), call, position, recall, |done: &Done| done.committed, run)
        });
        let in_transaction = call.transaction.is_some();
        let ends = done
            .as_ref()
            .is_err_and(|error| ends_command(error, in_transaction) || may_retry(error, retryable.as_ref()));
        if !is_suspended(&done) {
            call.leave_queue();
            operation.counter(call).add(1);
            let is_insert = matches!(operation, Operation::Insert(_));
            if !is_insert || ends {
                Group::end(group, call);
            }
        }
        match done {
            Ok(done) => {
                if let Some(retryable) = retryable {
                    retryable.record(position, done.to_answer(operation));
                }
                *committed = done.committed.or(*committed);
                totals.add(operation, &done);
                if let Operation::Update(statement) = operation {
                    statement.count(call, "bulkWrite");
                }
                if !self.errors_only {
                    replies.push(done.to_reply(position));
                }
                Ok(true)
            }
            Err(error) if ends => Err(error),
            Err(error) => {
                // A failed statement fails the whole transaction.
                call.progress.statement_failed = in_transaction;
                totals.errors += 1;
                let is_update = matches!(operation, Operation::Update(_));
                replies.push(failure(position, &error, is_update));
                Ok(!self.ordered && !in_transaction)
            }
        }
    }

    fn finish(&self, call: &mut Call<'_>, state: &mut Bulk) -> Result<HandlerStatus> {
        let Bulk { retryable, totals, replies, committed, group, .. } = state;
        Group::end(group, call);
        if call.is_unacknowledged() {
            replies.clear();
        }
        cursors::listing(
            call,
            self.namespace.clone(),
            mem::take(replies),
            self.batch_size.unwrap_or(u64::MAX),
        )?;
        totals.append_to(call.reply);
        Retryable::append_retried(retryable.as_ref(), call);
        call.acknowledge(*committed)
    }
}

/// An entry of `nsInfo`.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) namespace: Namespace,
    uuid: Option<[u8; 16]>,
}

fn target(info: Document<'_>) -> Result<Target> {
    let mut fields = Fields::of_document("bulkWrite.nsInfo", info);
    let namespace = Namespace::parse(fields.required("ns", Fields::string)?)?;
    let uuid = fields.uuid("collectionUUID")?;
    fields.refuse_unless_default("encryptionInformation")?;
    fields.refuse_unless_default("isTimeseriesNamespace")?;
    fields.finish()?;
    Ok(Target { namespace, uuid })
}

fn read<'a>(operation: Document<'a>, targets: &[Target]) -> Result<(Target, Operation<'a>)> {
    let kind = operation.first().map_or("", |element| element.name());
    let mut fields = Fields::of_document(format!("bulkWrite.ops.{kind}"), operation);
    let index = fields.required(kind, Fields::natural)?;
    let target = targets
        .get(index as usize)
        .cloned()
        .ok_or_else(|| err!(BadValue, "BulkWrite ops entry {operation} has an invalid nsInfo index."))?;
    let read = match kind {
        "insert" => Operation::Insert(fields.required("document", Fields::document)?),
        "update" => read_update(&mut fields)?,
        "delete" => {
            let filter = fields.required("filter", Fields::document)?;
            let single = !fields.boolean("multi")?.unwrap_or(false);
            let hint = fields.hint()?;
            let collation = fields.collation()?;
            Operation::Delete(delete::Statement { filter, document: operation, single, hint, collation })
        }
        _ => return Err(Error::unknown_field(format_args!("bulkWrite.ops.{kind}"))),
    };
    fields.finish()?;
    Ok((target, read))
}

fn read_update<'a>(fields: &mut Fields<'a>) -> Result<Operation<'a>> {
    let filter = fields.required("filter", Fields::document)?;
    let update = fields.required("updateMods", Fields::any)?;
    if !matches!(update, Value::Document(_) | Value::Array(_)) {
        bail!(FailedToParse, "Update argument must be either an object or an array");
    }
    let statement = update::Statement {
        multi: fields.boolean("multi")?.unwrap_or(false),
        upsert: fields.boolean("upsert")?.unwrap_or(false),
        hint: fields.hint()?,
        array_filters: fields.array_filters()?,
        sort: fields.document("sort")?,
        constants: fields.document("constants")?,
        collation: fields.collation()?,
        ..update::Statement::new(filter, update)
    };
    if statement.multi && statement.sort.is_some_and(|sort| !sort.is_empty()) {
        bail!(FailedToParse, "Cannot specify sort with multi=true");
    }
    Ok(Operation::Update(statement))
}

impl Operation<'_> {
    /// Returns the collation of the operation.
    fn collation(&self) -> Option<&Collation> {
        match self {
            Operation::Insert(_) => None,
            Operation::Update(statement) => statement.collation.as_ref(),
            Operation::Delete(statement) => statement.collation.as_ref(),
        }
    }

    /// Returns the command that does the same.
    fn command(&self) -> &'static str {
        match self {
            Operation::Insert(_) => "insert",
            Operation::Update(_) => "update",
            Operation::Delete(_) => "delete",
        }
    }

    /// Returns the counter of its kind.
    fn counter<'c>(&self, call: &'c Call<'_>) -> &'c Counter {
        let counters = &call.server.counters;
        match self {
            Operation::Insert(_) => &counters.inserted,
            Operation::Update(_) => &counters.updated,
            Operation::Delete(_) => &counters.deleted,
        }
    }

    fn run(
        &self,
        call: &Call<'_>,
        Target { namespace, uuid }: &Target,
        scope: &Scope,
        bypass_validation: bool,
        retry: Option<RetryKey>,
        progress: &mut WriteProgress,
    ) -> Result<Done> {
        check_writable(namespace)?;
        let database = &call.server.database;
        call.check_uuid(namespace, *uuid)?;
        let scope = &database.scope_within(scope, namespace, self.collation())?;
        match self {
            Operation::Insert(document) => {
                let request = InsertRequest { document: *document, bypass_validation };
                let record = retry.map(|key| (key, Document::EMPTY));
                let committed = database.insert_retryable(scope, request, record)?;
                Ok(Done { n: 1, committed: Some(committed), ..Done::default() })
            }
            Operation::Update(statement) => {
                let scope = statement.scope(scope);
                let request = statement.parse(&scope.context, bypass_validation)?;
                let outcome = database.update_retryable(&scope, &request, retry, progress)?;
                Ok(Done {
                    n: outcome.matched,
                    modified: Some(outcome.modified),
                    upserted: outcome.upserted,
                    committed: outcome.committed,
                })
            }
            Operation::Delete(statement) => {
                let request = statement.parse(scope)?;
                let (n, committed) = database.delete_retryable(scope, &request, retry, progress)?;
                Ok(Done { n, committed, ..Done::default() })
            }
        }
    }
}

/// Restores the result of an operation from the record of its first execution.
fn recalled(operation: &Operation<'_>, answer: Document<'_>) -> Done {
    if matches!(operation, Operation::Insert(_)) {
        return Done { n: 1, ..Done::default() };
    }
    let outcome = UpdateOutcome::from_answer(answer);
    let modified = matches!(operation, Operation::Update(_)).then_some(outcome.modified);
    Done { n: outcome.matched, modified, upserted: outcome.upserted, committed: None }
}

impl Done {
    /// Returns the record for retries, in the format of the single commands.
    fn to_answer(&self, operation: &Operation<'_>) -> DocumentBuf {
        if matches!(operation, Operation::Insert(_)) {
            return DocumentBuf::empty();
        }
        let outcome = UpdateOutcome {
            matched: self.n,
            modified: self.modified.unwrap_or(0),
            upserted: self.upserted.clone(),
            committed: None,
        };
        outcome.to_answer()
    }

    fn to_reply(&self, position: usize) -> DocumentBuf {
        let mut out = Builder::new();
        let n = self.n + u64::from(self.upserted.is_some());
        out.append(c"ok", 1.0).append(c"idx", position as i32).append(c"n", n as i32);
        out.append_optional(c"nModified", self.modified.map(|modified| modified as i32));
        if let Some(id) = &self.upserted {
            out.begin_document(c"upserted").append(c"_id", id).end();
        }
        out.finish()
    }
}

fn failure(position: usize, error: &Error, is_update: bool) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"ok", 0.0).append(c"idx", position as i32).append(c"code", error.code().number());
    out.append_all(error.info().unwrap_or(Document::EMPTY));
    out.append(c"errmsg", error.message()).append(c"n", 0i32);
    if is_update {
        out.append(c"nModified", 0i32);
    }
    out.finish()
}

impl Totals {
    fn add(&mut self, operation: &Operation<'_>, done: &Done) {
        match operation {
            Operation::Insert(_) => self.inserted += done.n as i32,
            Operation::Delete(_) => self.deleted += done.n as i32,
            Operation::Update(_) => {
                self.matched += done.n as i32;
                self.modified += done.modified.unwrap_or(0) as i32;
                self.upserted += i32::from(done.upserted.is_some());
            }
        }
    }

    fn append_to(&self, reply: &mut Builder) {
        for (name, count) in [
            ("nErrors", self.errors),
            ("nInserted", self.inserted),
            ("nMatched", self.matched),
            ("nModified", self.modified),
            ("nUpserted", self.upserted),
            ("nDeleted", self.deleted),
        ] {
            reply.append(FieldName::literal(name), Value::Int32(count));
        }
    }
}

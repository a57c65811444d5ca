//! A session: runs statements on the database and records their results.

use super::documents::{Doc, append_k};
use super::history::{Failure, History, Kind, NAMESPACES, Reported, Started, Statement};
use super::random::Random;
use super::statements::{Change, Ddl, Filter, Stmt};
use base::bson::{Array, Builder, DocumentBuf, FieldName, Value};
use base::{Namespace, Result};
use database::index::IndexSpec;
use database::{
    Action, AggregateRequest, BlockingHook, BuildProgress, CollectionChange, Committed, Cursor, Database,
    DeleteRequest, FindAndModifyRequest, FindRequest, IndexChange, InsertRequest, Insertion, OpenTransaction,
    Operation, RenameRequest, Scope, UpdateRequest,
};
use query::context::Uninterrupted;
use query::matcher::Matcher;
use query::{Context, Update};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Time limit of statements. Only a wait for an event that never comes takes longer.
const MAX_MILLIS: u64 = 20_000;

/// State shared by the sessions of a history.
pub(crate) struct Shared {
    /// One database, or two on the same store.
    pub(crate) databases: Vec<Arc<Database>>,
    pub(crate) history: History,
    pub(crate) namespaces: Vec<Namespace>,
    /// Hook for long work.
    pub(crate) blocking: BlockingHook,
    /// Times of snapshot reads, at which transactions may begin.
    pub(crate) times: parking_lot::Mutex<Vec<u64>>,
}

/// A session, which runs one operation at a time.
pub(crate) struct Session {
    shared: Arc<Shared>,
    database: Arc<Database>,
    random: Random,
    transaction: RefCell<Option<(usize, Arc<OpenTransaction>)>>,
    /// A find read in part.
    reading: RefCell<Option<Reading>>,
    /// True during an operation.
    pub(crate) busy: Cell<bool>,
    /// Positions of its commits, and whether they were acknowledged as durable.
    pub(crate) acknowledged: RefCell<Vec<(u64, bool)>>,
    /// Percentage of commits that wait for the journal.
    pub(crate) journaled: Cell<u64>,
    max_millis: Cell<u64>,
}

struct Reading {
    started: Started,
    transaction: Option<usize>,
    namespace: usize,
    number: i64,
    filter: Filter,
    cursor: Cursor,
    docs: Vec<Doc>,
}

/// Mix of a session's operations.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) ddl: u64,
    /// Percentage of steps outside of transactions that begin one.
    pub(crate) begins: u64,
    /// Percentage of steps before which a checkpoint runs.
    pub(crate) checkpoints: u64,
}

impl Mix {
    pub(crate) fn draw(random: &Random) -> Mix {
        let (ddl, begins) = (*random.pick(&[0, 0, 3, 12, 40]), *random.pick(&[5, 10, 30, 50]));
        Mix { ddl, begins, checkpoints: 0 }
    }
}

fn filter_of(filter: &Filter) -> DocumentBuf {
    let mut out = Builder::new();
    match filter {
        Filter::All => {}
        Filter::Id(id) => _ = out.append(c"_id", *id),
        Filter::K(k) => _ = out.append(c"k", *k),
        Filter::QAtLeast(q) => _ = out.begin_document(c"q").append(c"$gte", *q).end(),
        Filter::U(u) => _ = out.append(c"u", *u),
    }
    out.finish()
}

fn change_of(change: &Change, number: i64) -> DocumentBuf {
    let mut out = Builder::new();
    match change {
        Change::Inc => _ = out.begin_document(c"$inc").append(c"n", 1i64).end(),
        Change::Toggle => {
            _ = out.begin_document(c"$bit").begin_document(c"t").append(c"xor", 1i64).end().end()
        }
        Change::Set(..) | Change::SetK(_) => {}
    }
    if change.signs() {
        out.begin_document(c"$set").append(c"w", number);
        match change {
            Change::Set(field, value) => _ = out.append(FieldName::literal(field.name()), *value),
            Change::SetK(k) => append_k(k, &mut out),
            Change::Inc | Change::Toggle => {}
        }
        out.end();
    }
    out.finish()
}

/// Returns an increment that inserts the document if it is missing.
fn upsert_of(doc: &Doc, number: i64) -> DocumentBuf {
    let mut out = Builder::new();
    out.begin_document(c"$inc").append(c"n", 1i64).end();
    out.begin_document(c"$set").append(c"w", number).end();
    out.begin_document(c"$setOnInsert").append(c"u", doc.u).append(c"p", doc.p).append(c"q", doc.q);
    append_k(&doc.k, &mut out);
    out.append(c"t", doc.t).end();
    out.finish()
}

/// State of one operation.
struct Call {
    operation: Arc<Operation>,
    context: Arc<Context>,
}

impl Session {
    pub(crate) fn new(shared: &Arc<Shared>, seed: u64) -> Session {
        Session {
            database: shared.databases[seed as usize % shared.databases.len()].clone(),
            shared: shared.clone(),
            random: Random::new(seed),
            transaction: RefCell::default(),
            reading: RefCell::default(),
            busy: Cell::new(false),
            acknowledged: RefCell::default(),
            journaled: Cell::new(0),
            max_millis: Cell::new(MAX_MILLIS),
        }
    }

    /// Sets the time limit of its statements.
    pub(crate) fn set_max_millis(&self, millis: u64) {
        self.max_millis.set(millis);
    }

    fn call(&self) -> Call {
        self.call_through(|work| work())
    }

    fn call_through(&self, blocking: BlockingHook) -> Call {
        let operation = Operation::with_blocking(1, blocking);
        operation.set_max_time(self.max_millis.get());
        if let Some((_, transaction)) = &*self.transaction.borrow() {
            operation.set_transaction(transaction.clone());
        }
        let operation = Arc::new(operation);
        Call { context: Arc::new(Context::new(0, 1, operation.clone())), operation }
    }

    /// Runs one random step.
    pub(crate) fn step(&self, mix: Mix) {
        let random = &self.random;
        let in_transaction = self.transaction.borrow().is_some();
        if self.reading.borrow().is_some() && random.percent(40) {
            return self.read_on();
        }
        match in_transaction {
            true if random.percent(20) => self.commit(),
            true if random.percent(8) => self.abort(),
            false if random.percent(mix.begins) => self.begin(),
            false if random.percent(mix.ddl) => self.ddl(&Ddl::draw(random), self.namespace()),
            _ => self.statement(in_transaction),
        }
    }

    fn namespace(&self) -> usize {
        match self.random.below(10) {
            0..7 => 0,
            7..9 => 1,
            _ => 2,
        }
    }

    /// Ends everything that it has open.
    pub(crate) fn finish(&self) {
        while self.reading.borrow().is_some() {
            self.read_on();
        }
        if self.transaction.borrow().is_some() {
            match self.random.percent(70) {
                true => self.commit(),
                false => self.abort(),
            }
        }
    }

    pub(crate) fn begin(&self) {
        let started = self.shared.history.start();
        let earlier = match self.random.percent(10) {
            true => self.shared.times.lock().last().copied(),
            false => None,
        };
        let Ok(transaction) = self.database.begin_transaction(earlier, None) else { return };
        let number = self.shared.history.next_transaction();
        let (time, at_earlier) = (transaction.time(), earlier.is_some());
        *self.transaction.borrow_mut() = Some((number, transaction));
        self.shared.history.end(started, Kind::Begin { transaction: number, time, at_earlier });
    }

    pub(crate) fn commit(&self) {
        let call = self.call();
        let Some((number, transaction)) = self.transaction.borrow_mut().take() else { return };
        self.give_up_reading();
        let started = self.shared.history.start();
        let outcome = self.database.commit_transaction(&call.operation, &transaction);
        let outcome = outcome.map_err(Failure::from).map(|committed| self.acknowledge(committed));
        self.shared.history.end(started, Kind::Commit { transaction: number, outcome });
    }

    fn abort(&self) {
        let Some((number, transaction)) = self.transaction.borrow_mut().take() else { return };
        self.give_up_reading();
        let started = self.shared.history.start();
        self.database.abort_transaction(&transaction);
        self.shared.history.end(started, Kind::Abort { transaction: number });
    }

    fn give_up_reading(&self) {
        self.reading.borrow_mut().take();
    }

    /// Records a commit, and sometimes makes it durable, as write concerns do.
    fn acknowledge(&self, committed: Committed) -> u64 {
        let durable = self.random.percent(self.journaled.get())
            && self.database.wait_journaled(committed.position).is_ok();
        self.acknowledged.borrow_mut().push((committed.position.0, durable));
        committed.cluster_time
    }

    fn statement(&self, in_transaction: bool) {
        let number = self.shared.history.next_number();
        let stmt = Stmt::draw(&self.random, number, in_transaction);
        self.run(stmt, self.namespace(), number);
    }

    /// Runs a statement, in the open transaction if any.
    pub(crate) fn run(&self, stmt: Stmt, namespace: usize, number: i64) {
        let call = self.call();
        let started = self.shared.history.start();
        let transaction = self.transaction.borrow().as_ref().map(|(number, _)| *number);
        let mut at = None;
        if transaction.is_none()
            && stmt.is_read()
            && self.random.percent(30)
            && let Ok((time, view)) = self.database.snapshot_at(None)
        {
            call.operation.set_snapshot(time, view);
            self.shared.times.lock().push(time);
            at = Some(time);
        }
        if let Stmt::Find(filter) = &stmt
            && at.is_none()
            && self.random.percent(30)
            && self.reading.borrow().is_none()
        {
            if let Ok(cursor) = self.open(&call, namespace, filter) {
                let (filter, docs) = (filter.clone(), Vec::new());
                let reading = Reading { started, transaction, namespace, number, filter, cursor, docs };
                *self.reading.borrow_mut() = Some(reading);
                self.read_on();
            }
            return;
        }
        let carry_out = || self.carry_out(&call, namespace, number, &stmt);
        let outcome = self.database.by_latest_catalog(carry_out).map_err(Failure::from);
        let failed = outcome.is_err();
        let statement = Statement { transaction, namespace, number, stmt, at, outcome };
        self.shared.history.end(started, Kind::Statement(statement));
        if failed && transaction.is_some() {
            // As in the server, an error ends a transaction.
            self.abort();
        }
    }

    fn open(&self, call: &Call, namespace: usize, filter: &Filter) -> Result<Cursor> {
        let filter = filter_of(filter);
        let request = FindRequest::new(filter.view());
        let namespace = &self.shared.namespaces[namespace];
        self.database.by_latest_catalog(|| {
            self.database.find(&Scope::new(&call.operation, namespace, &call.context), &request)
        })
    }

    /// Reads one more document, and records the find after the last one.
    fn read_on(&self) {
        let Some(mut reading) = self.reading.borrow_mut().take() else { return };
        match next(&mut reading.cursor, 1) {
            Ok((docs, false)) => {
                reading.docs.extend(docs.iter().filter_map(|doc| Doc::from_bson(doc.view())));
                *self.reading.borrow_mut() = Some(reading);
            }
            Ok((docs, true)) => {
                reading.docs.extend(docs.iter().filter_map(|doc| Doc::from_bson(doc.view())));
                self.note_read(reading, None);
            }
            Err(error) => self.note_read(reading, Some(error.into())),
        }
    }

    fn note_read(&self, reading: Reading, failure: Option<Failure>) {
        let Reading { started, transaction, namespace, number, filter, docs, .. } = reading;
        let reported = Reported { n: docs.len() as u64, docs, ..Reported::default() };
        let outcome = failure.map_or(Ok(reported), Err);
        let stmt = Stmt::Find(filter);
        let statement = Statement { transaction, namespace, number, stmt, at: None, outcome };
        self.shared.history.end(started, Kind::Statement(statement));
    }

    fn carry_out(&self, call: &Call, namespace: usize, number: i64, stmt: &Stmt) -> Result<Reported> {
        let (database, namespaces) = (&self.database, &self.shared.namespaces);
        let Call { operation, context } = call;
        let namespace = &namespaces[namespace];
        let reported = |committed: Option<Committed>| match transaction_of(operation) {
            true => None,
            false => committed.map(|committed| self.acknowledge(committed)),
        };
        match stmt {
            Stmt::Insert(doc) => {
                let document = doc.to_bson();
                let insert = InsertRequest { document: document.view(), bypass_validation: false };
                let committed = database.insert(&Scope::new(operation, namespace, context), insert)?;
                Ok(Reported { n: 1, inserted: true, time: reported(Some(committed)), ..Reported::default() })
            }
            Stmt::InsertMany(docs) => {
                let documents: Vec<DocumentBuf> = docs.iter().map(Doc::to_bson).collect();
                let insert = |document| Insertion {
                    request: InsertRequest { document, bypass_validation: false },
                    record: None,
                };
                let views = documents.iter().map(DocumentBuf::view);
                let insertions: Vec<Insertion<'_>> = views.map(insert).collect();
                let inserted = database.insert_many(
                    &Scope::new(operation, namespace, context),
                    &insertions,
                    &mut Default::default(),
                );
                let time = reported(inserted.committed);
                match inserted.error {
                    // Earlier inserts remain.
                    Some(error) => Err(error),
                    None => {
                        Ok(Reported { n: inserted.count as u64, inserted: true, time, ..Reported::default() })
                    }
                }
            }
            Stmt::Update { .. } | Stmt::Upsert(_) => {
                let request = self.update_request(call, stmt, number)?;
                let outcome = database.update(&Scope::new(operation, namespace, context), &request)?;
                let (n, inserted) = (outcome.matched, outcome.upserted.is_some());
                Ok(Reported { n, inserted, time: reported(outcome.committed), ..Reported::default() })
            }
            Stmt::FindAndModify { filter, change, new } => {
                let matcher = Arc::new(Matcher::parse(filter_of(filter).view(), context)?);
                let action = match change {
                    None => Action::Remove,
                    Some(_) => Action::Update {
                        request: Box::new(self.update_request(call, stmt, number)?),
                        return_new: *new,
                    },
                };
                let request = FindAndModifyRequest { matcher, sort: None, hint: None, action };
                let outcome =
                    database.find_and_modify(&Scope::new(operation, namespace, context), &request, None)?;
                let docs =
                    outcome.value.iter().filter_map(|value| Doc::from_bson(value.document.view())).collect();
                Ok(Reported { n: outcome.n, docs, time: reported(outcome.committed), ..Reported::default() })
            }
            Stmt::Delete { filter, multi } => {
                let matcher = Arc::new(Matcher::parse(filter_of(filter).view(), context)?);
                let request = DeleteRequest { matcher, single: !multi, hint: None };
                let (n, committed) = database.delete(&Scope::new(operation, namespace, context), &request)?;
                Ok(Reported { n, time: reported(committed), ..Reported::default() })
            }
            Stmt::Find(filter) => {
                let mut cursor = self.open(call, self.index_of(namespace), filter)?;
                let (docs, _) = next(&mut cursor, u64::MAX)?;
                let docs: Vec<Doc> = docs.iter().filter_map(|doc| Doc::from_bson(doc.view())).collect();
                Ok(Reported { n: docs.len() as u64, docs, ..Reported::default() })
            }
            Stmt::Sum(filter) => {
                let stages = sum_of(filter);
                let stages = stages.view().get("p").and_then(|stages| stages.as_array());
                let request = AggregateRequest::new(stages.unwrap_or(Array::EMPTY));
                let mut cursor = database.aggregate(&Scope::new(operation, namespace, context), &request)?;
                let (groups, _) = next(&mut cursor, u64::MAX)?;
                let of = |name: &str| {
                    groups.first().and_then(|group| group.view().get(name)?.as_i64()).unwrap_or(0)
                };
                Ok(Reported { n: of("c") as u64, sum: of("s"), ..Reported::default() })
            }
        }
    }

    fn index_of(&self, namespace: &Namespace) -> usize {
        self.shared.namespaces.iter().position(|known| known == namespace).unwrap_or(0)
    }

    fn update_request(&self, call: &Call, stmt: &Stmt, number: i64) -> Result<UpdateRequest> {
        let context = &call.context;
        let change = match stmt {
            Stmt::Upsert(doc) => upsert_of(doc, number),
            Stmt::Update { change, .. } | Stmt::FindAndModify { change: Some(change), .. } => {
                change_of(change, number)
            }
            _ => DocumentBuf::empty(),
        };
        Ok(UpdateRequest {
            matcher: Arc::new(Matcher::parse(filter_of(&stmt.filter()).view(), context)?),
            update: Update::parse(Value::Document(change.view()), &[], context)?.into(),
            multi: stmt.is_multi(),
            upsert: matches!(stmt, Stmt::Upsert(_)),
            sort: None,
            hint: None,
            bypass_validation: false,
        })
    }

    /// Changes collections or indexes.
    pub(crate) fn ddl(&self, ddl: &Ddl, namespace: usize) {
        // Other statements yield by the clock, which does not depend on the seed.
        let call = self.call_through(self.shared.blocking);
        let started = self.shared.history.start();
        let outcome = self.change(&call, ddl, namespace).map_err(Failure::from);
        let outcome = outcome.map(|committed| committed.map(|committed| self.acknowledge(committed)));
        self.shared.history.end(started, Kind::Ddl { namespace, ddl: ddl.clone(), outcome });
    }

    fn change(&self, call: &Call, ddl: &Ddl, namespace: usize) -> Result<Option<Committed>> {
        let (database, namespaces) = (&self.database, &self.shared.namespaces);
        let Call { operation, context } = call;
        let namespace = &namespaces[namespace];
        let create = |specs: &[DocumentBuf]| {
            let parse = |spec: &DocumentBuf| IndexSpec::parse(spec.view(), namespace, context);
            let specs: Vec<IndexSpec> = specs.iter().map(parse).collect::<Result<_>>()?;
            Ok(database.create_indexes(operation, namespace, specs, context)?.committed)
        };
        match ddl {
            Ddl::Ensure => {
                create(&[spec("u", Some("unique")), spec("p", Some("prepareUnique")), spec("k", None)])
            }
            Ddl::Build { unique } => create(&[spec("q", unique.then_some("unique"))]),
            Ddl::DropIndex => {
                let names = ["q".to_string()];
                let dropped = database.drop_indexes(operation.as_ref(), namespace, Some(&names))?;
                Ok(Some(dropped.1))
            }
            Ddl::Convert => {
                let index = IndexChange {
                    index: Value::String("p"),
                    expire_after_seconds: None,
                    hidden: None,
                    prepare_unique: None,
                    unique: true,
                    force_non_unique: false,
                    dry_run: false,
                };
                let request = CollectionChange { index: Some(index), ..CollectionChange::default() };
                let scope = Scope::new(operation, namespace, context);
                let changed = database.modify_collection(&scope, &request, &mut BuildProgress::default())?;
                Ok(changed.committed)
            }
            Ddl::Drop => {
                Ok(database.drop_collection(operation.as_ref(), namespace)?.map(|dropped| dropped.1))
            }
            Ddl::Reset => Ok(database.reset_database(operation.as_ref(), namespace.database())?.1),
            Ddl::Rename { to } => {
                let (from, to) = (namespace.clone(), namespaces[*to].clone());
                let request = RenameRequest::new(from, to, self.random.percent(50));
                database.rename_collection(operation.as_ref(), &request).map(Some)
            }
        }
    }
}

fn transaction_of(operation: &Operation) -> bool {
    operation.transaction().is_some()
}

/// Returns the specification of an index on one field, with the field's name.
fn spec(field: &str, option: Option<&str>) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"v", 2)
        .begin_document(c"key")
        .append(FieldName::trusted(field), 1)
        .end()
        .append(c"name", field);
    if let Some(option) = option {
        out.append(FieldName::trusted(option), true);
    }
    out.finish()
}

fn sum_of(filter: &Filter) -> DocumentBuf {
    let mut out = Builder::new();
    out.begin_array(c"p");
    out.push_document().append(c"$match", filter_of(filter).view()).end();
    out.push_document().begin_document(c"$group").append(c"_id", Value::Null);
    out.begin_document(c"c").append(c"$sum", 1).end().begin_document(c"s").append(c"$sum", "$n").end();
    out.end().end().end();
    out.finish()
}

/// Returns the next documents of a cursor, and whether it has ended.
fn next(cursor: &mut Cursor, count: u64) -> Result<(Vec<DocumentBuf>, bool)> {
    let mut out = Builder::new();
    out.begin_array(c"b");
    let (_, ended) = cursor.next_batch(count, &mut out)?;
    out.end();
    let out = out.finish();
    let batch = out.view().get("b").and_then(|batch| batch.as_array()).unwrap_or(Array::EMPTY);
    let docs = batch.iter().filter_map(|value| value.as_document().map(|document| document.to_owned()));
    Ok((docs.collect(), ended))
}

/// Returns the parsed namespaces.
pub(crate) fn namespaces() -> Vec<Namespace> {
    NAMESPACES.iter().map(|name| Namespace::parse(name).unwrap()).collect()
}

impl Shared {
    pub(crate) fn new(
        databases: Vec<Arc<Database>>,
        history: History,
        blocking: BlockingHook,
    ) -> Arc<Shared> {
        let times = parking_lot::Mutex::default();
        Arc::new(Shared { databases, history, namespaces: namespaces(), blocking, times })
    }

    /// Checks that documents, indexes, counts and catalog agree.
    pub(crate) fn validate(&self) -> std::result::Result<(), String> {
        self.databases.iter().try_for_each(|database| {
            self.namespaces.iter().try_for_each(|namespace| validate(database, namespace))
        })
    }
}

fn validate(database: &Database, namespace: &Namespace) -> std::result::Result<(), String> {
    let Some(collection) = database.collection(namespace) else { return Ok(()) };
    let context = Context::new(0, 1, Arc::new(Uninterrupted));
    let found = database.validate(namespace, database::validate::Depth::Full, &context);
    let found = found.map_err(|error| format!("validating {namespace}: {error}"))?;
    let odd: Vec<_> = found.indexes.iter().flat_map(|index| &index.errors).collect();
    if !found.is_valid() || !found.warnings.is_empty() {
        return Err(format!(
            "{namespace} is broken: {:?} {odd:?} {:?} {:?} {:?}",
            found.errors, found.warnings, found.extra, found.missing
        ));
    }
    if collection.records() != found.records as i64 {
        let counted = collection.records();
        return Err(format!("{namespace} has {} documents, and counts {counted}", found.records));
    }
    match collection.data.as_ref().map_or(0, |data| data.building.len()) {
        0 => Ok(()),
        _ => Err(format!("{namespace} still has indexes that nobody builds")),
    }
}

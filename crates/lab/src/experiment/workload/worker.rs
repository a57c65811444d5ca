//! The worker of one connection for a workload, and one request to a target with MongoDB's protocol.

use super::concern::UnacknowledgedConnection;
use super::file::{Kind, Step};
use super::generator::{Generator, ValueContext, weighted_index};
use super::{WorkloadCase, sql};
use crate::Result;
use crate::experiment::{MongoConnection, named};
use crate::load::Worker;
use crate::load::keys::{Keys, Rng};
use crate::load::measure::{RoundSpec, WARM_UP};
use crate::target::{Protocol, Scratch, Target, start_copy};
use mongodb::action::Action;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::{ReturnDocument, UpdateModifications};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The worker of a connection.
pub(crate) struct WorkloadWorker {
    by: WorkerConnection,
    mix: WorkloadCase,
    round: u64,
}

/// The connection of a worker.
pub(super) enum WorkerConnection {
    Mongo(Box<MongoConnection>),
    Postgres(Box<sql::Session>),
    /// An unacknowledged connection.
    UnacknowledgedConnection {
        connection: UnacknowledgedConnection,
        database: String,
    },
    /// Each operation opens a connection.
    Connecting(Target),
    /// Each operation starts a server. Servers are stopped after the measurement, since their end is not timed.
    Starting {
        like: Target,
        started: Vec<Target>,
        scratch: Scratch,
    },
}

/// Returns the inputs of the values of an operation. Operations of one number get equal inputs, whatever their kind.
pub(super) fn context<'a>(
    mix: &'a WorkloadCase,
    round: u64,
    number: u64,
    database: &'a str,
) -> ValueContext<'a> {
    let rng = Rng::of((!mix.shared.size.seed).wrapping_add(round), number);
    ValueContext { rng, number, key: None, saved: BTreeMap::new(), database }
}

impl WorkloadWorker {
    pub(super) fn new(mix: &WorkloadCase, by: WorkerConnection, spec: &RoundSpec) -> WorkloadWorker {
        WorkloadWorker { by, mix: mix.clone(), round: u64::from(spec.round) }
    }
}

impl Worker for WorkloadWorker {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let WorkloadWorker { by, mix, round } = self;
        let shared = &mix.shared;
        // Numbers continue from the previous block.
        let number = number + mix.block * shared.block();
        let database = match by {
            WorkerConnection::Mongo(link) => link.database.name().to_string(),
            _ => String::new(),
        };
        let mut context = context(mix, *round, number, &database);
        let at = mix.at.unwrap_or_else(|| {
            weighted_index(shared.section.kinds.iter().map(Step::weight), &mut context.rng)
        });
        let Some(operation) = shared.section.kinds.get(at) else { return Ok(()) };
        let began = Instant::now();
        match by {
            WorkerConnection::Mongo(link) => match &operation.concern {
                Some(concern) => {
                    let insert = insert(mix, &concern.document);
                    let reply = link.run(insert).await?;
                    let error = reply.get_document("writeConcernError").ok().or_else(|| write_error(&reply));
                    if let Some(error) = error {
                        return Err(link.target.error(error.get_str("errmsg").unwrap_or("a write error")));
                    }
                }
                None => {
                    choose_key(mix, operation, &mut context, false);
                    let runner = StepRunner { link, mix };
                    let due = operation.steps.iter().filter(|step| step.is_due(number));
                    for step in due {
                        runner.step(step, &mut context).await?;
                    }
                }
            },
            WorkerConnection::Postgres(session) => {
                choose_key(mix, operation, &mut context, true);
                session.run(&operation.statements, shared.documents, &mut context).await?;
            }
            WorkerConnection::UnacknowledgedConnection { connection, database } => {
                let document = operation.concern.as_ref().map(|concern| concern.document.clone());
                let mut command = insert(mix, &document.unwrap_or_default());
                command.insert("$db", database.as_str());
                connection.send(number, &command).await?;
            }
            WorkerConnection::Connecting(target) => match target.protocol {
                // The connection has been tested by a ping already.
                Protocol::Mongo => target.mongo().await?.shutdown().immediate(true).await,
                Protocol::Postgres => {
                    let client = target.postgres().await?;
                    named(target, client.batch_execute("SELECT 1").await)?;
                }
            },
            WorkerConnection::Starting { like, started, scratch } => {
                let next = start_copy(like, scratch.path()).await;
                started.push(next.unwrap_or_else(|| Err(like.error("can't be started again")))?);
            }
        }
        if mix.at.is_none()
            && number < WARM_UP
            && let Some(latencies) = mix.state.latencies.lock().get_mut(at)
        {
            latencies.record(began.elapsed());
        }
        Ok(())
    }
}

/// Chooses the document of an operation, and makes the values shared by its steps.
fn choose_key<'a>(mix: &'a WorkloadCase, operation: &Step, context: &mut ValueContext<'a>, by_sql: bool) {
    let section = &mix.shared.section;
    let keys = operation.keys.as_ref().unwrap_or(&section.keys);
    let inserts = |step: &Step| step.kind == Kind::Insert && step.document.is_none();
    let key = match keys {
        // An inserting statement uses a new document.
        _ if by_sql && operation.steps.iter().any(inserts) => mix.state.documents.fetch_add(1, Relaxed),
        Keys::Growing { .. } => keys.pick(&mut context.rng, context.number),
        _ => keys.pick(&mut context.rng, mix.state.documents.load(Relaxed)),
    };
    context.key = Some((&section.template, key));
    for (name, generator) in operation.with.iter().flatten() {
        let value = generator.generate(context);
        context.saved.insert(name.clone(), value);
    }
}

/// Returns an insert with a write concern.
fn insert(mix: &WorkloadCase, concern: &Document) -> Document {
    let section = &mix.shared.section;
    doc! { "insert": &section.collection, "documents": [mix.new_document()], "writeConcern": concern.clone() }
}

/// Returns the first write error of a reply.
fn write_error(reply: &Document) -> Option<&Document> {
    reply.get_array("writeErrors").ok()?.first()?.as_document()
}

/// Number of attempts of an upsert that loses to a concurrent upsert of the same document.
const ATTEMPTS: u32 = 3;

/// Context of a step.
pub(super) struct StepRunner<'a> {
    pub(super) link: &'a MongoConnection,
    pub(super) mix: &'a WorkloadCase,
}

fn document(value: Bson) -> Document {
    if let Bson::Document(document) = value { document } else { Document::new() }
}

/// Returns the stages of a pipeline, or of a pipeline update.
fn stages(value: Bson) -> Vec<Document> {
    let Bson::Array(stages) = value else { return Vec::new() };
    stages.into_iter().map(document).collect()
}

fn made(generator: Option<&Generator>, context: &mut ValueContext) -> Bson {
    generator.map_or(Bson::Null, |generator| generator.generate(context))
}

/// Converts a value into an update document or a pipeline.
fn modifications(value: Bson) -> UpdateModifications {
    match value {
        Bson::Document(document) => document.into(),
        other => stages(other).into(),
    }
}

impl StepRunner<'_> {
    fn name<'s>(&'s self, step: &'s Step) -> &'s str {
        step.collection.as_deref().unwrap_or(&self.mix.shared.section.collection)
    }

    /// Executes a step, and keeps the requested values.
    ///
    /// # Errors
    /// The target refuses, or finds another number of documents than the file expects.
    pub(super) async fn step(&self, step: &Step, context: &mut ValueContext<'_>) -> Result<()> {
        let link = self.link;
        let collection = link.collection::<Document>(self.name(step));
        let found = match step.kind {
            Kind::Insert => return self.insert(step, context).await,
            Kind::Command => {
                let command = document(made(step.change(), context));
                let done = if step.admin == Some(true) {
                    link.admin(command).await
                } else {
                    link.run(command).await
                };
                return done.map(drop);
            }
            Kind::Connect | Kind::Start => return Ok(()),
            Kind::Aggregate => {
                let pipeline = stages(made(step.change(), context));
                self.read_all(link.named(collection.aggregate(pipeline).await)?).await?
            }
            kind => {
                let filter = match &step.filter {
                    Some(filter) => document(filter.generate(context)),
                    None => doc! { "_id": Generator::Key { field: None }.generate(context) },
                };
                match kind {
                    Kind::Find => self.find(step, filter, context).await?,
                    Kind::Count => link.named(collection.count_documents(filter).await)?,
                    Kind::Delete if step.many == Some(true) => {
                        link.named(collection.delete_many(filter).await)?.deleted_count
                    }
                    Kind::Delete => link.named(collection.delete_one(filter).await)?.deleted_count,
                    Kind::Update => {
                        let change = modifications(made(step.change(), context));
                        let done = match step.many {
                            Some(true) => {
                                collection.update_many(filter, change).upsert(step.upsert == Some(true)).await
                            }
                            _ => {
                                collection.update_one(filter, change).upsert(step.upsert == Some(true)).await
                            }
                        };
                        link.named(done)?.matched_count
                    }
                    _ => {
                        let change = modifications(made(step.change(), context));
                        self.find_and_modify(step, filter, change, context).await?
                    }
                }
            }
        };
        let Some(expected) = step.expect.map(|expected| expected.of(self.mix.shared.documents)) else {
            return Ok(());
        };
        // The number of groups depends on the documents, up to the expected number.
        let right =
            if step.kind == Kind::Aggregate { (1..=expected).contains(&found) } else { found == expected };
        if right {
            Ok(())
        } else {
            Err(link.target.error(format!("found {found} documents, which is not the expected number")))
        }
    }

    /// Inserts a document or a batch, and keeps its key.
    async fn insert(&self, step: &Step, context: &mut ValueContext<'_>) -> Result<()> {
        let name = self.name(step);
        let collection = self.link.collection::<Document>(name);
        if let Some(batch) = step.batch {
            let documents: Vec<Document> = (0..batch.get()).map(|_| self.mix.new_document()).collect();
            return self.link.named(collection.insert_many(documents).await).map(drop);
        }
        let inserted = match &step.document {
            Some(generator) => document(generator.generate(context)),
            None => self.mix.new_document(),
        };
        let id = self.link.named(collection.insert_one(inserted).await)?.inserted_id;
        if let Some(name) = &step.save {
            context.saved.insert(name.clone(), Bson::Document(doc! { "_id": id }));
        }
        Ok(())
    }

    /// Runs a find and reads all batches. Returns the number of documents.
    async fn find(&self, step: &Step, filter: Document, context: &mut ValueContext<'_>) -> Result<u64> {
        let name = self.name(step);
        let collection = self.link.collection::<RawDocumentBuf>(name);
        let find = collection.find(filter).optional(step.sort.clone(), |find, sort| find.sort(sort.0));
        let mut find = find.optional(step.projection.clone(), |find, fields| find.projection(fields.0));
        // A unique document is requested with a limit of -1, as drivers do.
        if let Some(limit) = step.limit.map(|limit| limit.get() as i64).or(step.save.as_ref().map(|_| -1)) {
            find = find.limit(limit);
        }
        let mut cursor = self.link.named(find.await)?;
        let mut found = 0;
        while self.link.named(cursor.advance().await)? {
            found += 1;
            if let Some(name) = &step.save {
                let first =
                    Document::try_from(cursor.current()).map_err(|error| self.link.target.error(error))?;
                context.saved.insert(name.clone(), Bson::Document(first));
            }
        }
        Ok(found)
    }

    /// Runs a findAndModify. Returns the number of documents found.
    async fn find_and_modify(
        &self,
        step: &Step,
        filter: Document,
        change: UpdateModifications,
        context: &mut ValueContext<'_>,
    ) -> Result<u64> {
        let collection = self.link.collection::<Document>(self.name(step));
        let mut attempt = 1;
        let found = loop {
            let find = collection.find_one_and_update(filter.clone(), change.clone());
            let find = find
                .upsert(step.upsert == Some(true))
                .optional(step.sort.clone(), |find, sort| find.sort(sort.0));
            let mut find = find.optional(step.projection.clone(), |find, fields| find.projection(fields.0));
            if step.save.is_some() {
                find = find.return_document(ReturnDocument::After);
            }
            match find.await {
                Err(conflict)
                    if step.upsert == Some(true) && attempt < ATTEMPTS && is_duplicate(&conflict) =>
                {
                    attempt += 1
                }
                found => break self.link.named(found)?,
            }
        };
        let count = u64::from(found.is_some());
        if let (Some(name), Some(found)) = (&step.save, found) {
            context.saved.insert(name.clone(), Bson::Document(found));
        }
        Ok(count)
    }

    /// Reads all batches of a cursor. Returns the number of documents.
    async fn read_all(&self, mut cursor: mongodb::Cursor<Document>) -> Result<u64> {
        let mut found = 0;
        while self.link.named(cursor.advance().await)? {
            found += 1;
        }
        Ok(found)
    }
}

/// Returns true if a write failed because its key existed.
fn is_duplicate(error: &mongodb::error::Error) -> bool {
    const DUPLICATE_KEY: i32 = 11000;
    match &*error.kind {
        ErrorKind::Command(command) => command.code == DUPLICATE_KEY,
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code == DUPLICATE_KEY,
        _ => false,
    }
}

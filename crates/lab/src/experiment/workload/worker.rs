//! The worker of one connection for a workload, and one request to a target with MongoDB's protocol.

use super::concern::UnacknowledgedConnection;
use super::file::{Kind, Step, is_due};
use super::generator::{Generator, ValueContext, weighted_index};
use super::{WorkloadCase, sql};
use crate::Result;
use crate::experiment::{MongoConnection, named};
use crate::load::Worker;
use crate::load::keys::{Keys, Rng};
use crate::load::measure::WARM_UP;
use crate::target::{Protocol, Scratch, Target, number, start_copy};
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The worker of a connection.
pub(crate) struct WorkloadWorker {
    pub(super) by: WorkerConnection,
    pub(super) mix: WorkloadCase,
    pub(super) round: u64,
}

/// The connection of a worker.
pub(super) enum WorkerConnection {
    Mongo(Box<MongoConnection>),
    Postgres(Box<sql::Session>),
    /// An unacknowledged connection.
    UnacknowledgedConnection(UnacknowledgedConnection),
    /// Each operation opens a connection.
    Connecting(Target),
    /// Each operation starts a server. Servers are stopped after the measurement, since their end is not timed.
    Starting {
        like: Target,
        started: Vec<Target>,
        scratch: Scratch,
    },
}

impl WorkloadCase {
    /// Returns the inputs of the values of an operation. Operations of one number get equal inputs, whatever their
    /// kind.
    pub(super) fn context<'a>(&self, round: u64, number: u64, database: &'a str) -> ValueContext<'a> {
        let rng = Rng::of((!self.shared.size.seed).wrapping_add(round), number);
        ValueContext { rng, number, key: None, saved: BTreeMap::new(), database }
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
        let mut context = mix.context(*round, number, &database);
        let at = mix.at.unwrap_or_else(|| {
            weighted_index(shared.section.kinds.iter().map(Step::weight), &mut context.rng)
        });
        let Some(operation) = shared.section.kinds.get(at) else { return Ok(()) };
        let began = Instant::now();
        match by {
            WorkerConnection::Mongo(link) => {
                let runner = StepRunner { link, mix };
                choose_key(mix, operation, &mut context, false);
                match &operation.concern {
                    Some(concern) => drop(runner.write(insert(mix, &concern.document)).await?),
                    None => {
                        for step in operation.steps.iter().filter(|step| is_due(step.every, number)) {
                            runner.step(step, &mut context).await?;
                        }
                    }
                }
            }
            WorkerConnection::Postgres(session) => {
                choose_key(mix, operation, &mut context, true);
                session.run(&operation.statements, shared.documents, &mut context).await?;
            }
            WorkerConnection::UnacknowledgedConnection(connection) => {
                let document = operation.concern.as_ref().map(|concern| concern.document.clone());
                connection.send(number, insert(mix, &document.unwrap_or_default())).await?;
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

fn made(generator: Option<&Generator>, context: &mut ValueContext) -> Bson {
    generator.map_or(Bson::Null, |generator| generator.generate(context))
}

/// Adds the sort and the projection of a step to a command.
fn add_order(step: &Step, command: &mut Document, projection: &str) {
    let (sort, fields) = (step.sort.iter().map(|sort| ("sort", sort)), step.projection.iter());
    command.extend(
        sort.chain(fields.map(|fields| (projection, fields)))
            .map(|(name, value)| (name.to_string(), value.0.clone().into())),
    );
}

impl StepRunner<'_> {
    /// Executes a step, and keeps the requested values.
    ///
    /// # Errors
    /// The target refuses, or finds another number of documents than the file expects.
    pub(super) async fn step(&self, step: &Step, context: &mut ValueContext<'_>) -> Result<()> {
        let link = self.link;
        let name = step.collection.as_deref().unwrap_or(&self.mix.shared.section.collection);
        let found = match step.kind {
            Kind::Insert => return self.insert(step, name, context).await,
            Kind::Connect | Kind::Start => return Ok(()),
            Kind::Command => {
                let command = document(made(step.change(), context));
                let is_admin = step.admin == Some(true);
                let done = if is_admin { link.admin(command).await } else { link.run(command).await };
                return done.map(drop);
            }
            Kind::Aggregate => {
                let pipeline = made(step.change(), context);
                let command = doc! { "aggregate": name, "pipeline": pipeline, "cursor": {} };
                self.read(step, command, context).await?
            }
            kind => {
                let filter = match &step.filter {
                    Some(filter) => document(filter.generate(context)),
                    None => doc! { "_id": Generator::Key { field: None }.generate(context) },
                };
                let (upsert, many) = (step.upsert == Some(true), step.many == Some(true));
                match kind {
                    Kind::Find => {
                        let mut find = doc! { "find": name, "filter": filter };
                        add_order(step, &mut find, "projection");
                        if let Some(limit) = step.limit {
                            find.insert("limit", limit.get() as i64);
                        } else if step.save.is_some() {
                            // A unique document comes in a single batch, as drivers ask for it.
                            find.extend(doc! { "limit": 1, "singleBatch": true });
                        }
                        self.read(step, find, context).await?
                    }
                    Kind::Count => {
                        link.named(link.database.collection::<Document>(name).count_documents(filter).await)?
                    }
                    Kind::Delete => {
                        let delete = doc! { "q": filter, "limit": i32::from(!many) };
                        self.write(doc! { "delete": name, "deletes": [delete] }).await?
                    }
                    Kind::Update => {
                        let change = made(step.change(), context);
                        let update = doc! { "q": filter, "u": change, "multi": many, "upsert": upsert };
                        self.write(doc! { "update": name, "updates": [update] }).await?
                    }
                    _ => {
                        let change = made(step.change(), context);
                        let command = doc! { "findAndModify": name, "query": filter, "update": change, "upsert": upsert };
                        self.find_and_modify(step, command, context).await?
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
    async fn insert(&self, step: &Step, name: &str, context: &mut ValueContext<'_>) -> Result<()> {
        let collection = self.link.database.collection::<Document>(name);
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

    /// Runs an insert, update or delete. Returns the number of existing documents that it found.
    pub(super) async fn write(&self, command: Document) -> Result<u64> {
        let reply = self.link.run(command).await?;
        let write_error =
            reply.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document());
        if let Some(error) = reply.get_document("writeConcernError").ok().or(write_error) {
            return Err(self.link.target.error(error.get_str("errmsg").unwrap_or("a write error")));
        }
        let upserted = reply.get_array("upserted").map_or(0, Vec::len) as f64;
        Ok((number(&reply, "n").unwrap_or(0.0) - upserted) as u64)
    }

    /// Reads all batches of a cursor, and keeps the last document if requested. Returns the number of documents.
    async fn read(&self, step: &Step, command: Document, context: &mut ValueContext<'_>) -> Result<u64> {
        let mut cursor = self.link.named(self.link.database.run_cursor_command(command).await)?;
        let mut documents = 0;
        while self.link.named(cursor.advance().await)? {
            documents += 1;
            if let Some(name) = &step.save {
                let document = self.link.named(cursor.deserialize_current())?;
                context.saved.insert(name.clone(), Bson::Document(document));
            }
        }
        Ok(documents)
    }

    /// Runs a findAndModify. Returns the number of documents found.
    async fn find_and_modify(
        &self,
        step: &Step,
        mut command: Document,
        context: &mut ValueContext<'_>,
    ) -> Result<u64> {
        add_order(step, &mut command, "fields");
        command.insert("new", step.save.is_some());
        let mut attempt = 1;
        let mut reply = loop {
            match self.link.database.run_command(command.clone()).await {
                Err(conflict)
                    if step.upsert == Some(true) && attempt < ATTEMPTS && is_duplicate(&conflict) =>
                {
                    attempt += 1
                }
                reply => break self.link.named(reply)?,
            }
        };
        let Some(found @ Bson::Document(_)) = reply.remove("value") else { return Ok(0) };
        context.saved.extend(step.save.clone().map(|name| (name, found)));
        Ok(1)
    }
}

/// Returns true if a write failed because its key existed.
fn is_duplicate(error: &mongodb::error::Error) -> bool {
    const DUPLICATE_KEY: i32 = 11000;
    matches!(&*error.kind, ErrorKind::Command(command) if command.code == DUPLICATE_KEY)
}

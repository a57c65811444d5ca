//! One connection's share of a workload.

use super::bare::Bare;
use super::file::{Kind, Step};
use super::maker::{Scene, drawn};
use super::steps::Doing;
use super::{Mix, lock, sql};
use crate::error::Result;
use crate::experiment::parts::{Link, named};
use crate::load::Worker;
use crate::load::keys::Keys;
use crate::load::measure::{Visit, WARM_UP};
use crate::load::random::Dice;
use crate::target::{Protocol, Scratch, Target, another};
use mongodb::bson::{Document, doc};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The connection.
pub(crate) struct Mixer {
    by: By,
    mix: Mix,
    round: u64,
}

pub(super) enum By {
    Mongo(Box<Link>),
    Postgres(Box<sql::Session>),
    /// Nothing is answered.
    Bare {
        bare: Bare,
        database: String,
    },
    /// Each operation is a connection of its own.
    Connecting(Target),
    /// Each operation is a server of its own, ended after the measurement: ending is not what is timed.
    Starting {
        like: Target,
        started: Vec<Target>,
        scratch: Scratch,
    },
}

/// What the values of an operation depend on; those of one number are the same for each kind of operation.
pub(super) fn scene<'a>(mix: &'a Mix, round: u64, number: u64, database: &'a str) -> Scene<'a> {
    let dice = Dice::of((!mix.shared.size.seed).wrapping_add(round), number);
    Scene { dice, number, key: None, saved: BTreeMap::new(), database }
}

impl Mixer {
    pub(super) fn new(mix: &Mix, by: By, visit: &Visit) -> Mixer {
        Mixer { by, mix: mix.clone(), round: u64::from(visit.round) }
    }
}

impl Worker for Mixer {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let Mixer { by, mix, round } = self;
        let shared = &mix.shared;
        // Blocks go on where the last one ended.
        let number = number + mix.block * shared.block();
        let database = match by {
            By::Mongo(link) => link.database.name().to_string(),
            _ => String::new(),
        };
        let mut scene = scene(mix, *round, number, &database);
        let at =
            mix.at.unwrap_or_else(|| drawn(shared.section.kinds.iter().map(Step::weight), &mut scene.dice));
        let Some(operation) = shared.section.kinds.get(at) else { return Ok(()) };
        let began = Instant::now();
        match by {
            By::Mongo(link) => match &operation.concern {
                Some(concern) => {
                    let insert = insert(mix, &concern.document);
                    let reply = link.run(insert).await?;
                    let error = reply.get_document("writeConcernError").ok().or_else(|| write_error(&reply));
                    if let Some(error) = error {
                        return Err(link.target.error(error.get_str("errmsg").unwrap_or("a write error")));
                    }
                }
                None => {
                    aim(mix, operation, &mut scene, false);
                    let doing = Doing { link, mix };
                    let due = operation.steps.iter().filter(|step| step.is_due(number));
                    for step in due {
                        doing.step(step, &mut scene).await?;
                    }
                }
            },
            By::Postgres(session) => {
                aim(mix, operation, &mut scene, true);
                session.run(&operation.statements, shared.documents, &mut scene).await?;
            }
            By::Bare { bare, database } => {
                let document = operation.concern.as_ref().map(|concern| concern.document.clone());
                let mut command = insert(mix, &document.unwrap_or_default());
                command.insert("$db", database.as_str());
                bare.send(number, &command).await?;
            }
            By::Connecting(target) => match target.protocol {
                // It has been pinged by the time it is there.
                Protocol::Mongo => target.mongo().await?.shutdown().immediate(true).await,
                Protocol::Postgres => {
                    let client = target.postgres().await?;
                    named(target, client.batch_execute("SELECT 1").await)?;
                }
            },
            By::Starting { like, started, scratch } => {
                let next = another(like, scratch.path()).await;
                started.push(next.unwrap_or_else(|| Err(like.error("can't be started again")))?);
            }
        }
        if mix.at.is_none()
            && number < WARM_UP
            && let Some(latencies) = lock(&mix.state.latencies).get_mut(at)
        {
            latencies.record(began.elapsed());
        }
        Ok(())
    }
}

/// Chooses the document that an operation is about, and makes the values that its steps share.
fn aim<'a>(mix: &'a Mix, operation: &Step, scene: &mut Scene<'a>, by_sql: bool) {
    let section = &mix.shared.section;
    let keys = operation.keys.as_ref().unwrap_or(&section.keys);
    let inserts = |step: &Step| step.kind == Kind::Insert && step.document.is_none();
    let key = match keys {
        // A statement that inserts is about a new document.
        _ if by_sql && operation.steps.iter().any(inserts) => mix.state.documents.fetch_add(1, Relaxed),
        Keys::Growing { .. } => keys.pick(&mut scene.dice, scene.number),
        _ => keys.pick(&mut scene.dice, mix.state.documents.load(Relaxed)),
    };
    scene.key = Some((&section.template, key));
    for (name, maker) in operation.with.iter().flatten() {
        let value = maker.make(scene);
        scene.saved.insert(name.clone(), value);
    }
}

/// An insert with a write concern.
fn insert(mix: &Mix, concern: &Document) -> Document {
    let section = &mix.shared.section;
    doc! { "insert": &section.collection, "documents": [mix.fresh()], "writeConcern": concern.clone() }
}

fn write_error(reply: &Document) -> Option<&Document> {
    reply.get_array("writeErrors").ok()?.first()?.as_document()
}

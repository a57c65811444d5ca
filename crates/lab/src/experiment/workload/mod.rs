//! `run`: a mix of operations that a file describes.

mod fields;
mod file;
mod maker;
#[cfg(test)]
mod tests;

use super::parts::{Link, Loaded};
use super::{Experiment, sentences};
use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::load::Worker;
use crate::load::measure::{Bench, Case, Prepared, Visit};
use crate::load::random::Dice;
use crate::report::figures;
use crate::result::{Kind as Shape, Report, Row};
use crate::run::Lab;
use crate::target::{Protocol, Target};
use fields::Source;
use file::{Kind, Operation, Workload};
use maker::{Maker, Scene};
use mongodb::bson::{Bson, Document, doc};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The experiment.
pub(crate) struct Run {
    path: PathBuf,
    text: String,
    title: String,
    about: String,
}

const CASE: &str = "mix";

impl Run {
    /// A workload's file, checked before anything is started.
    ///
    /// # Errors
    /// It can't be read, or says something wrong.
    pub(crate) fn open(path: &Path) -> Result<Run> {
        let wrong =
            |error: std::io::Error| Error::Input(format!("{} can't be read: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        let mut run = Run { path: path.to_path_buf(), text, title: String::new(), about: String::new() };
        let workload = run.workload(0, 1.0)?;
        (run.title, run.about) = (workload.title.clone(), workload.about);
        Ok(run)
    }

    fn workload(&self, seed: u64, scale: f64) -> Result<Workload> {
        let name = self.path.display().to_string();
        Workload::read(Source { name: &name, text: &self.text }, seed, scale)
    }
}

impl Experiment for Run {
    fn name(&self) -> &'static str {
        "run"
    }

    fn title(&self) -> String {
        self.title.clone()
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let workload = Arc::new(self.workload(lab.seed, lab.common.scale)?);
        let about = format!(
            "An operation is one of: {}. The collection begins with {}.",
            shares(&workload.operations),
            figures::plural(workload.documents, "document")
        );
        let section = lab.section("run", &workload.title, &about, Shape::Bars);
        let (seed, loaded) = (lab.seed, Loaded::default());
        let case = |connections: u32| {
            let mix = Mix {
                workload: Arc::clone(&workload),
                seed,
                loaded: loaded.clone(),
                state: Arc::default(),
                merged: Arc::default(),
            };
            Case::new(CASE, workload.until, mix).on(connections)
        };
        let cases: Vec<_> = lab.connections(&workload.connections).into_iter().map(case).collect();
        lab.measure(section, &cases).await;
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        let bars = report.sections.iter().filter(|section| section.kind == Shape::Bars);
        let rows = bars.flat_map(|section| {
            section.rows.iter().filter(|row| sentences::targets(section).contains(&row.target.as_str()))
        });
        rows.filter_map(slowest).collect()
    }
}

/// "find by key 70 %, insert 30 %".
fn shares(operations: &[Operation]) -> String {
    let sum: f64 = operations.iter().map(|operation| operation.weight).sum();
    let share = |operation: &Operation| {
        format!("{} {} %", operation.name, figures::number(100.0 * operation.weight / sum))
    };
    operations.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// Which kind of operation a row waited for longest.
fn slowest(row: &Row) -> Option<String> {
    let p99 = row.extra.iter().filter_map(|(name, value)| Some((name.strip_suffix(P99)?, *value)));
    let (name, value) = p99.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{}, {}: the slowest of the mix is '{name}', of which one in a hundred takes {} or longer.",
        row.target,
        figures::plural(row.connections.into(), "connection"),
        figures::latency(value)
    ))
}

/// What is behind the name of an operation in the figures beside a row.
const P50: &str = ": p50, µs";
const P99: &str = ": p99, µs";

/// The mix on one number of connections.
#[derive(Clone)]
struct Mix {
    workload: Arc<Workload>,
    seed: u64,
    loaded: Loaded,
    /// Of the round that runs.
    state: Arc<State>,
    /// By target: each operation's latencies over all rounds.
    merged: Arc<Mutex<std::collections::BTreeMap<String, Vec<Latencies>>>>,
}

/// What the workers of a round share.
#[derive(Default)]
struct State {
    /// Documents that were made so far: the number of the next one.
    documents: AtomicU64,
    /// Time in the server by kind of operation, warm-up left out.
    latencies: Mutex<Vec<Latencies>>,
}

impl Bench for Mix {
    type Worker = Mixer;

    async fn prepare(&self, target: &Target, visit: &Visit) -> Result<Prepared<Mixer>> {
        if target.protocol == Protocol::Postgres {
            return Ok(Prepared::Cannot("workloads are of MongoDB's protocol".to_string()));
        }
        let links = Link::open_all(target, visit.connections).await?;
        let Some(link) = links.first() else { return Ok(Prepared::Ready(Vec::new())) };
        let workload = &self.workload;
        if self.loaded.first_time(target) || workload.moves() {
            link.drop(&workload.collection).await?;
            link.run(doc! { "create": &workload.collection }).await?;
            if !workload.indexes.is_empty() {
                let collection = link.collection::<Document>(&workload.collection);
                link.named(collection.create_indexes(workload.indexes.clone()).await)?;
            }
            link.fill(&workload.collection, workload.documents, |number| workload.template.document(number))
                .await?;
        }
        self.state.documents.store(workload.documents, Relaxed);
        *lock(&self.state.latencies) = workload.operations.iter().map(|_| Latencies::new()).collect();
        let workers = links.into_iter().map(|link| Mixer { link, mix: self.clone() });
        Ok(Prepared::Ready(workers.collect()))
    }

    async fn finish(&self, target: &Target, row: &mut Row) -> Result<()> {
        let mut merged = lock(&self.merged);
        let fresh = || self.workload.operations.iter().map(|_| Latencies::new()).collect();
        let all = merged.entry(target.name.clone()).or_insert_with(fresh);
        for ((round, whole), operation) in
            lock(&self.state.latencies).iter_mut().zip(all).zip(&self.workload.operations)
        {
            round.drain_into(whole);
            if whole.count() > 0 {
                row.extra.insert(format!("{}{P50}", operation.name), whole.quantile(0.5));
                row.extra.insert(format!("{}{P99}", operation.name), whole.quantile(0.99));
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection's share of the mix.
struct Mixer {
    link: Link,
    mix: Mix,
}

impl Worker for Mixer {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let workload = Arc::clone(&self.mix.workload);
        let mut dice = Dice::of(!self.mix.seed, number);
        let at = drawn(&workload.operations, &mut dice);
        let Some(operation) = workload.operations.get(at) else { return Ok(()) };
        let began = Instant::now();
        if operation.kind == Kind::Insert {
            let document = workload.template.document(self.mix.state.documents.fetch_add(1, Relaxed));
            let collection = self.link.collection::<Document>(&workload.collection);
            self.link.named(collection.insert_one(document).await)?;
        } else {
            let key = workload.keys.pick(&mut dice, self.mix.state.documents.load(Relaxed));
            let mut scene = Scene { dice, number, key: Some((&workload.template, key)) };
            self.carry_out(operation, &mut scene).await?;
        }
        if number < crate::load::measure::WARM_UP
            && let Some(latencies) = lock(&self.mix.state.latencies).get_mut(at)
        {
            latencies.record(began.elapsed());
        }
        Ok(())
    }
}

/// The place of an operation, by weight.
fn drawn(operations: &[Operation], dice: &mut Dice) -> usize {
    let sum: f64 = operations.iter().map(|operation| operation.weight).sum();
    let mut left = dice.share() * sum;
    for (at, operation) in operations.iter().enumerate() {
        left -= operation.weight;
        if left < 0.0 {
            return at;
        }
    }
    operations.len().saturating_sub(1)
}

fn document(maker: &Maker, scene: &mut Scene<'_>) -> Document {
    match maker.make(scene) {
        Bson::Document(document) => document,
        _ => Document::new(),
    }
}

/// The stages of a pipeline, or of an update that is one.
fn stages(value: Bson) -> Vec<Document> {
    let Bson::Array(stages) = value else { return Vec::new() };
    stages
        .into_iter()
        .filter_map(|stage| if let Bson::Document(stage) = stage { Some(stage) } else { None })
        .collect()
}

impl Mixer {
    async fn carry_out(&self, operation: &Operation, scene: &mut Scene<'_>) -> Result<()> {
        let link = &self.link;
        let collection = link.collection::<Document>(&self.mix.workload.collection);
        let filter = document(&operation.filter, scene);
        match operation.kind {
            Kind::Insert => Ok(()),
            Kind::Find => {
                let mut find = collection.find(filter);
                if let Some(sort) = &operation.sort {
                    find = find.sort(sort.clone());
                }
                if let Some(projection) = &operation.projection {
                    find = find.projection(projection.clone());
                }
                if let Some(limit) = operation.limit {
                    find = find.limit(limit);
                }
                self.exhaust(link.named(find.await)?).await
            }
            Kind::Aggregate => {
                let pipeline = stages(operation.change.make(scene));
                self.exhaust(link.named(collection.aggregate(pipeline).await)?).await
            }
            Kind::Delete if operation.many => link.named(collection.delete_many(filter).await).map(drop),
            Kind::Delete => link.named(collection.delete_one(filter).await).map(drop),
            Kind::Update => {
                let change = modifications(operation.change.make(scene));
                if operation.many {
                    return link
                        .named(collection.update_many(filter, change).upsert(operation.upsert).await)
                        .map(drop);
                }
                link.named(collection.update_one(filter, change).upsert(operation.upsert).await).map(drop)
            }
            Kind::FindAndModify => {
                let change = modifications(operation.change.make(scene));
                let mut find = collection.find_one_and_update(filter, change).upsert(operation.upsert);
                if let Some(sort) = &operation.sort {
                    find = find.sort(sort.clone());
                }
                if let Some(projection) = &operation.projection {
                    find = find.projection(projection.clone());
                }
                link.named(find.await).map(drop)
            }
        }
    }

    async fn exhaust(&self, mut cursor: mongodb::Cursor<Document>) -> Result<()> {
        while self.link.named(cursor.advance().await)? {}
        Ok(())
    }
}

fn modifications(value: Bson) -> mongodb::options::UpdateModifications {
    match value {
        Bson::Document(document) => document.into(),
        other => stages(other).into(),
    }
}

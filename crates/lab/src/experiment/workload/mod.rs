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
use crate::result::{Kind as Shape, Report, Round, Row, Section};
use crate::run::Lab;
use crate::target::{Protocol, Target};
use fields::Source;
use file::{Kind, Operation, Workload};
use maker::{Maker, Scene};
use mongodb::bson::{Bson, Document, doc};
use std::collections::BTreeMap;
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
        let until = workload.until;
        let mix = |connections: u32| {
            let (workload, loaded) = (Arc::clone(&workload), loaded.clone());
            let mix =
                Mix { workload, seed, connections, loaded, state: Arc::default(), rows: Arc::default() };
            Case::new(CASE, until, mix).on(connections)
        };
        let cases: Vec<_> = lab.connections(&workload.connections).into_iter().map(mix).collect();
        lab.measure(section, &cases).await;
        let about = "The same operations by kind, each timed from when it was sent.";
        let section = lab.section(BY_KIND, "By kind of operation", about, Shape::Bars);
        for at in 0..workload.operations.len() {
            for case in &cases {
                let rows = lock(&case.bench.rows);
                let rows = lab.targets.iter().filter_map(|target| rows.get(&target.name)?.get(at));
                lab.report.sections[section].rows.extend(rows.filter(|row| row.operations > 0).cloned());
            }
        }
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        let Some(section) = report.sections.iter().find(|section| section.id == BY_KIND) else {
            return Vec::new();
        };
        let mut connections: Vec<u32> = section.rows.iter().map(|row| row.connections).collect();
        connections.sort_unstable();
        connections.dedup();
        let targets = sentences::targets(section);
        let each = targets.iter().flat_map(|target| connections.iter().map(move |on| (*target, *on)));
        each.filter_map(|(target, on)| slowest(section, target, on)).collect()
    }
}

/// The section that tells operations apart.
const BY_KIND: &str = "operations";

/// "find by key 70 %, insert 30 %".
fn shares(operations: &[Operation]) -> String {
    let sum: f64 = operations.iter().map(|operation| operation.weight).sum();
    let share = |operation: &Operation| {
        format!("{} {} %", operation.name, figures::number(100.0 * operation.weight / sum))
    };
    operations.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// Which kind of operation a target takes longest for.
fn slowest(section: &Section, target: &str, connections: u32) -> Option<String> {
    let rows = section.rows.iter().filter(|row| row.target == target && row.connections == connections);
    let times = rows.filter_map(|row| Some((sentences::p99(row)?, &row.case)));
    let (p99, name) = times.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "{target}, {}: the slowest of the mix is '{name}', of which one in a hundred takes {} or longer.",
        figures::plural(connections.into(), "connection"),
        figures::latency(p99)
    ))
}

/// The mix on one number of connections.
#[derive(Clone)]
struct Mix {
    workload: Arc<Workload>,
    seed: u64,
    connections: u32,
    loaded: Loaded,
    /// Of the round that runs.
    state: Arc<State>,
    /// By target: a row for each operation.
    rows: Arc<Mutex<BTreeMap<String, Vec<Row>>>>,
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
        let seconds = row.rounds.last().map_or(0.0, |round| round.seconds);
        let operations = &self.workload.operations;
        let fresh =
            || operations.iter().map(|each| Row::new(&target.name, &each.name, self.connections)).collect();
        let mut rows = lock(&self.rows);
        let rows = rows.entry(target.name.clone()).or_insert_with(fresh);
        for (latencies, row) in lock(&self.state.latencies).iter_mut().zip(rows) {
            add(row, latencies, seconds);
        }
        Ok(())
    }
}

/// Adds what a round had of one kind of operation to its row.
fn add(row: &mut Row, latencies: &mut Latencies, seconds: f64) {
    let (operations, latency) = (latencies.count(), latencies.summary());
    row.operations += operations;
    row.seconds += seconds;
    row.rounds.push(Round { operations, seconds, latency, cpu_microseconds: None, shortened: false });
    latencies.drain_into(&mut row.latency);
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

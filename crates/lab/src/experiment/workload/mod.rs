//! Workloads: operations described by a file. Most of the lab's own experiments are workloads.
//!
//! A new built-in workload is a file in `workloads` and a row of [`OWN`]. A new kind of step is a variant of [`Kind`]
//! and a case in `worker.rs`.

mod concern;
mod file;
mod generator;
mod sql;
#[cfg(test)]
mod tests;
mod worker;

use super::{Experiment, LoadedData, MongoConnection};
use crate::histogram::Latencies;
use crate::load::measure::{Bench, Case, Prepared, RoundSpec};
use crate::load::{Lab, LoadEnd};
use crate::options::Common;
use crate::report::figures;
use crate::result::{Kind as Shape, Part, Row};
use crate::target::{Counters, NULL_SERVER_ANSWERS, Protocol, Scratch, Target, sizes, start_copy};
use crate::{Error, Result};
use concern::{Connected, SentMessages, UnacknowledgedConnection};
use file::{Kind, Section, Size, Source, Step, Workload};
use mongodb::bson::{Document, doc};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use worker::{WorkerConnection, WorkloadWorker};

/// Number of documents loaded by one command.
const BATCH: usize = 1000;

/// The built-in workloads: name and text.
pub(crate) const OWN: &[(&str, &str)] = &[
    ("clean", include_str!("../../../workloads/clean.toml")),
    ("error-tracker", include_str!("../../../workloads/error-tracker.toml")),
    ("inserts", include_str!("../../../workloads/inserts.toml")),
    ("micro", include_str!("../../../workloads/micro.toml")),
    ("working-set", include_str!("../../../workloads/working-set.toml")),
    ("write-concern", include_str!("../../../workloads/write-concern.toml")),
];

/// The experiment of a workload.
pub(crate) struct Run {
    name: &'static str,
    file: String,
    text: String,
    workload: Workload,
}

impl Run {
    /// Reads and checks a workload file before any server is started.
    ///
    /// # Errors
    /// It cannot be read or is invalid.
    pub(crate) fn open(path: &Path) -> Result<Run> {
        let unreadable =
            |error: std::io::Error| Error::Input(format!("{} can't be read: {error}", path.display()));
        Run::read("run", path.display().to_string(), std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// Returns a built-in workload.
    ///
    /// # Errors
    /// The name is unknown.
    pub(crate) fn own(name: &str) -> Result<Run> {
        let found = OWN.iter().find(|(known, _)| *known == name);
        let unknown = || {
            let known: Vec<&str> = OWN.iter().map(|(name, _)| *name).collect();
            Error::Input(format!("unknown workload {name}: the workloads are {}", known.join(", ")))
        };
        let (name, text) = found.ok_or_else(unknown)?;
        Run::read(name, format!("{name}.toml"), (*text).to_string())
    }

    /// Returns the text of its file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn read(name: &'static str, file: String, text: String) -> Result<Run> {
        let workload = Workload::read(Source { name: &file, text: &text }, Size { seed: 0, scale: 1.0 })?;
        Ok(Run { name, file, text, workload })
    }
}

impl Experiment for Run {
    fn describe(&self) -> Part {
        Part::new(self.name, &self.workload.title, &self.workload.about)
    }

    fn check(&self, common: &Common) -> Result<()> {
        let mut refused: Vec<&str> = self.workload.refuse.iter().map(String::as_str).collect();
        let sections = &self.workload.sections;
        if sections.iter().any(|section| section.blocks > 0) {
            refused.extend(["--find-rate", "--duration"]);
        }
        common.refuse(&refused, &format!("{} has its own sizes", self.name))?;
        let grows = sections.iter().any(|section| section.blocks > 0 || section.documents.len() > 1);
        match common.rate.len() > 1 && grows {
            true => Err(Error::Input(format!(
                "{}'s axis is the size of the data: give --rate one number",
                self.name
            ))),
            false => Ok(()),
        }
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let size = Size { seed: lab.report.seed, scale: lab.common.scale };
        let workload = Workload::read(Source { name: &self.file, text: &self.text }, size)?;
        let most = workload.sections.iter().map(|section| section.documents.len()).max().unwrap_or(0);
        // Sections of one collection share its documents, whose size grows.
        let loaded = LoadedData::default();
        let mut states = Vec::new();
        for step in 0..most {
            for section in &workload.sections {
                let documents = section.documents.get(step);
                let state = |size: &u64| Arc::new(SectionState::new(lab, section, *size, loaded.clone()));
                states.extend(documents.map(state));
            }
        }
        states.iter().for_each(|state| lab.progress.expect(lab.measurements(&cases(lab, state))));
        let mut sections = BTreeMap::new();
        for state in states {
            let Section { id, title, shape, .. } = &state.section;
            let section =
                sections.entry(id.clone()).or_insert_with(|| lab.section(id, title, &state.about(), *shape));
            measure_section(lab, *section, &state).await;
        }
        Ok(())
    }
}

/// Id of the section with a row for each kind of operation.
const BY_KIND: &str = "operations";

fn cases(lab: &Lab, shared: &Arc<SectionState>) -> Vec<Case<WorkloadCase>> {
    let (section, mut cases) = (&shared.section, Vec::new());
    for connections in lab.connections(&section.connections()) {
        if !section.each {
            cases.push(shared.case(None, 0, connections));
            continue;
        }
        for block in 0..section.blocks.max(1) {
            for at in 0..section.kinds.len() {
                let case = shared.case(Some(at), block, connections);
                let x = (section.shape == Shape::Growth).then(|| shared.x(block));
                cases.push(Case { x, ..case });
            }
        }
    }
    cases
}

async fn measure_section(lab: &mut Lab, position: usize, shared: &Arc<SectionState>) {
    let section = &shared.section;
    let cases = cases(lab, shared);
    lab.measure(position, &cases).await;
    if section.each || section.kinds.len() < 2 {
        return;
    }
    let about = "The same operations by kind, each timed from its sending.";
    let by_kind = lab.section(BY_KIND, "By kind of operation", about, Shape::Bars);
    for at in 0..section.kinds.len() {
        for case in &cases {
            let rows = case.bench.rows.lock();
            let rows = lab.targets.iter().filter_map(|target| rows.get(&target.name)?.get(at));
            lab.report.sections[by_kind].rows.extend(rows.filter(|row| row.operations > 0).cloned());
        }
    }
}

/// State shared by all cases of a section.
struct SectionState {
    section: Section,
    size: Size,
    /// Initial number of documents.
    documents: u64,
    loaded: LoadedData,
    promises: BTreeMap<String, crate::result::DurabilityGuarantee>,
}

impl SectionState {
    fn new(lab: &Lab, section: &Section, documents: u64, loaded: LoadedData) -> SectionState {
        let infos = lab.report.targets.iter();
        let promises = infos.map(|info| (info.name.clone(), info.fingerprint.promise)).collect();
        let size = Size { seed: lab.report.seed, scale: lab.common.scale };
        SectionState { section: section.clone(), size, documents, loaded, promises }
    }

    fn about(&self) -> String {
        let Section { about, kinds, each, .. } = &self.section;
        let mut parts = vec![about.clone()];
        if !each {
            let sum: f64 = kinds.iter().map(Step::weight).sum();
            let share = |of: &Step| format!("{} {} %", of.name(), figures::number(100.0 * of.weight() / sum));
            let shares: Vec<String> = kinds.iter().map(share).collect();
            parts.push(format!("An operation is one of: {}.", shares.join(", ")));
        }
        if self.documents > 0 && self.section.documents.len() == 1 {
            let documents = figures::plural(self.documents, "document");
            parts.push(format!("The collection begins with {documents}."));
        }
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }

    /// Returns the position of a block on the axis: the size after it, or the size of the collection.
    fn x(&self, block: u64) -> f64 {
        if self.section.blocks > 0 { ((block + 1) * self.block()) as f64 } else { self.documents as f64 }
    }

    /// Returns the number of operations in a block.
    fn block(&self) -> u64 {
        if let LoadEnd::Operations(operations) = self.section.until(self.size) { operations } else { 0 }
    }

    fn case(self: &Arc<Self>, at: Option<usize>, block: u64, connections: u32) -> Case<WorkloadCase> {
        let (state, rows) = (Arc::default(), Arc::default());
        let mix = WorkloadCase { shared: Arc::clone(self), at, block, connections, state, rows };
        let operation = at.and_then(|at| self.section.kinds.get(at));
        let name = operation.map_or("mix", Step::name);
        let case = Case { connections, ..Case::new(name, self.section.until(self.size), mix) };
        let exactly = operation.and_then(|operation| operation.exactly(self.size));
        let exactly = exactly.or((self.section.blocks > 0).then(|| self.block()));
        let Some(exactly) = exactly else { return case };
        let warm_up = operation.and_then(|operation| operation.warm_up).unwrap_or(exactly / 10);
        Case { paced: self.section.blocks > 0, ..case.with_fixed_operations(exactly, warm_up) }
    }

    /// Returns the operations of a case.
    fn operations(&self, at: Option<usize>) -> &[Step] {
        let all = self.section.kinds.as_slice();
        at.map_or(all, |at| all.get(at..=at).unwrap_or_default())
    }
}

/// A case: one kind of operation, or the mix of all, on one number of connections.
#[derive(Clone)]
pub(super) struct WorkloadCase {
    shared: Arc<SectionState>,
    /// Index of the operation, for a case of a single kind.
    at: Option<usize>,
    block: u64,
    connections: u32,
    /// State of the running round.
    state: Arc<State>,
    /// Rows of each operation by target.
    rows: Arc<Mutex<BTreeMap<String, Vec<Row>>>>,
}

/// State shared by the workers of a round.
#[derive(Default)]
struct State {
    /// Number of the next new document.
    documents: AtomicU64,
    /// Messages of unacknowledged operations.
    sent: SentMessages,
    /// Counters of the cache before the round.
    cache: Mutex<Counters>,
    /// Latencies by kind of operation, without the warm-up.
    latencies: Mutex<Vec<Latencies>>,
}

impl Bench for WorkloadCase {
    type Worker = WorkloadWorker;

    async fn prepare(&self, target: &Target, spec: &RoundSpec) -> Result<Prepared<WorkloadWorker>> {
        let (shared, section) = (&self.shared, &self.shared.section);
        let operations = shared.operations(self.at);
        if let Some(why) = self.unsupported_reason(target).await? {
            return Ok(Prepared::Unsupported(why));
        }
        let key = format!("{} {} {}", target.name, section.collection, shared.documents);
        let changes_documents = operations.iter().any(Step::changes_documents);
        let begins = match section.blocks {
            0 => shared.loaded.lock().insert(key.clone()) || changes_documents,
            _ => self.block == 0 && self.at == Some(0),
        };
        if begins {
            self.load(target).await?;
        }
        if changes_documents {
            // Other kinds of operation load the data again.
            shared.loaded.lock().remove(&key);
        }
        self.state.documents.store(shared.documents, Relaxed);
        self.state.sent.clear();
        *self.state.latencies.lock() = section.kinds.iter().map(|_| Latencies::default()).collect();
        if let Some(why) = self.begin(target).await? {
            return Ok(Prepared::Unsupported(why));
        }
        let mut workers = Vec::new();
        let is_single = self.has(Kind::Start) || self.has(Kind::Connect);
        for _ in 0..if is_single { 1 } else { spec.connections } {
            match self.connect(target).await? {
                Ok(by) => workers.push(WorkloadWorker { by, mix: self.clone(), round: spec.round.into() }),
                Err(why) => return Ok(Prepared::Unsupported(why)),
            }
        }
        if section.cache {
            *self.state.cache.lock() = Counters::of(target, Some(&section.collection)).await;
        }
        Ok(Prepared::Ready(workers))
    }

    async fn finish(&self, target: &Target, row: &mut Row) -> Result<()> {
        let (shared, section) = (&self.shared, &self.shared.section);
        self.count_kinds(target, row);
        if let [operation] = shared.operations(self.at) {
            if let (Some(touches), Some(cpu)) = (operation.touches, row.cpu_microseconds) {
                let each = cpu / touches.of(shared.documents).max(1) as f64;
                row.extra.insert("CPU per document, µs".to_string(), each);
            }
            if self.has(Kind::Start) {
                // The measured usage was of the idle server that ran already.
                (row.cpu_microseconds, row.resident_bytes) = (None, None);
                row.rounds.iter_mut().for_each(|round| round.cpu_microseconds = None);
            }
        }
        if target.is_null_server {
            return target.ask(doc! { NULL_SERVER_ANSWERS: 0_i64 }).await.map(drop);
        }
        if target.protocol == Protocol::Mongo {
            let link = MongoConnection::open(target).await?;
            self.steps(&link, |operation| &operation.after).await?;
            self.count_arrived(&link, row).await?;
        }
        if section.cache {
            row.extra.extend(sizes(target, &section.collection).await?);
            let operations = row.rounds.last().map_or(0, |round| round.operations);
            let after = Counters::of(target, Some(&section.collection)).await;
            row.extra.extend(after.of_cache(&self.state.cache.lock(), operations));
        }
        Ok(())
    }
}

impl WorkloadCase {
    /// Returns a new document.
    fn new_document(&self) -> Document {
        self.shared.section.template.document(self.state.documents.fetch_add(1, Relaxed))
    }

    /// Returns true if an operation has a step of this kind.
    fn has(&self, kind: Kind) -> bool {
        let operations = self.shared.operations(self.at);
        operations.iter().any(|each| each.steps.iter().any(|step| step.kind == kind))
    }

    fn is_unacknowledged(&self) -> bool {
        let concern = self.shared.operations(self.at).iter().find_map(|operation| operation.concern.as_ref());
        concern.is_some_and(concern::Concern::is_unacknowledged)
    }

    /// Returns the reason why this target cannot run the case, if any.
    async fn unsupported_reason(&self, target: &Target) -> Result<Option<String>> {
        let operations = self.shared.operations(self.at);
        let starts = |step: &Step| matches!(step.kind, Kind::Connect | Kind::Start);
        let speaks =
            operations.iter().all(|each| !each.statements.is_empty() || each.steps.iter().all(starts));
        if target.protocol == Protocol::Postgres && (!speaks || operations.len() > 1) {
            return Ok(Some("this needs MongoDB's protocol".to_string()));
        }
        let own = operations.iter().any(|operation| operation.vellum == Some(true));
        // The null server answers any command.
        if own && !target.is_null_server && !target.ask(doc! { "buildInfo": 1 }).await?.contains_key("vellum")
        {
            return Ok(Some("the target does not have this command".to_string()));
        }
        Ok(None)
    }

    /// Loads the section's documents.
    async fn load(&self, target: &Target) -> Result<()> {
        let section = &self.shared.section;
        if target.protocol == Protocol::Postgres {
            let Some(plan) = &section.postgres else { return Ok(()) };
            return sql::load(target, section, plan, self.shared.documents).await;
        }
        let link = MongoConnection::open(target).await?;
        link.named(link.database.drop().await)?;
        let names = match section.collections {
            0 => vec![section.collection.clone()],
            several => (0..several).map(|number| format!("{}{number}", section.collection)).collect(),
        };
        let each = self.shared.documents.div_ceil(names.len().max(1) as u64);
        for (number, name) in (0..).zip(&names) {
            link.run(doc! { "create": name }).await?;
            let collection = link.database.collection::<Document>(name);
            if !section.indexes.is_empty() {
                let models = section.indexes.iter().map(file::Index::model);
                link.named(collection.create_indexes(models).await)?;
            }
            let size = if target.is_null_server { 0 } else { each };
            for first in (0..size).step_by(BATCH) {
                let numbers = first..size.min(first + BATCH as u64);
                let documents = numbers.map(|at| section.template.document(number * each + at));
                link.named(collection.insert_many(documents).await)?;
            }
        }
        for step in &section.setup {
            self.step(&link, step).await?;
        }
        if self.shared.documents > 0 {
            // A checkpoint during the measurement would distort it. Servers without the command have nothing to write.
            let _ = link.admin(doc! { "fsync": 1 }).await;
        }
        Ok(())
    }

    /// Prepares a round. Returns the reason to skip it, if any.
    async fn begin(&self, target: &Target) -> Result<Option<String>> {
        if target.protocol == Protocol::Postgres {
            if let Some(before) = self.shared.section.postgres.as_ref().and_then(|plan| plan.before.as_ref())
            {
                let client = target.postgres().await?;
                super::named(target, client.batch_execute(before).await)?;
            }
            return Ok(None);
        }
        let link = MongoConnection::open(target).await?;
        self.steps(&link, |operation| &operation.before).await?;
        let [operation] = self.shared.operations(self.at) else { return Ok(None) };
        if target.is_null_server
            && let Some(step) = operation.steps.iter().find(|step| step.expect.is_some())
        {
            // The null server returns as many documents of equal size: its time is the cost of client and kernel.
            let count = step.expect.map_or(0, |count| count.of(self.shared.documents)) as i64;
            let document = self.shared.section.template.document(0).to_vec().unwrap_or_default();
            let bytes = if step.kind == Kind::Aggregate { 60 } else { document.len() as i64 };
            if matches!(step.kind, Kind::Find | Kind::Aggregate) {
                link.admin(doc! { NULL_SERVER_ANSWERS: count, "bytes": bytes }).await?;
            }
        }
        let Some(concern) = &operation.concern else { return Ok(None) };
        let promise = self.shared.promises.get(&target.name).copied().unwrap_or_default();
        let document = self.shared.section.template.document(u64::MAX >> 1);
        let insert = doc! { "insert": &self.shared.section.collection, "documents": [document] };
        let why = concern.refusal(&link, promise, insert).await?;
        let everything =
            doc! { "delete": &self.shared.section.collection, "deletes": [{ "q": {}, "limit": 0 }] };
        link.run(everything).await?;
        Ok(why)
    }

    async fn steps(&self, link: &MongoConnection, of: fn(&Step) -> &Vec<Step>) -> Result<()> {
        for step in self.shared.operations(self.at).iter().flat_map(of) {
            self.step(link, step).await?;
        }
        Ok(())
    }

    /// Runs one step outside of the measurement.
    async fn step(&self, link: &MongoConnection, step: &Step) -> Result<()> {
        let runner = worker::StepRunner { link, mix: self };
        let mut context = self.context(0, 0, link.database.name());
        match runner.step(step, &mut context).await {
            // A missing object need not be dropped.
            Err(Error::Target { message, .. })
                if message.contains("ns not found") || message.contains("index not found") =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Opens the connection of a worker.
    async fn connect(&self, target: &Target) -> Result<Connected<WorkerConnection>> {
        Ok(Ok(match target.protocol {
            _ if self.has(Kind::Start) => {
                let scratch = Scratch::temporary()?;
                let Some(started) = start_copy(target, scratch.path()).await else {
                    return Ok(Err("the lab did not start it".to_string()));
                };
                drop(started?);
                WorkerConnection::Starting { like: target.clone(), started: Vec::new(), scratch }
            }
            _ if self.has(Kind::Connect) => WorkerConnection::Connecting(target.clone()),
            Protocol::Postgres => {
                let operations = self.shared.operations(self.at);
                let sql = operations.first().map_or(&[][..], |operation| &operation.statements);
                WorkerConnection::Postgres(Box::new(sql::Session::open(target, sql).await?))
            }
            Protocol::Mongo if self.is_unacknowledged() => {
                let connected = UnacknowledgedConnection::connect(target, self.state.sent.clone()).await?;
                return Ok(connected.map(WorkerConnection::UnacknowledgedConnection));
            }
            Protocol::Mongo => WorkerConnection::Mongo(Box::new(MongoConnection::open(target).await?)),
        }))
    }

    /// Counts the unacknowledged inserts that arrived, in the worst round.
    async fn count_arrived(&self, link: &MongoConnection, row: &mut Row) -> Result<()> {
        const ARRIVED: &str = "arrived, %";
        let sent = self.state.sent.messages.load(Relaxed);
        if sent == 0 {
            return Ok(());
        }
        if !self.state.sent.drain().await {
            let note = "the server stopped responding, so the number of inserted documents is unknown";
            row.note = Some(note.to_string());
            return Ok(());
        }
        let collection = link.database.collection::<Document>(&self.shared.section.collection);
        let share = 100.0 * link.named(collection.count_documents(doc! {}).await)? as f64 / sent as f64;
        let before = row.extra.get(ARRIVED).copied().unwrap_or(100.0);
        row.extra.insert(ARRIVED.to_string(), share.min(before));
        Ok(())
    }

    /// Adds the round's figures of each kind of operation to its row.
    fn count_kinds(&self, target: &Target, row: &Row) {
        if self.at.is_some() {
            return;
        }
        let seconds = row.rounds.last().map_or(0.0, |round| round.seconds);
        let operations = &self.shared.section.kinds;
        let new_document =
            || operations.iter().map(|each| Row::new(&target.name, each.name(), self.connections)).collect();
        let mut rows = self.rows.lock();
        let rows = rows.entry(target.name.clone()).or_insert_with(new_document);
        for (latencies, row) in self.state.latencies.lock().iter_mut().zip(rows) {
            row.add(&std::mem::take(latencies), seconds, None, false);
        }
    }
}

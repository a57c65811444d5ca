//! `error-tracker`: the life of an application that collects errors (Errbit), in blocks, so that
//! growth with the data is visible.
//!
//! A create is what that application sends for one error: it finds the app by its key, upserts the
//! problem by its fingerprint, inserts the notice with its backtrace, and updates what the problem
//! remembers of it. A search is five regular expressions over the problems, a count and the first
//! page, the latest first. No index serves those, so that they grow with the data; beside them
//! stands what a fixed application sends, which an index on the message's words serves.

mod documents;
mod sql;

use super::parts::{Link, index};
use super::{Experiment, sentences};
use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::load::Worker;
use crate::load::measure::{Bench, Case, Prepared, Visit};
use crate::load::random::Dice;
use crate::options::Common;
use crate::report::figures;
use crate::result::{Kind, Report, Row, Section};
use crate::run::Lab;
use crate::target::{Protocol, Target};
use documents::Occurrence;
use mongodb::IndexModel;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::{IndexOptions, ReturnDocument};
use sql::Sql;

/// The experiment.
pub(crate) struct ErrorTracker;

/// Creates, and searches of either kind, in a block; before scaling.
const BLOCK: u64 = 1000;
const BLOCKS: u64 = 20;
/// Of a few operations each there are fewer: what they need is connections.
const SMALL: u64 = 10;
const SMALL_BLOCKS: u64 = 8;
const CONNECTIONS: &[u32] = &[8];

/// Problems on a page of results.
const PAGE: i64 = 20;

/// How often an upsert is sent that another client's upsert of the same problem has overtaken.
const ATTEMPTS: u32 = 3;

const CREATES: &str = "creates";
const SEARCHES: &str = "searches by regex";
const INDEXED: &str = "searches served by an index";

impl Experiment for ErrorTracker {
    fn name(&self) -> &'static str {
        "error-tracker"
    }

    fn title(&self) -> String {
        "An error tracker's life".to_string()
    }

    fn about(&self) -> String {
        "Creates are what Errbit sends: find the app by its key, upsert the problem by its fingerprint with its \
         counters, insert the notice with its backtrace (about 5 KB), update what the problem remembers of it; nine \
         in ten repeat a known problem. Searches are five case-insensitive regular expressions over the problems' \
         fields, a count, and the first page of 20 by last notice. Searches served by an index ask for a word of \
         the message in an array that is indexed together with the last notice. PostgreSQL: the same in as many prepared \
         statements, with columns, ON CONFLICT, and an inverted index on the words."
            .to_string()
    }

    fn check(&self, common: &Common) -> Result<()> {
        common.refuse(&["--find-rate", "--duration"], "error-tracker counts its operations")?;
        if common.rate.len() > 1 {
            let what = "error-tracker's data grows as it runs: give --rate one number";
            return Err(Error::Input(what.to_string()));
        }
        Ok(())
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let block = lab.scaled(BLOCK);
        let offered = lab.common.rate.first().map(|rate| {
            format!(
                " Offered are {} of each a second, timed from when they were due.",
                figures::number(*rate)
            )
        });
        let about = format!(
            "Blocks of {0} creates, {0} searches and {0} searches by index. The axis is the number of errors \
             created so far.{1}",
            figures::count(block),
            offered.unwrap_or_default()
        );
        let section = lab.section("errors", "As the errors grow", &about, Kind::Growth);
        let mut cases = Vec::new();
        for connections in lab.connections(CONNECTIONS) {
            let blocks = if block < SMALL { SMALL_BLOCKS } else { BLOCKS };
            for number in 0..blocks {
                let bench = |work| Tracking { work, seed: lab.seed, block: number, size: block };
                for (work, name) in [(Work::Create, CREATES), (Work::Search, SEARCHES), (Work::Find, INDEXED)]
                {
                    // What warmed up creates would be in the data.
                    let warm_up = if work == Work::Create { 0 } else { block / 10 };
                    let case =
                        Case::new(name, lab.operations(BLOCK), bench(work)).exactly(block, warm_up).paced();
                    cases.push(case.on(connections).at(((number + 1) * block) as f64));
                }
            }
        }
        lab.measure(section, &cases).await;
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        report.sections.iter().filter(|section| section.kind == Kind::Growth).flat_map(findings).collect()
    }
}

/// What a block does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Create,
    Search,
    Find,
}

/// One block.
#[derive(Clone, Debug)]
struct Tracking {
    work: Work,
    seed: u64,
    /// From 0.
    block: u64,
    size: u64,
}

impl Bench for Tracking {
    type Worker = Client;

    async fn prepare(&self, target: &Target, visit: &Visit) -> Result<Prepared<Client>> {
        if target.protocol == Protocol::Postgres {
            return self.prepare_postgres(target, visit.connections).await;
        }
        let links = Link::open_all(target, visit.connections).await?;
        if let Some(link) = links.first().filter(|_| self.block == 0 && self.work == Work::Create) {
            begin(link).await?;
        }
        let by = links.into_iter().map(|link| By::Mongo(Box::new(link)));
        Ok(Prepared::Ready(by.map(|by| Client { by, bench: self.clone() }).collect()))
    }
}

impl Tracking {
    async fn prepare_postgres(&self, target: &Target, connections: u32) -> Result<Prepared<Client>> {
        if self.block == 0 && self.work == Work::Create {
            sql::begin(target).await?;
        }
        let mut clients = Vec::new();
        for _ in 0..connections {
            let by = By::Postgres(Box::new(Sql::open(target).await?));
            clients.push(Client { by, bench: self.clone() });
        }
        Ok(Prepared::Ready(clients))
    }
}

/// An empty application with its apps and indexes.
async fn begin(link: &Link) -> Result<()> {
    for name in ["apps", "problems", "notices"] {
        link.drop(name).await?;
    }
    let unique = || IndexOptions::builder().unique(true).build();
    let app = IndexModel::builder().keys(doc! { "api_key": 1 }).options(unique()).build();
    link.named(link.collection::<Document>("apps").create_index(app).await)?;
    let fingerprint = doc! { "app_id": 1, "fingerprint": 1 };
    let fingerprint = IndexModel::builder().keys(fingerprint).options(unique()).build();
    let others =
        [doc! { "last_notice_at": -1 }, doc! { "message": 1 }, doc! { "words": 1, "last_notice_at": -1 }];
    let indexes = std::iter::once(fingerprint).chain(others.map(index));
    link.named(link.collection::<Document>("problems").create_indexes(indexes).await)?;
    let notices = index(doc! { "problem_id": 1, "_id": 1 });
    link.named(link.collection::<Document>("notices").create_index(notices).await)?;
    link.named(link.collection("apps").insert_many(documents::apps()).await).map(drop)
}

/// One process of the application.
struct Client {
    by: By,
    bench: Tracking,
}

enum By {
    Mongo(Box<Link>),
    Postgres(Box<Sql>),
}

impl Worker for Client {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let Tracking { work, seed, block, size } = self.bench;
        let number = block * size + number;
        // What somebody looks for.
        let term = || documents::word(&mut Dice::of(seed ^ 0x5EA2C4, number));
        match (&self.by, work) {
            (By::Mongo(link), Work::Create) => Mongo { link }.create(&Occurrence::of(seed, number)).await,
            (By::Mongo(link), Work::Search) => Mongo { link }.search(documents::by_regex(&term())).await,
            (By::Mongo(link), Work::Find) => Mongo { link }.search(doc! { "words": term() }).await,
            (By::Postgres(sql), Work::Create) => sql.create(&Occurrence::of(seed, number)).await,
            (By::Postgres(sql), _) => sql.search(work, &term()).await,
        }
    }
}

/// What the application sends to a target of MongoDB's protocol.
struct Mongo<'a> {
    link: &'a Link,
}

impl Mongo<'_> {
    async fn create(&self, error: &Occurrence) -> Result<()> {
        let apps = self.link.collection::<Document>("apps");
        let app = self.link.named(apps.find_one(doc! { "api_key": error.api_key() }).await)?;
        let app = app.ok_or_else(|| self.link.target.error("has lost an app that was stored"))?;
        let problem = self.problem(error).await?;
        let notice = error.notice(&problem);
        let inserted = self.link.collection::<Document>("notices").insert_one(&notice).await;
        let notice_id = self.link.named(inserted)?.inserted_id;
        let problems = self.link.collection::<Document>("problems");
        let cached = error.cached(&notice_id);
        self.link.named(problems.update_one(doc! { "_id": problem }, cached).await)?;
        if error.is_new() {
            let counted = doc! { "$inc": { "problem_count": 1 } };
            self.link.named(apps.update_one(doc! { "_id": app.get("_id") }, counted).await)?;
        }
        Ok(())
    }

    /// Finds the problem by its fingerprint or makes it, and counts; its _id.
    async fn problem(&self, error: &Occurrence) -> Result<mongodb::bson::Bson> {
        let problems = self.link.collection::<Document>("problems");
        let mut attempt = 1;
        loop {
            let upsert = problems
                .find_one_and_update(error.fingerprint(), error.counted())
                .upsert(true)
                .return_document(ReturnDocument::After);
            match upsert.await {
                Err(overtaken) if is_duplicate(&overtaken) && attempt < ATTEMPTS => attempt += 1,
                found => {
                    let id = self.link.named(found)?.and_then(|mut problem| problem.remove("_id"));
                    return id.ok_or_else(|| self.link.target.error("gives no problem back"));
                }
            }
        }
    }

    /// The count, then the first page.
    async fn search(&self, filter: Document) -> Result<()> {
        let problems = self.link.collection::<RawDocumentBuf>("problems");
        self.link.named(problems.count_documents(filter.clone()).await)?;
        let page = problems.find(filter).sort(doc! { "last_notice_at": -1 }).limit(PAGE);
        let mut page = self.link.named(page.await)?;
        while self.link.named(page.advance().await)? {}
        Ok(())
    }
}

/// Whether a write failed because its key was there already.
fn is_duplicate(error: &mongodb::error::Error) -> bool {
    const DUPLICATE_KEY: i32 = 11000;
    match &*error.kind {
        ErrorKind::Command(command) => command.code == DUPLICATE_KEY,
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.code == DUPLICATE_KEY,
        _ => false,
    }
}

/// p95 of the first quarter of the errors and of the last.
#[derive(Clone, Copy, Debug)]
struct Growth {
    first: f64,
    last: f64,
}

impl Growth {
    fn of(section: &Section, target: &str, case: &str) -> Option<Growth> {
        let mut rows: Vec<&Row> = section
            .rows
            .iter()
            .filter(|row| row.target == target && row.case == case && row.operations > 0)
            .collect();
        rows.sort_by(|a, b| a.x.unwrap_or(0.0).total_cmp(&b.x.unwrap_or(0.0)));
        let quarter = rows.len() / 4;
        if quarter == 0 {
            return None;
        }
        Some(Growth { first: p95(rows.get(..quarter)?), last: p95(rows.get(rows.len() - quarter..)?) })
    }

    fn ratio(self) -> f64 {
        self.last / self.first.max(f64::MIN_POSITIVE)
    }

    fn told(self) -> String {
        let (first, last) = (figures::latency(self.first), figures::latency(self.last));
        format!("from {first} to {last} ({})", figures::times(self.ratio()))
    }
}

/// Of all operations of these rows together: percentiles are not averaged.
fn p95(rows: &[&Row]) -> f64 {
    let mut all = Latencies::new();
    rows.iter().for_each(|row| all.merge(&row.latency));
    all.quantile(0.95)
}

/// Slower by this much from the first quarter to the last counts as growing with the data, …
const GROWING: f64 = 2.0;
/// … and by no more than this as flat.
const FLAT: f64 = 1.5;

fn findings(section: &Section) -> Vec<String> {
    let errors = section.rows.iter().filter_map(|row| row.x).fold(0.0, f64::max);
    let mut found = Vec::new();
    let (mut regexes, mut indexed) = (Vec::new(), Vec::new());
    for target in sentences::targets(section) {
        let growth = |case| Growth::of(section, target, case).map(|growth: Growth| (case, growth));
        let all: Vec<(&str, Growth)> = [CREATES, SEARCHES, INDEXED].into_iter().filter_map(growth).collect();
        let told: Vec<String> =
            all.iter().map(|(case, growth)| format!("{case} {}", growth.told())).collect();
        if !told.is_empty() {
            found.push(format!(
                "{target}: p95 from the first quarter of {} errors to the last: {}.",
                figures::count(errors as u64),
                told.join("; ")
            ));
        }
        let ratios = |of: &str| all.iter().find(|(case, _)| *case == of).map(|(_, growth)| growth.ratio());
        regexes.extend(ratios(SEARCHES));
        indexed.extend(ratios(INDEXED));
    }
    found.extend(moral(&regexes, &indexed));
    found
}

/// What to make of it, if all targets agree.
fn moral(regexes: &[f64], indexed: &[f64]) -> Option<String> {
    let grows = !regexes.is_empty() && regexes.iter().all(|ratio| *ratio >= GROWING);
    let flat = !indexed.is_empty() && indexed.iter().all(|ratio| *ratio <= FLAT);
    match (grows, flat) {
        (true, true) => Some(
            "Searches by regular expression read every problem and grow with them on every target; served by an \
             index the same question stays flat: the application is to be changed, not the server."
                .to_string(),
        ),
        (true, false) => {
            Some("Searches by regular expression read every problem and grow with them on every target.".to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;

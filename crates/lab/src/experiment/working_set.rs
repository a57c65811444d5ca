//! `working-set`: gets by index while the collection grows, most of them in a focus.
//!
//! As long as what is asked for fits into a server's cache, it doesn't matter how much lies beside;
//! when it no longer fits, gets wait for the disk. Sizes a factor of ten apart and focuses a factor
//! of ten apart show where that happens: the storage's size and what the cache missed stand beside.

mod cache;
mod findings;

use super::Experiment;
use super::parts::{Link, index, named};
use crate::error::{Error, Result};
use crate::load::Worker;
use crate::load::keys::Keys;
use crate::load::measure::{Bench, Case, Prepared, Visit};
use crate::load::random::Dice;
use crate::options::Common;
use crate::report::figures;
use crate::result::{Kind, Promise, Report, Row};
use crate::run::Lab;
use crate::target::{Protocol, Target};
use cache::Cache;
use findings::{SECONDS_OF_ALL, findings, repetitions};
use mongodb::bson::{Document, doc};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio_postgres::{Client, Statement};

/// The experiment.
pub(crate) struct WorkingSet;

/// Documents, before scaling.
const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];

/// The focuses, as shares of all documents.
const FOCUSES: [(f64, &str); 3] = [(0.01, "focus 1 %"), (0.1, "focus 10 %"), (1.0, "focus 100 %")];

/// This share of gets goes to the focus.
const IN_FOCUS: f64 = 0.99;

/// Gets of a repetition, before scaling.
const REPEATED: u64 = 30_000;
const REPETITIONS: [&str; 3] = ["first time", "second time", "third time"];

const BATCH: u64 = 100;
const SECONDS: f64 = 2.0;
const NAME: &str = "working_set";

impl Experiment for WorkingSet {
    fn name(&self) -> &'static str {
        "working-set"
    }

    fn title(&self) -> String {
        "Working sets".to_string()
    }

    fn about(&self) -> String {
        "Documents of about 2,400 bytes are loaded in batches of 100 into a collection whose index was made before, \
         then got by that index: 99 % of gets go to a focus of 1 %, 10 % or all of the documents, which lie \
         scattered among the others. PostgreSQL: a table with the same fields as columns, the same index."
            .to_string()
    }

    fn check(&self, common: &Common) -> Result<()> {
        if common.rate.len() > 1 {
            return Err(Error::Input("working-set's axis are sizes: give --rate one number".to_string()));
        }
        Ok(())
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let about = "An operation is one get of one document. The axis is the number of documents.";
        let section = lab.section("gets", "Gets by index", about, Kind::Growth);
        let mut sizes: Vec<u64> = SIZES.iter().map(|size| lab.scaled(*size)).collect();
        sizes.dedup();
        let repeated = lab.scaled(REPEATED);
        let about = format!(
            "An operation is one get of one document; a round is {} gets with the focus on 10 %, and the same ones twice again. \
             The axis is the number of documents.",
            figures::count(repeated)
        );
        let again = lab.section("repetitions", "The same gets once more", &about, Kind::Growth);
        let shared = Arc::new(Shared { seed: lab.seed, text: Text::new(lab.seed), ..Shared::default() });
        for size in sizes {
            let until = lab.seconds(SECONDS);
            let mut cases = Vec::new();
            for connections in lab.connections(&[1]) {
                for (share, name) in FOCUSES {
                    let bench = Gets { shared: shared.clone(), size, share };
                    cases.push(Case::new(name, until, bench).on(connections).at(size as f64));
                }
            }
            // First what finds the cache as loading has left it.
            let mut repetitions = Vec::new();
            for name in REPETITIONS {
                let bench = Gets { shared: shared.clone(), size, share: FOCUSES[1].0 };
                let case = Case::new(name, until, bench).exactly(repeated, 0);
                repetitions
                    .extend(lab.connections(&[1]).into_iter().map(|on| case.clone().on(on).at(size as f64)));
            }
            lab.measure(again, &repetitions).await;
            lab.measure(section, &cases).await;
        }
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        let in_memory = |target: &str| {
            let mut infos = report.targets.iter();
            infos.any(|info| info.name == target && info.fingerprint.promise == Promise::Memory)
        };
        let of = |id: &'static str| report.sections.iter().filter(move |section| section.id == id);
        let fits = of("gets").flat_map(|section| findings(section, in_memory));
        fits.chain(of("repetitions").flat_map(repetitions)).collect()
    }
}

/// What all cases of a run share.
#[derive(Debug, Default)]
struct Shared {
    seed: u64,
    text: Text,
    /// By the name of the target: what lies there at present.
    loaded: Mutex<HashMap<String, Loaded>>,
}

/// What lies on a target.
#[derive(Clone, Copy, Debug, Default)]
struct Loaded {
    size: u64,
    seconds: f64,
    /// The cache's counters before the gets.
    before: Option<Cache>,
}

impl Shared {
    fn loaded(&self, target: &Target) -> Option<Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).get(&target.name).copied()
    }

    fn set_loaded(&self, target: &Target, loaded: Loaded) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).insert(target.name.clone(), loaded);
    }
}

/// Words to cut texts from: documents differ, and making them costs next to nothing.
#[derive(Debug, Default)]
struct Text(String);

impl Text {
    const LENGTH: usize = 1 << 16;

    fn new(seed: u64) -> Text {
        Text(Dice::of(seed, u64::MAX).words(Text::LENGTH))
    }

    fn cut(&self, dice: &mut Dice, length: usize) -> String {
        let at = dice.below((Text::LENGTH - length) as u64) as usize;
        self.0.get(at..at + length).unwrap_or_default().to_string()
    }
}

/// What is stored: the same fields whatever the target.
struct Record {
    id: i64,
    key: i64,
    name: String,
    city: String,
    amount: f64,
    body: String,
}

impl Record {
    fn of(shared: &Shared, number: u64) -> Record {
        let mut dice = Dice::of(shared.seed, number);
        Record {
            id: number as i64,
            key: number as i64,
            name: shared.text.cut(&mut dice, 40),
            city: shared.text.cut(&mut dice, 20),
            amount: dice.below(1_000_000) as f64 / 100.0,
            body: shared.text.cut(&mut dice, 2230),
        }
    }

    fn document(self) -> Document {
        let Record { id, key, name, city, amount, body } = self;
        doc! { "_id": id, "key": key, "name": name, "address": { "city": city }, "amount": amount, "body": body }
    }
}

/// Gets with one focus from a collection of one size.
#[derive(Clone, Debug)]
struct Gets {
    shared: Arc<Shared>,
    size: u64,
    share: f64,
}

impl Bench for Gets {
    type Worker = Getter;

    async fn prepare(&self, target: &Target, visit: &Visit) -> Result<Prepared<Getter>> {
        let mut loaded = match self.shared.loaded(target).filter(|loaded| loaded.size == self.size) {
            Some(loaded) => loaded,
            None => self.load(target).await?,
        };
        let mut workers = Vec::new();
        for _ in 0..visit.connections {
            let by = match target.protocol {
                Protocol::Mongo => By::Mongo(Box::new(Link::open(target).await?)),
                Protocol::Postgres => By::postgres(target).await?,
            };
            workers.push(Getter { bench: self.clone(), target: target.clone(), round: visit.round, by });
        }
        loaded.before = cache::counters(target, NAME).await;
        self.shared.set_loaded(target, loaded);
        Ok(Prepared::Ready(workers))
    }

    async fn finish(&self, target: &Target, row: &mut Row) -> Result<()> {
        let total = row.rounds.iter().map(|round| round.seconds).sum::<f64>();
        if REPETITIONS.contains(&row.case.as_str()) && !row.rounds.is_empty() {
            row.extra.insert(SECONDS_OF_ALL.to_string(), total / row.rounds.len() as f64);
            return Ok(());
        }
        if target.is_floor {
            return Ok(());
        }
        row.extra.extend(cache::sizes(target, NAME).await?);
        let Some(loaded) = self.shared.loaded(target) else { return Ok(()) };
        if loaded.seconds > 0.0 {
            row.extra.insert("loaded, documents/s".to_string(), self.size as f64 / loaded.seconds);
        }
        let operations = row.rounds.last().map_or(0, |round| round.operations);
        if let (Some(before), Some(after)) = (loaded.before, cache::counters(target, NAME).await) {
            row.extra.extend(after.since(&before, operations));
        }
        Ok(())
    }
}

impl Gets {
    /// Replaces what lies on the target by a collection of this size.
    async fn load(&self, target: &Target) -> Result<Loaded> {
        let begin = Instant::now();
        match target.protocol {
            _ if target.is_floor => {}
            Protocol::Mongo => self.load_mongo(&Link::open(target).await?).await?,
            Protocol::Postgres => self.load_postgres(target).await?,
        }
        let seconds = begin.elapsed().as_secs_f64();
        settle(target).await?;
        Ok(Loaded { size: self.size, seconds, before: None })
    }

    async fn load_mongo(&self, link: &Link) -> Result<()> {
        link.drop(NAME).await?;
        let collection = link.collection::<Document>(NAME);
        link.named(collection.create_index(index(doc! { "key": 1 })).await)?;
        for start in (0..self.size).step_by(BATCH as usize) {
            let numbers = start..(start + BATCH).min(self.size);
            let batch = numbers.map(|number| Record::of(&self.shared, number).document());
            link.named(collection.insert_many(batch.collect::<Vec<_>>()).await)?;
        }
        Ok(())
    }

    async fn load_postgres(&self, target: &Target) -> Result<()> {
        let client = target.postgres().await?;
        named(target, client.batch_execute(CREATE_TABLE).await)?;
        let insert = named(target, client.prepare(INSERT).await)?;
        for start in (0..self.size).step_by(BATCH as usize) {
            let numbers = start..(start + BATCH).min(self.size);
            let batch: Vec<Record> = numbers.map(|number| Record::of(&self.shared, number)).collect();
            let ids: Vec<i64> = batch.iter().map(|record| record.id).collect();
            let keys: Vec<i64> = batch.iter().map(|record| record.key).collect();
            let names: Vec<&str> = batch.iter().map(|record| record.name.as_str()).collect();
            let cities: Vec<&str> = batch.iter().map(|record| record.city.as_str()).collect();
            let amounts: Vec<f64> = batch.iter().map(|record| record.amount).collect();
            let bodies: Vec<&str> = batch.iter().map(|record| record.body.as_str()).collect();
            let inserted = client.execute(&insert, &[&ids, &keys, &names, &cities, &amounts, &bodies]).await;
            named(target, inserted)?;
        }
        Ok(())
    }
}

/// Has the target write its checkpoint now: it would otherwise fall into the first gets, whose cache
/// it empties.
async fn settle(target: &Target) -> Result<()> {
    match target.protocol {
        _ if target.is_floor => {}
        Protocol::Mongo => {
            let link = Link::open(target).await?;
            // Those that know no such command have nothing to write, or don't let it be told when.
            let _ = link.admin(doc! { "fsync": 1 }).await;
        }
        // Refused to users without the right to it, who measure what comes.
        Protocol::Postgres => drop(target.postgres().await?.batch_execute("CHECKPOINT").await),
    }
    Ok(())
}

const CREATE_TABLE: &str = "DROP TABLE IF EXISTS working_set; CREATE TABLE working_set (id bigint PRIMARY KEY, \
     key bigint NOT NULL, name text NOT NULL, city text NOT NULL, amount double precision NOT NULL, \
     body text NOT NULL); CREATE INDEX working_set_key ON working_set (key)";
const INSERT: &str = "INSERT INTO working_set SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], \
     $4::text[], $5::double precision[], $6::text[])";
const GET: &str = "SELECT id, key, name, city, amount, body FROM working_set WHERE key = $1";

/// One connection that gets.
struct Getter {
    bench: Gets,
    target: Target,
    round: u32,
    by: By,
}

enum By {
    Mongo(Box<Link>),
    Postgres { client: Client, get: Statement },
}

impl By {
    async fn postgres(target: &Target) -> Result<By> {
        let client = target.postgres().await?;
        let get = named(target, client.prepare(GET).await)?;
        Ok(By::Postgres { client, get })
    }
}

impl Getter {
    /// The key of an operation. Each round asks for others.
    fn key(&self, number: u64) -> i64 {
        let Gets { shared, size, share } = &self.bench;
        let mut dice = Dice::of(shared.seed.wrapping_add(1 + u64::from(self.round)), number);
        let rank = Keys::Focused { keys: *share, operations: IN_FOCUS }.pick(&mut dice, *size);
        scattered(rank, *size) as i64
    }

    fn missing(&self, key: i64) -> Error {
        self.target.error(format!("has no document with key {key}, which was loaded"))
    }
}

/// Where the document of a rank lies: the focus is not what was loaded first, but here and there.
fn scattered(rank: u64, size: u64) -> u64 {
    // A prime above any size divides none, so that each rank has a place of its own.
    const PRIME: u128 = 2_654_435_761;
    (u128::from(rank) * PRIME % u128::from(size.max(1))) as u64
}

impl Worker for Getter {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let key = self.key(number);
        let found = match &self.by {
            By::Mongo(link) => {
                let collection = link.collection::<mongodb::bson::RawDocumentBuf>(NAME);
                link.named(collection.find_one(doc! { "key": key }).await)?.is_some()
            }
            By::Postgres { client, get } => {
                named(&self.target, client.query_opt(get, &[&key]).await)?.is_some()
            }
        };
        if found { Ok(()) } else { Err(self.missing(key)) }
    }
}

#[cfg(test)]
mod tests;

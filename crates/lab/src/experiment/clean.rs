//! `clean`: how often a second a database can be made clean, as tests do before each case.
//!
//! The ways that every server knows, and Vellum's own: reset, fork, restore (docs/clean-slate.md).
//! PostgreSQL takes part with the statements that mean the same.

use super::parts::{Link, index, named};
use super::{Experiment, sentences};
use crate::error::{Error, Result};
use crate::load::Worker;
use crate::load::measure::{Bench, Case, Prepared, Visit};
use crate::load::random::Dice;
use crate::options::Common;
use crate::report::figures;
use crate::result::{Kind, Report, Row, Section};
use crate::run::Lab;
use crate::target::{Protocol, Target};
use mongodb::IndexModel;
use mongodb::bson::{Document, doc};

/// The experiment.
pub(crate) struct Clean;

/// A way to clean.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    DeleteFromEmpty,
    InsertAndDelete,
    DropAndCreate,
    DropDatabase,
    Reset,
    Fork,
    Restore,
}

const WAYS: &[(Way, &str)] = &[
    (Way::DeleteFromEmpty, "delete_many on an empty collection"),
    (Way::InsertAndDelete, "insert 20, delete_many"),
    (Way::DropAndCreate, "drop, create with 4 indexes"),
    (Way::DropDatabase, "dropDatabase, create with 4 indexes"),
    (Way::Reset, "insert 20, reset"),
    (Way::Fork, "fork a template of 20 collections"),
    (Way::Restore, "insert 20, restore a snapshot of 20 collections"),
];

/// Documents that a test leaves behind.
const LEFT: u64 = 20;
/// The template that is forked and restored.
const COLLECTIONS: u64 = 20;
const TEMPLATE_DOCUMENTS: u64 = 100_000;
const BATCH: u64 = 1000;

const NAME: &str = "tests";
const SNAPSHOT: &str = "prepared";

impl Experiment for Clean {
    fn name(&self) -> &'static str {
        "clean"
    }

    fn title(&self) -> String {
        "Cleaning up between tests".to_string()
    }

    fn about(&self) -> String {
        "How many times a second one connection makes a database clean again. Dropping is followed by creating \
         the collection with four indexes; the template that is forked and restored has 20 collections with three \
         indexes each. PostgreSQL: DELETE, DROP TABLE, DROP SCHEMA and their CREATEs, each cleaning in one message."
            .to_string()
    }

    fn check(&self, common: &Common) -> Result<()> {
        if common.connections.is_some_and(|connections| connections != 1) {
            return Err(Error::Input("clean works on one connection: leave --connections out".to_string()));
        }
        Ok(())
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let documents = lab.scaled(TEMPLATE_DOCUMENTS);
        let section = lab.section(
            "clean",
            "Cleaning",
            &format!(
                "An operation is one cleaning with what belongs to it. Template: {} documents.",
                figures::count(documents)
            ),
            Kind::Bars,
        );
        let until = lab.seconds(2.0);
        let bench = |way| Cleaning { way, seed: lab.seed, documents };
        let cases: Vec<_> = WAYS.iter().map(|(way, name)| Case::new(*name, until, bench(*way))).collect();
        lab.measure(section, &cases).await;
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        report.sections.iter().flat_map(findings).collect()
    }
}

/// One way, with what it needs to prepare itself.
#[derive(Clone, Debug)]
struct Cleaning {
    way: Way,
    seed: u64,
    documents: u64,
}

impl Bench for Cleaning {
    type Worker = Cleaner;

    async fn prepare(&self, target: &Target, _: &Visit) -> Result<Prepared<Cleaner>> {
        let cleaner = match target.protocol {
            Protocol::Postgres => self.on_postgres(target).await?,
            Protocol::Mongo => self.on_mongo(target).await?,
        };
        Ok(match cleaner {
            Some(cleaner) => Prepared::Ready(vec![cleaner]),
            None => Prepared::Cannot("there is no such command".to_string()),
        })
    }

    async fn finish(&self, target: &Target, _: &mut Row) -> Result<()> {
        if self.way == Way::Restore {
            let link = Link::open(target).await?;
            link.admin(doc! { "dropSnapshot": target.database()?, "name": SNAPSHOT }).await?;
        }
        Ok(())
    }
}

impl Cleaning {
    async fn on_mongo(&self, target: &Target) -> Result<Option<Cleaner>> {
        let link = Link::open(target).await?;
        let own = matches!(self.way, Way::Reset | Way::Fork | Way::Restore);
        if own && !link.is_vellum().await? {
            return Ok(None);
        }
        link.named(link.database.drop().await)?;
        match self.way {
            Way::Fork => self.fill(&link, &format!("{}_template", target.database()?)).await?,
            Way::Restore => {
                self.fill(&link, target.database()?).await?;
                link.admin(
                    doc! { "snapshotDatabase": target.database()?, "name": SNAPSHOT, "replace": true },
                )
                .await?;
            }
            _ => {}
        }
        create(&link).await?;
        Ok(Some(Cleaner { way: self.way, seed: self.seed, by: By::Mongo(Box::new(link)) }))
    }

    /// Makes the template: collections with three indexes each, and documents of 1 KB among them.
    async fn fill(&self, link: &Link, database: &str) -> Result<()> {
        let database = link.client.database(database);
        link.named(database.drop().await)?;
        let each = (self.documents / COLLECTIONS).max(1);
        for number in 0..COLLECTIONS {
            let collection = database.collection::<Document>(&format!("c{number}"));
            let keys = [doc! { "user": 1 }, doc! { "state": 1, "created": -1 }, doc! { "name": 1 }];
            link.named(collection.create_indexes(keys.map(index)).await)?;
            for first in (0..each).step_by(BATCH as usize) {
                let batch = first..(first + BATCH).min(each);
                let documents = batch.map(|at| document(self.seed, number * each + at, 900));
                link.named(collection.insert_many(documents).await)?;
            }
        }
        Ok(())
    }

    async fn on_postgres(&self, target: &Target) -> Result<Option<Cleaner>> {
        let schema = target.database()?;
        let text = match self.way {
            Way::DeleteFromEmpty => format!("DELETE FROM {NAME}"),
            Way::InsertAndDelete => format!("{INSERT_20}; DELETE FROM {NAME}"),
            Way::DropAndCreate => format!("DROP TABLE {NAME}; {CREATE_TABLE}"),
            Way::DropDatabase => {
                format!("DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}; {CREATE_TABLE}")
            }
            Way::Reset | Way::Fork | Way::Restore => return Ok(None),
        };
        let client = target.postgres().await?;
        let begin = format!("DROP TABLE IF EXISTS {NAME}; {CREATE_TABLE}");
        named(target, client.batch_execute(&begin).await)?;
        let by = By::Postgres(Box::new(Statement { client, text, target: target.clone() }));
        Ok(Some(Cleaner { way: self.way, seed: self.seed, by }))
    }
}

const CREATE_TABLE: &str = "CREATE TABLE tests (id bigint PRIMARY KEY, \"user\" int, email text, state text, \
     created bigint, name text); \
     CREATE INDEX ON tests (\"user\"); CREATE UNIQUE INDEX ON tests (email); \
     CREATE INDEX ON tests (state, created DESC); CREATE INDEX ON tests (name)";

const INSERT_20: &str = "INSERT INTO tests SELECT n, n, 'user' || n || '@example.com', 'open', n, repeat('x', 60) \
     FROM generate_series(1, 20) n";

/// Creates the collection with its four indexes.
async fn create(link: &Link) -> Result<()> {
    let indexes = four_indexes();
    link.named(link.collection::<Document>(NAME).create_indexes(indexes).await).map(drop)
}

fn four_indexes() -> [IndexModel; 4] {
    let mut email = index(doc! { "email": 1 });
    email.options = Some(mongodb::options::IndexOptions::builder().unique(true).build());
    [index(doc! { "user": 1 }), email, index(doc! { "state": 1, "created": -1 }), index(doc! { "name": 1 })]
}

fn document(seed: u64, number: u64, text: usize) -> Document {
    let mut dice = Dice::of(seed, number);
    doc! {
        "user": dice.below(1000) as i64,
        "email": format!("user{number}@example.com"),
        "state": "open",
        "created": number as i64,
        "name": dice.words(text),
    }
}

/// One connection that cleans.
struct Cleaner {
    way: Way,
    seed: u64,
    by: By,
}

/// One message to PostgreSQL.
struct Statement {
    client: tokio_postgres::Client,
    text: String,
    target: Target,
}

enum By {
    Mongo(Box<Link>),
    Postgres(Box<Statement>),
}

impl Worker for Cleaner {
    async fn operation(&mut self, number: u64) -> Result<()> {
        match &self.by {
            By::Mongo(link) => self.clean(link, number).await,
            By::Postgres(sql) => named(&sql.target, sql.client.batch_execute(&sql.text).await),
        }
    }
}

impl Cleaner {
    async fn clean(&self, link: &Link, number: u64) -> Result<()> {
        let collection = link.collection::<Document>(NAME);
        let own = link.database.name();
        match self.way {
            Way::DeleteFromEmpty => link.named(collection.delete_many(doc! {}).await).map(drop),
            Way::InsertAndDelete => {
                self.leave(link, number).await?;
                link.named(collection.delete_many(doc! {}).await).map(drop)
            }
            Way::DropAndCreate => {
                link.named(collection.drop().await)?;
                create(link).await
            }
            Way::DropDatabase => {
                link.named(link.database.drop().await)?;
                create(link).await
            }
            Way::Reset => {
                self.leave(link, number).await?;
                link.admin(doc! { "resetDatabase": own }).await.map(drop)
            }
            Way::Fork => {
                let (template, twin) = (format!("{own}_template"), format!("{own}_twin"));
                link.admin(doc! { "forkDatabase": template, "to": twin, "replace": true }).await.map(drop)
            }
            Way::Restore => {
                self.leave(link, number).await?;
                link.admin(doc! { "restoreDatabase": own, "name": SNAPSHOT }).await.map(drop)
            }
        }
    }

    /// Inserts what a test leaves behind.
    async fn leave(&self, link: &Link, number: u64) -> Result<()> {
        let documents = (0..LEFT).map(|at| document(self.seed, number * LEFT + at, 60));
        link.named(link.collection::<Document>(NAME).insert_many(documents).await).map(drop)
    }
}

/// What dropping costs beside deleting, and what forking does.
fn findings(section: &Section) -> Vec<String> {
    let mut found = Vec::new();
    for target in sentences::targets(section) {
        let rate = |way: Way| {
            let (_, name) = WAYS.iter().find(|(known, _)| *known == way)?;
            section.row(target, name, 1).map(Row::rate).filter(|rate| *rate > 0.0)
        };
        let Some((drop, delete)) = rate(Way::DropAndCreate).zip(rate(Way::InsertAndDelete)) else { continue };
        let mut text = format!(
            "{target}: dropping a collection and creating it with four indexes can be done {} times a second, \
             deleting 20 documents that were inserted {} times",
            figures::number(drop),
            figures::number(delete)
        );
        if let Some(fork) = rate(Way::Fork) {
            text += &format!(
                "; a prepared database of 20 collections is there again {} times a second",
                figures::number(fork)
            );
        }
        found.push(text + ".");
    }
    found
}

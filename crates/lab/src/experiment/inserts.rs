//! `inserts`: 10,000 documents, one by one, on one connection and on eight.
//!
//! PostgreSQL takes part with a prepared INSERT of the same fields as plain columns, each committed
//! by itself.

use super::parts::{Link, named};
use super::{Experiment, sentences};
use crate::error::Result;
use crate::load::Worker;
use crate::load::measure::{Bench, Case, Prepared, Visit};
use crate::load::random::Dice;
use crate::report::figures;
use crate::result::{Kind, Report, Row, Section};
use crate::run::Lab;
use crate::target::{Protocol, Target};
use mongodb::bson::{DateTime, Document, doc};
use std::time::{Duration, SystemTime};
use tokio_postgres::{Client, Statement};

/// The experiment.
pub(crate) struct Inserts;

const INSERTS: u64 = 10_000;
const CONNECTIONS: &[u32] = &[1, 8];
const NAME: &str = "inserts";
const CASE: &str = "single inserts";

impl Experiment for Inserts {
    fn name(&self) -> &'static str {
        "inserts"
    }

    fn title(&self) -> String {
        "Single inserts".to_string()
    }

    fn about(&self) -> String {
        "Documents of about 500 bytes in seven fields, inserted one by one, each acknowledged as the target does \
         by default. PostgreSQL: a prepared INSERT of the same fields as plain columns with a primary key, \
         autocommit."
            .to_string()
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let inserts = lab.scaled(INSERTS);
        let about = format!(
            "An operation is one insert; a round is {} into an empty collection.",
            figures::count(inserts)
        );
        let section = lab.section("inserts", "Single inserts", &about, Kind::Bars);
        let case = |connections: u32| {
            Case::new(CASE, lab.operations(INSERTS), Inserting { seed: lab.seed }).on(connections)
        };
        let cases: Vec<_> = lab.connections(CONNECTIONS).into_iter().map(case).collect();
        lab.measure(section, &cases).await;
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        let bars = report.sections.iter().filter(|section| section.kind == Kind::Bars);
        bars.flat_map(findings).collect()
    }
}

/// What is inserted: the same fields whatever the target.
struct Record {
    id: i64,
    user: i64,
    created: SystemTime,
    state: &'static str,
    amount: f64,
    title: String,
    body: String,
}

impl Record {
    fn of(seed: u64, number: u64) -> Record {
        let mut dice = Dice::of(seed, number);
        let states = ["open", "paid", "sent", "done"];
        Record {
            id: number as i64,
            user: dice.below(100_000) as i64,
            // A second apart, from 2024 on.
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(1_704_067_200 + (number & 0xFFFF_FFFF)),
            state: states[dice.below(4) as usize],
            amount: dice.below(1_000_000) as f64 / 100.0,
            title: dice.words(40),
            body: dice.words(330),
        }
    }

    fn document(self) -> Document {
        doc! {
            "_id": self.id,
            "user": self.user,
            "created": DateTime::from_system_time(self.created),
            "state": self.state,
            "amount": self.amount,
            "title": self.title,
            "body": self.body,
        }
    }
}

const CREATE_TABLE: &str = "DROP TABLE IF EXISTS inserts; CREATE TABLE inserts (id bigint PRIMARY KEY, \
     \"user\" bigint NOT NULL, created timestamptz NOT NULL, state text NOT NULL, amount double precision NOT NULL, \
     title text NOT NULL, body text NOT NULL)";
const INSERT: &str = "INSERT INTO inserts VALUES ($1, $2, $3, $4, $5, $6, $7)";

#[derive(Clone, Debug)]
struct Inserting {
    seed: u64,
}

impl Bench for Inserting {
    type Worker = Inserter;

    async fn prepare(&self, target: &Target, visit: &Visit) -> Result<Prepared<Inserter>> {
        let by = match target.protocol {
            Protocol::Mongo => {
                let links = Link::open_all(target, visit.connections).await?;
                if let Some(link) = links.first() {
                    link.drop(NAME).await?;
                    link.run(doc! { "create": NAME }).await?;
                }
                links.into_iter().map(|link| By::Mongo(Box::new(link))).collect()
            }
            Protocol::Postgres => postgres(target, visit.connections).await?,
        };
        Ok(Prepared::Ready(by.into_iter().map(|by| Inserter { by, seed: self.seed }).collect()))
    }
}

async fn postgres(target: &Target, connections: u32) -> Result<Vec<By>> {
    let client = target.postgres().await?;
    named(target, client.batch_execute(CREATE_TABLE).await)?;
    let mut by = Vec::new();
    for _ in 0..connections {
        let client = target.postgres().await?;
        let insert = named(target, client.prepare(INSERT).await)?;
        by.push(By::Postgres(Box::new(Sql { client, insert, target: target.clone() })));
    }
    Ok(by)
}

/// One connection that inserts.
struct Inserter {
    by: By,
    seed: u64,
}

/// PostgreSQL's.
struct Sql {
    client: Client,
    insert: Statement,
    target: Target,
}

enum By {
    Mongo(Box<Link>),
    Postgres(Box<Sql>),
}

impl Worker for Inserter {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let record = Record::of(self.seed, number);
        match &self.by {
            By::Mongo(link) => {
                let collection = link.collection::<Document>(NAME);
                link.named(collection.insert_one(record.document()).await).map(drop)
            }
            By::Postgres(sql) => {
                let Record { id, user, created, state, amount, title, body } = &record;
                let result =
                    sql.client.execute(&sql.insert, &[id, user, created, state, amount, title, body]).await;
                named(&sql.target, result).map(drop)
            }
        }
    }
}

/// "10,000 inserts on one connection: memory needs 0.42 s, …".
fn findings(section: &Section) -> Vec<String> {
    let mut connections: Vec<u32> = section.rows.iter().map(|row| row.connections).collect();
    connections.dedup();
    let targets = sentences::targets(section);
    let sentence = |on: u32| {
        let rows = targets.iter().filter_map(|target| section.row(target, CASE, on));
        let mut rows: Vec<&Row> = rows.filter(|row| row.operations > 0).collect();
        rows.sort_by(|a, b| b.rate().total_cmp(&a.rate()));
        let times = rows
            .iter()
            .map(|row| format!("{} {}", row.target, figures::seconds(INSERTS as f64 / row.rate())));
        let times: Vec<String> = times.collect();
        (!times.is_empty()).then(|| {
            let on = figures::plural(on.into(), "connection");
            format!("10,000 single inserts on {on} take, at the rates found: {}.", figures::list(&times))
        })
    };
    connections.into_iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_of_about_500_bytes_and_come_again() {
        for number in [0, 9999, 1 << 40] {
            let document = Record::of(3, number).document();
            assert!((450..550).contains(&document.to_vec().unwrap().len()));
            assert_eq!(document, Record::of(3, number).document());
        }
    }
}

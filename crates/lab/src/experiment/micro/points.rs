//! One document at a time, by its key; and batches.

use super::super::parts::{Link, Loaded, named};
use super::document;
use crate::error::Result;
use crate::load::Worker;
use crate::load::measure::{Bench, Prepared, Visit};
use crate::load::random::Dice;
use crate::result::Row;
use crate::target::{Protocol, Target};
use mongodb::bson::{Document, doc};
use tokio_postgres::{Client, Statement};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Point {
    Insert,
    Find,
    Update,
    Delete,
    Batch,
}

pub(super) const POINTS: &[(Point, &str)] = &[
    (Point::Insert, "insert"),
    (Point::Find, "find by _id"),
    (Point::Update, "update $inc by _id"),
    (Point::Delete, "insert, delete by _id"),
    (Point::Batch, "insertMany of 1,000"),
];

const KEPT: &str = "points";
const NEW: &str = "points_new";
const BATCH: u64 = 1000;

/// Operations of a kind on a collection that is loaded once.
#[derive(Clone, Debug)]
pub(super) struct Pointing {
    pub(super) point: Point,
    pub(super) seed: u64,
    pub(super) documents: u64,
    pub(super) loaded: Loaded,
}

impl Bench for Pointing {
    type Worker = Pointer;

    async fn prepare(&self, target: &Target, visit: &Visit) -> Result<Prepared<Pointer>> {
        let by: Vec<By> = match target.protocol {
            Protocol::Mongo => {
                let links = Link::open_all(target, visit.connections).await?;
                if let Some(link) = links.first() {
                    self.load(link).await?;
                }
                links.into_iter().map(|link| By::Mongo(Box::new(link))).collect()
            }
            Protocol::Postgres if self.point == Point::Batch => {
                return Ok(Prepared::Cannot("batches are measured on MongoDB's protocol only".to_string()));
            }
            Protocol::Postgres => self.on_postgres(target, visit.connections).await?,
        };
        Ok(Prepared::Ready(by.into_iter().map(|by| Pointer { by, of: self.clone() }).collect()))
    }

    async fn finish(&self, _: &Target, row: &mut Row) -> Result<()> {
        if let (Point::Batch, Some(cpu)) = (self.point, row.cpu_microseconds) {
            row.extra.insert(super::scans::PER_DOCUMENT.to_string(), cpu / BATCH as f64);
        }
        Ok(())
    }
}

impl Pointing {
    async fn load(&self, link: &Link) -> Result<()> {
        link.drop(NEW).await?;
        link.run(doc! { "create": NEW }).await?;
        if self.loaded.first_time(&link.target) {
            link.fill(KEPT, self.documents, |number| document(self.seed, number)).await?;
        }
        Ok(())
    }

    async fn on_postgres(&self, target: &Target, connections: u32) -> Result<Vec<By>> {
        let client = target.postgres().await?;
        let table = "(id bigint PRIMARY KEY, \"group\" bigint, amount double precision, hits int, state text, body text)";
        let begin = format!("DROP TABLE IF EXISTS {NEW}; CREATE TABLE {NEW} {table}");
        named(target, client.batch_execute(&begin).await)?;
        if self.loaded.first_time(target) {
            let fill = format!(
                "CREATE TABLE {KEPT} {table}; INSERT INTO {KEPT} SELECT n, n % 100, n, 0, 'open', \
                 repeat(md5(n::text), 28) FROM generate_series(0, {}) n; ANALYZE {KEPT}",
                self.documents.saturating_sub(1)
            );
            named(target, client.batch_execute(&fill).await)?;
        }
        let mut by = Vec::new();
        for _ in 0..connections {
            let client = target.postgres().await?;
            let insert = named(
                target,
                client.prepare(&format!("INSERT INTO {NEW} VALUES ($1, $2, $3, $4, $5, $6)")).await,
            )?;
            let text = match self.point {
                Point::Find => format!("SELECT * FROM {KEPT} WHERE id = $1"),
                Point::Update => format!("UPDATE {KEPT} SET hits = hits + 1 WHERE id = $1"),
                _ => format!("DELETE FROM {NEW} WHERE id = $1"),
            };
            let other = named(target, client.prepare(&text).await)?;
            by.push(By::Postgres(Box::new(Sql { client, insert, other, target: target.clone() })));
        }
        Ok(by)
    }
}

/// One connection's operations.
pub(super) struct Pointer {
    by: By,
    of: Pointing,
}

enum By {
    Mongo(Box<Link>),
    Postgres(Box<Sql>),
}

struct Sql {
    client: Client,
    insert: Statement,
    other: Statement,
    target: Target,
}

impl Worker for Pointer {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let key = Dice::of(!self.of.seed, number).below(self.of.documents) as i64;
        match &self.by {
            By::Mongo(link) => self.of.on_mongo(link, number, key).await,
            By::Postgres(sql) => self.of.by_sql(sql, number, key).await,
        }
    }
}

impl Pointing {
    async fn on_mongo(&self, link: &Link, number: u64, key: i64) -> Result<()> {
        let kept = link.collection::<Document>(KEPT);
        let new = link.collection::<Document>(NEW);
        let by_key = doc! { "_id": key };
        match self.point {
            Point::Insert => link.named(new.insert_one(document(self.seed, number)).await).map(drop),
            Point::Find => {
                let found = link.named(kept.find_one(by_key).await)?;
                check(&link.target, found.is_some())
            }
            Point::Update => {
                let updated = kept.update_one(by_key, doc! { "$inc": { "hits": 1 } }).await;
                check(&link.target, link.named(updated)?.matched_count == 1)
            }
            Point::Delete => {
                link.named(new.insert_one(document(self.seed, number)).await)?;
                let deleted = link.named(new.delete_one(doc! { "_id": number as i64 }).await)?;
                check(&link.target, deleted.deleted_count == 1)
            }
            Point::Batch => {
                let first = number * BATCH;
                let documents = (first..first + BATCH).map(|number| document(self.seed, number));
                link.named(new.insert_many(documents).await).map(drop)
            }
        }
    }

    async fn by_sql(&self, sql: &Sql, number: u64, key: i64) -> Result<()> {
        let number = number as i64;
        match self.point {
            Point::Find => {
                let rows = named(&sql.target, sql.client.query(&sql.other, &[&key]).await)?;
                check(&sql.target, rows.len() == 1)
            }
            Point::Update => {
                let updated = named(&sql.target, sql.client.execute(&sql.other, &[&key]).await)?;
                check(&sql.target, updated == 1)
            }
            Point::Insert | Point::Delete | Point::Batch => {
                let text = Dice::of(self.seed, number as u64).words(900);
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                    [&number, &(number % 100), &(number as f64), &0i32, &"open", &text];
                named(&sql.target, sql.client.execute(&sql.insert, &values).await)?;
                if self.point == Point::Delete {
                    let deleted = named(&sql.target, sql.client.execute(&sql.other, &[&number]).await)?;
                    return check(&sql.target, deleted == 1);
                }
                Ok(())
            }
        }
    }
}

/// An operation that finds nothing is no fast operation, but a wrong one.
fn check(target: &Target, found: bool) -> Result<()> {
    if found { Ok(()) } else { Err(target.error("didn't find a document that must be there")) }
}

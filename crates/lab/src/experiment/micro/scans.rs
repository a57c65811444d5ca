//! Everything that reads a whole collection, and the building of an index.

use super::super::parts::{Link, Loaded, index};
use super::document;
use crate::error::Result;
use crate::load::Worker;
use crate::load::measure::{Bench, Prepared, Visit};
use crate::result::Row;
use crate::target::{FLOOR_ANSWERS, Protocol, Target};
use mongodb::Cursor;
use mongodb::bson::{Document, RawDocumentBuf, doc};

/// A way to read everything.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scan {
    MatchNothing,
    FetchAll,
    Group,
    Sort,
    BuildIndex,
}

pub(super) const SCANS: &[(Scan, &str)] = &[
    (Scan::MatchNothing, "filter that matches nothing"),
    (Scan::FetchAll, "every document fetched"),
    (Scan::Group, "$match, $group into 50"),
    (Scan::Sort, "sort, limit 10"),
    (Scan::BuildIndex, "createIndex"),
];

/// A figure beside: the server's processor time by document.
pub(super) const PER_DOCUMENT: &str = "server CPU per document, µs";

const NAME: &str = "scans";
const INDEX: &str = "amount_1";

/// One way, on a collection that is loaded once.
#[derive(Clone, Debug)]
pub(super) struct Scanning {
    pub(super) scan: Scan,
    pub(super) seed: u64,
    pub(super) documents: u64,
    pub(super) loaded: Loaded,
}

impl Bench for Scanning {
    type Worker = Scanner;

    async fn prepare(&self, target: &Target, _: &Visit) -> Result<Prepared<Scanner>> {
        if target.protocol == Protocol::Postgres {
            return Ok(Prepared::Cannot("scans are measured on MongoDB's protocol only".to_string()));
        }
        let link = Link::open(target).await?;
        if target.is_floor {
            self.floor(&link).await?;
        } else if self.loaded.first_time(target) {
            link.fill(NAME, self.documents, |number| document(self.seed, number)).await?;
        }
        if self.scan == Scan::BuildIndex && !target.is_floor {
            self.drop_index(&link).await?;
        }
        Ok(Prepared::Ready(vec![Scanner { link, of: self.clone() }]))
    }

    async fn finish(&self, target: &Target, row: &mut Row) -> Result<()> {
        if let Some(cpu) = row.cpu_microseconds {
            row.extra.insert(PER_DOCUMENT.to_string(), cpu / self.documents as f64);
        }
        if target.is_floor {
            Link::open(target).await?.admin(doc! { FLOOR_ANSWERS: 0_i64 }).await?;
        } else if self.scan == Scan::BuildIndex {
            // The other scans of the next round must not find it.
            self.drop_index(&Link::open(target).await?).await?;
        }
        Ok(())
    }
}

/// Of documents and of groups, in bytes.
const DOCUMENT: i64 = 1000;
const GROUP: i64 = 60;

impl Scanning {
    /// Has the floor answer with as much as the other targets: what it shows is then what client and kernel alone cost.
    async fn floor(&self, link: &Link) -> Result<()> {
        let (documents, bytes) = match self.scan {
            Scan::MatchNothing | Scan::BuildIndex => (0, DOCUMENT),
            Scan::FetchAll => (self.documents as i64, DOCUMENT),
            Scan::Group => (50.min(self.documents as i64), GROUP),
            Scan::Sort => (10.min(self.documents as i64), DOCUMENT),
        };
        link.admin(doc! { FLOOR_ANSWERS: documents, "bytes": bytes }).await.map(drop)
    }

    async fn drop_index(&self, link: &Link) -> Result<()> {
        let collection = link.collection::<Document>(NAME);
        let names = link.named(collection.list_index_names().await)?;
        if names.iter().any(|name| name == INDEX) {
            link.named(collection.drop_index(INDEX).await)?;
        }
        Ok(())
    }
}

/// The connection that reads.
pub(super) struct Scanner {
    link: Link,
    of: Scanning,
}

impl Worker for Scanner {
    async fn operation(&mut self, _: u64) -> Result<()> {
        let collection = self.link.collection::<RawDocumentBuf>(NAME);
        let (cursor, expected) = match self.of.scan {
            Scan::MatchNothing => (self.link.named(collection.find(doc! { "hits": -1 }).await)?, 0),
            Scan::FetchAll => (self.link.named(collection.find(doc! {}).await)?, self.of.documents),
            Scan::Sort => {
                let find = collection.find(doc! {}).sort(doc! { "amount": -1 }).limit(10);
                (self.link.named(find.await)?, self.of.documents.min(10))
            }
            Scan::Group => return self.group().await,
            Scan::BuildIndex => {
                let created = collection.create_index(index(doc! { "amount": 1 })).await;
                return self.link.named(created).map(drop);
            }
        };
        let read = self.read(cursor).await?;
        self.check(read == expected, read)
    }
}

impl Scanner {
    async fn group(&self) -> Result<()> {
        let stages = [
            doc! { "$match": { "group": { "$lt": 50 } } },
            doc! { "$group": { "_id": "$group", "total": { "$sum": "$amount" }, "count": { "$sum": 1 } } },
        ];
        let cursor = self.link.named(self.link.collection::<Document>(NAME).aggregate(stages).await)?;
        let groups = self.read(cursor).await?;
        self.check((1..=50).contains(&groups), groups)
    }

    async fn read<T>(&self, mut cursor: Cursor<T>) -> Result<u64> {
        let mut read = 0;
        while self.link.named(cursor.advance().await)? {
            read += 1;
        }
        Ok(read)
    }

    /// A scan that reads something else is no fast scan, but a wrong one.
    fn check(&self, right: bool, read: u64) -> Result<()> {
        if right {
            return Ok(());
        }
        Err(self.link.target.error(format!("read {read} documents, which is wrong")))
    }
}

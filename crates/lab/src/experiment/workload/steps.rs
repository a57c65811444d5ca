//! One request of a workload to a target of MongoDB's protocol.

use super::Mix;
use super::file::{Kind, Step};
use super::maker::{Maker, Scene};
use crate::error::Result;
use crate::experiment::parts::Link;
use mongodb::action::Action;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::{ReturnDocument, UpdateModifications};

/// How often an upsert is sent that another client's upsert of the same document has overtaken.
const ATTEMPTS: u32 = 3;

/// What a step works with.
pub(super) struct Doing<'a> {
    pub(super) link: &'a Link,
    pub(super) mix: &'a Mix,
}

fn document(value: Bson) -> Document {
    if let Bson::Document(document) = value { document } else { Document::new() }
}

/// The stages of a pipeline, or of an update that is one.
fn stages(value: Bson) -> Vec<Document> {
    let Bson::Array(stages) = value else { return Vec::new() };
    stages.into_iter().map(document).collect()
}

fn made(maker: Option<&Maker>, scene: &mut Scene) -> Bson {
    maker.map_or(Bson::Null, |maker| maker.make(scene))
}

fn modifications(value: Bson) -> UpdateModifications {
    match value {
        Bson::Document(document) => document.into(),
        other => stages(other).into(),
    }
}

impl Doing<'_> {
    fn name<'s>(&'s self, step: &'s Step) -> &'s str {
        step.collection.as_deref().unwrap_or(&self.mix.shared.section.collection)
    }

    /// Carries it out, and keeps what is to be kept.
    ///
    /// # Errors
    /// The target refuses, or finds something else than the file says.
    pub(super) async fn step(&self, step: &Step, scene: &mut Scene<'_>) -> Result<()> {
        let link = self.link;
        let collection = link.collection::<Document>(self.name(step));
        let found = match step.kind {
            Kind::Insert => return self.insert(step, scene).await,
            Kind::Command => {
                let command = document(made(step.change(), scene));
                let done = if step.admin == Some(true) {
                    link.admin(command).await
                } else {
                    link.run(command).await
                };
                return done.map(drop);
            }
            Kind::Connect | Kind::Start => return Ok(()),
            Kind::Aggregate => {
                let pipeline = stages(made(step.change(), scene));
                self.exhaust(link.named(collection.aggregate(pipeline).await)?).await?
            }
            kind => {
                let filter = match &step.filter {
                    Some(filter) => document(filter.make(scene)),
                    None => doc! { "_id": Maker::Key { field: None }.make(scene) },
                };
                match kind {
                    Kind::Find => self.find(step, filter, scene).await?,
                    Kind::Count => link.named(collection.count_documents(filter).await)?,
                    Kind::Delete if step.many == Some(true) => {
                        link.named(collection.delete_many(filter).await)?.deleted_count
                    }
                    Kind::Delete => link.named(collection.delete_one(filter).await)?.deleted_count,
                    Kind::Update => {
                        let change = modifications(made(step.change(), scene));
                        let done = match step.many {
                            Some(true) => {
                                collection.update_many(filter, change).upsert(step.upsert == Some(true)).await
                            }
                            _ => {
                                collection.update_one(filter, change).upsert(step.upsert == Some(true)).await
                            }
                        };
                        link.named(done)?.matched_count
                    }
                    _ => {
                        let change = modifications(made(step.change(), scene));
                        self.find_and_modify(step, filter, change, scene).await?
                    }
                }
            }
        };
        let Some(wanted) = step.expect.map(|wanted| wanted.of(self.mix.shared.documents)) else {
            return Ok(());
        };
        // Of groups there are as many as the documents happen to have.
        let right =
            if step.kind == Kind::Aggregate { (1..=wanted).contains(&found) } else { found == wanted };
        if right {
            Ok(())
        } else {
            Err(link.target.error(format!("found {found} documents, which is wrong")))
        }
    }

    async fn insert(&self, step: &Step, scene: &mut Scene<'_>) -> Result<()> {
        let name = self.name(step);
        let collection = self.link.collection::<Document>(name);
        if let Some(batch) = step.batch {
            let documents: Vec<Document> = (0..batch.get()).map(|_| self.mix.fresh()).collect();
            return self.link.named(collection.insert_many(documents).await).map(drop);
        }
        let inserted = match &step.document {
            Some(maker) => document(maker.make(scene)),
            None => self.mix.fresh(),
        };
        let id = self.link.named(collection.insert_one(inserted).await)?.inserted_id;
        if let Some(name) = &step.save {
            scene.saved.insert(name.clone(), Bson::Document(doc! { "_id": id }));
        }
        Ok(())
    }

    async fn find(&self, step: &Step, filter: Document, scene: &mut Scene<'_>) -> Result<u64> {
        let name = self.name(step);
        let collection = self.link.collection::<RawDocumentBuf>(name);
        let find = collection.find(filter).optional(step.sort.clone(), |find, sort| find.sort(sort.0));
        let mut find = find.optional(step.projection.clone(), |find, fields| find.projection(fields.0));
        // One that is known to be the only one is asked for as drivers do.
        if let Some(limit) = step.limit.map(|limit| limit.get() as i64).or(step.save.as_ref().map(|_| -1)) {
            find = find.limit(limit);
        }
        let mut cursor = self.link.named(find.await)?;
        let mut found = 0;
        while self.link.named(cursor.advance().await)? {
            found += 1;
            if let Some(name) = &step.save {
                let first =
                    Document::try_from(cursor.current()).map_err(|error| self.link.target.error(error))?;
                scene.saved.insert(name.clone(), Bson::Document(first));
            }
        }
        Ok(found)
    }

    async fn find_and_modify(
        &self,
        step: &Step,
        filter: Document,
        change: UpdateModifications,
        scene: &mut Scene<'_>,
    ) -> Result<u64> {
        let collection = self.link.collection::<Document>(self.name(step));
        let mut attempt = 1;
        let found = loop {
            let find = collection.find_one_and_update(filter.clone(), change.clone());
            let find = find
                .upsert(step.upsert == Some(true))
                .optional(step.sort.clone(), |find, sort| find.sort(sort.0));
            let mut find = find.optional(step.projection.clone(), |find, fields| find.projection(fields.0));
            if step.save.is_some() {
                find = find.return_document(ReturnDocument::After);
            }
            match find.await {
                Err(overtaken)
                    if step.upsert == Some(true) && attempt < ATTEMPTS && is_duplicate(&overtaken) =>
                {
                    attempt += 1
                }
                found => break self.link.named(found)?,
            }
        };
        let count = u64::from(found.is_some());
        if let (Some(name), Some(found)) = (&step.save, found) {
            scene.saved.insert(name.clone(), Bson::Document(found));
        }
        Ok(count)
    }

    async fn exhaust(&self, mut cursor: mongodb::Cursor<Document>) -> Result<u64> {
        let mut found = 0;
        while self.link.named(cursor.advance().await)? {
            found += 1;
        }
        Ok(found)
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

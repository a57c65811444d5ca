//! Oplog entries of changes.
//!
//! Log entries of documents use the bytes of their changes, which the store shares with the
//! collection. Catalog changes are logged as the oplog's commands.

use crate::catalog::collection::Collection;
use crate::changes::retry_record::RetryKey;
use crate::index::{Building, IndexSpec};
use base::bson::{Builder, Document, DocumentBuf, Value as Bson};
use base::{Namespace, Result, bail};
use query::change::{self, EntryTime, Recorder, Session, Source};
use std::sync::Arc;
use storage::Value;
use storage::store::Change;

/// The local database of each member. Its changes are not replicated.
const UNLOGGED: &str = "local";

/// The profiler's collection of a database.
pub(crate) const PROFILE: &str = "system.profile";

/// Returns true for unreplicated collections: all of `local`, and profiler collections.
fn is_unlogged(namespace: &Namespace) -> bool {
    namespace.database() == UNLOGGED || namespace.collection() == PROFILE
}

/// A change of a document, before its commit.
#[derive(Debug)]
pub(crate) struct Logged {
    namespace: Namespace,
    uuid: [u8; 16],
    statement: Option<i32>,
    pre_image: Option<Value>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Insert(Value),
    /// The document after the change, and the diff; a replacement if the diff is `None`.
    Update(Value, Option<DocumentBuf>),
    /// The document key. A transaction may delete more bytes than it may hold.
    Delete(DocumentBuf),
}

impl Logged {
    fn new(collection: &Collection, before: Option<&Value>, action: Action) -> Logged {
        let pre_image = before.filter(|_| collection.options.pre_images).cloned();
        let (namespace, uuid) = (collection.namespace.clone(), collection.uuid);
        Logged { namespace, uuid, statement: None, pre_image, action }
    }

    /// Returns the entry of an insert.
    pub(crate) fn insert(collection: &Collection, document: Value) -> Logged {
        Logged::new(collection, None, Action::Insert(document))
    }

    /// Returns the entry of an update. The diff is used if it is shorter.
    pub(crate) fn update(
        collection: &Collection,
        before: &Value,
        after: Value,
        diff: Option<DocumentBuf>,
    ) -> Logged {
        Logged::new(collection, Some(before), Action::Update(after, diff))
    }

    /// Returns the entry of a delete.
    pub(crate) fn delete(collection: &Collection, before: &Value) -> Logged {
        let mut key = Builder::new();
        key.append_optional(c"_id", Document::from_valid(before).get("_id"));
        Logged::new(collection, Some(before), Action::Delete(key.finish()))
    }

    /// Returns the bytes that only the entry holds, and not its change: pre-image, diff, document key.
    pub(crate) fn held_bytes(&self) -> usize {
        let own = match &self.action {
            Action::Insert(_) | Action::Update(_, None) => 0,
            Action::Update(_, Some(own)) | Action::Delete(own) => own.bytes().len(),
        };
        own + self.pre_image.as_ref().map_or(0, |image| image.len())
    }

    /// Sets the statement number within a retryable write.
    ///
    /// Errors: IllegalOperation for unreplicated collections.
    pub(crate) fn set_statement(&mut self, statement: i32) -> Result<()> {
        if is_unlogged(&self.namespace) {
            bail!(
                IllegalOperation,
                "retryable writes is not supported for unreplicated ns: {}",
                self.namespace
            );
        }
        self.statement = Some(statement);
        Ok(())
    }

    fn record(self, recorder: &mut Recorder<Value>) {
        let source = Source { namespace: self.namespace.as_str(), uuid: Some(self.uuid) };
        match self.action {
            Action::Insert(document) => {
                recorder.push(source, self.statement, change::Change::Insert(document), self.pre_image);
            }
            Action::Update(after, None) => {
                recorder.push(source, self.statement, change::Change::Replace(after), self.pre_image);
            }
            Action::Update(after, Some(diff)) => {
                if let Some(id) = Document::from_valid(&after).find("_id") {
                    let change = change::Change::Update { id, diff: diff.view() };
                    recorder.push(source, self.statement, change, self.pre_image);
                }
            }
            Action::Delete(key) => {
                if let Some(id) = key.view().find("_id") {
                    let pre_image = self.pre_image;
                    recorder.push(source, self.statement, change::Change::Delete(id), pre_image);
                }
            }
        }
    }
}

/// A catalog change as an oplog command.
#[derive(Debug)]
pub(crate) struct LoggedCommand {
    /// The database.
    database: String,
    uuid: Option<[u8; 16]>,
    object: DocumentBuf,
    before: Option<DocumentBuf>,
}

impl LoggedCommand {
    fn new(collection: &Collection, object: DocumentBuf, before: Option<DocumentBuf>) -> LoggedCommand {
        let namespace = &collection.namespace;
        let database = if is_unlogged(namespace) { UNLOGGED } else { namespace.database() }.to_string();
        // Change streams recognize views by the missing UUID.
        let uuid = (!collection.is_view()).then_some(collection.uuid);
        LoggedCommand { database, uuid, object, before }
    }

    /// Returns the entry of a new collection or view.
    pub(crate) fn create(collection: &Collection) -> LoggedCommand {
        let mut object = Builder::new();
        object.append(c"create", collection.namespace.collection());
        object.append_all(collection.options_document().view());
        let id_index = collection.data.as_ref().and_then(|data| data.id_index());
        if let Some(index) = id_index.filter(|index| !index.spec.clustered) {
            object.append(c"idIndex", &index.spec.to_document());
        }
        LoggedCommand::new(collection, object.finish(), None)
    }

    /// Returns the entry of a dropped collection or view.
    pub(crate) fn drop(collection: &Collection) -> LoggedCommand {
        let (mut object, mut before) = (Builder::new(), Builder::new());
        object.append(c"drop", collection.namespace.collection());
        before.append(c"numRecords", collection.records());
        LoggedCommand::new(collection, object.finish(), Some(before.finish()))
    }

    /// Returns the entry of a dropped database, after its collections.
    pub(crate) fn drop_database(database: &str) -> LoggedCommand {
        let mut object = Builder::new();
        object.append(c"dropDatabase", 1);
        LoggedCommand { database: database.to_string(), uuid: None, object: object.finish(), before: None }
    }

    /// Returns the entry of a rename, which may replace another collection.
    pub(crate) fn rename(from: &Collection, to: &Namespace, dropped: Option<&Collection>) -> LoggedCommand {
        let mut object = Builder::new();
        object.append(c"renameCollection", from.namespace.as_str()).append(c"to", to.as_str());
        object.append(c"stayTemp", false);
        let uuid = dropped.map(|dropped| Bson::Binary { subtype: 4, bytes: &dropped.uuid });
        object.append_optional(c"dropTarget", uuid);
        let before = dropped.map(|dropped| {
            let mut before = Builder::new();
            before.append(c"numRecords", dropped.records());
            before.finish()
        });
        LoggedCommand::new(from, object.finish(), before)
    }

    /// Returns the entry of an index build's end. As in MongoDB, one entry has all its indexes. The entry of a single
    /// index stays a `createIndexes`, which `applyOps` accepts.
    pub(crate) fn commit_build(
        collection: &Collection,
        built: &[Arc<Building>],
        id: [u8; 16],
    ) -> LoggedCommand {
        if let [built] = built {
            return LoggedCommand::create_index(collection, &built.index.spec);
        }
        let mut object = Builder::new();
        object.append(c"commitIndexBuild", collection.namespace.collection());
        object.append(c"indexBuildUUID", Bson::Binary { subtype: 4, bytes: &id });
        object.begin_array(c"indexes");
        for built in built {
            object.push(&built.index.spec.to_document());
        }
        object.end();
        LoggedCommand::new(collection, object.finish(), None)
    }

    /// Returns the entry of a new index.
    pub(crate) fn create_index(collection: &Collection, spec: &IndexSpec) -> LoggedCommand {
        let mut object = Builder::new();
        object.append(c"createIndexes", collection.namespace.collection());
        spec.append_to(&mut object);
        LoggedCommand::new(collection, object.finish(), None)
    }

    /// Returns the entry of a dropped index.
    pub(crate) fn drop_index(collection: &Collection, spec: &IndexSpec) -> LoggedCommand {
        let mut object = Builder::new();
        object.append(c"dropIndexes", collection.namespace.collection()).append(c"index", &*spec.name);
        LoggedCommand::new(collection, object.finish(), Some(spec.to_document()))
    }

    /// Returns the entry of a conversion to a capped collection.
    pub(crate) fn convert_to_capped(before: &Collection, size: i64) -> LoggedCommand {
        let mut object = Builder::new();
        object.append(c"convertToCapped", before.namespace.collection()).append(c"size", size);
        LoggedCommand::new(before, object.finish(), Some(old_options(before).finish()))
    }

    /// Returns the entry of a collMod: its request, the options of the collection before it, and the changed options of
    /// an index before it. The entry of a view has the whole definition of the view instead.
    pub(crate) fn modify(
        before: &Collection,
        after: &Collection,
        request: Document<'_>,
        index: Option<Document<'_>>,
    ) -> LoggedCommand {
        let mut object = Builder::new();
        object.append(c"collMod", after.namespace.collection());
        if after.is_view() {
            object.append_all(after.options_document().view());
            return LoggedCommand::new(after, object.finish(), None);
        }
        object.append_all(request);
        let mut old = old_options(before);
        old.append_optional(c"indexOptions_old", index);
        LoggedCommand::new(after, object.finish(), Some(old.finish()))
    }

    fn record(&self, recorder: &mut Recorder<Value>) {
        let namespace = format!("{}.$cmd", self.database);
        let source = Source { namespace: &namespace, uuid: self.uuid };
        let before = self.before.as_ref().map(DocumentBuf::view);
        recorder.push(source, None, change::Change::Command(self.object.view(), before), None);
    }
}

/// Returns the open document of the state before a change, with the options of the collection.
fn old_options(before: &Collection) -> Builder {
    let mut old = Builder::new();
    old.begin_document(c"collectionOptions_old");
    old.append(c"uuid", Bson::Binary { subtype: 4, bytes: &before.uuid });
    old.append_all(before.options_document().view()).end();
    old
}

/// Adds the log entry of document changes to a commit.
pub(crate) fn put_changes(
    change: &mut Change,
    moment: EntryTime,
    mut logged: Vec<Logged>,
    retry: Option<RetryKey>,
) {
    logged.retain(|logged| !is_unlogged(&logged.namespace));
    if logged.is_empty() {
        return;
    }
    let session = retry.map(|retry| session(&retry));
    let mut recorder = Recorder::new(moment, session.as_ref(), false);
    logged.into_iter().for_each(|logged| logged.record(&mut recorder));
    put(change, recorder);
}

/// Adds the log entry of a transaction to a commit. Collections created by it are first.
pub(crate) fn put_transaction(
    change: &mut Change,
    moment: EntryTime,
    created: &[Arc<Collection>],
    logged: Vec<Logged>,
    retry: Option<RetryKey>,
) {
    if logged.is_empty() && created.is_empty() {
        return;
    }
    let session = retry.map(|retry| session(&retry));
    let mut recorder = Recorder::new(moment, session.as_ref(), true);
    for collection in created {
        LoggedCommand::create(collection).record(&mut recorder);
        let indexes = collection.data.iter().flat_map(|data| &data.indexes).filter(|index| !index.is_id());
        indexes.for_each(|index| {
            LoggedCommand::create_index(collection, &index.spec).record(&mut recorder);
        });
    }
    logged.into_iter().for_each(|logged| logged.record(&mut recorder));
    put(change, recorder);
}

/// Adds the log entry of a catalog change to a commit.
pub(crate) fn put_commands(change: &mut Change, moment: EntryTime, commands: &[LoggedCommand]) {
    let mut commands = commands.iter().filter(|command| command.database != UNLOGGED).peekable();
    if commands.peek().is_none() {
        return;
    }
    let mut recorder = Recorder::new(moment, None, false);
    commands.for_each(|command| command.record(&mut recorder));
    put(change, recorder);
}

/// Adds a log entry with a message about the replica set.
pub(crate) fn put_note(change: &mut Change, moment: EntryTime, message: &str) {
    let mut note = Builder::new();
    note.append(c"msg", message);
    let mut recorder = Recorder::new(moment, None, false);
    let source = Source { namespace: "", uuid: None };
    recorder.push(source, None, change::Change::Noop(note.finish().view()), None);
    put(change, recorder);
}

fn session(retry: &RetryKey) -> Session {
    Session { id: retry.session.uuid, user: *retry.session.user(), number: retry.number, previous: 0 }
}

fn put(change: &mut Change, recorder: Recorder<Value>) {
    debug_assert!(change.log.is_empty(), "the change has a log entry already");
    change.ticks = recorder.ticks();
    let (header, values) = recorder.finish();
    change.log = Vec::with_capacity(1 + values.len());
    change.log.push((0, Value::from(header)));
    change.log.extend(values.into_iter().zip(1..).map(|(value, part)| (part, value)));
}

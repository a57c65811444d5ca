//! Differences between a database and its snapshot or its fork's origin.
//!
//! A snapshot and a fork of a database share every tree. The differences are in the tree nodes that
//! are no longer shared, and the memory engine finds them without reading other nodes. Records are
//! matched by their ids, which forks keep. A document that was removed and inserted again has
//! another id; a lookup in the `_id` indexes detects it.

use crate::catalog::StateName;
use crate::catalog::collection::Collection;
use crate::catalog::history::View;
use crate::cursor::Cursor;
use crate::database::Database;
use crate::exec::lookup;
use crate::index::IndexSpec;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Builder, Document, DocumentBuf, Element};
use base::namespace::check_database_name;
use base::{Namespace, Result, bail};
use query::change::{between, describe, same_value};
use query::{Context, Interrupt, Row, Stage};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::CStr;
use std::sync::Arc;
use storage::{Differences, Value};

/// The state to compare a database with.
pub enum Since<'a> {
    /// A snapshot of the database.
    Snapshot(&'a StateName),
    /// Another database, such as the origin of its fork.
    Database(&'a str),
}

impl Database {
    /// Returns the changes from an earlier state of a database to its present state, as documents
    /// similar to change events. Collections are sorted by name. Changes of a collection and its
    /// indexes (created, changed, dropped) are followed by inserted, updated and deleted documents.
    ///
    /// Errors: NamespaceNotFound for a missing snapshot or database; InvalidNamespace.
    pub fn diff_database(
        &self,
        operation: &Arc<Operation>,
        name: &str,
        since: &Since<'_>,
        context: &Arc<Context>,
    ) -> Result<Cursor> {
        check_database_name(name)?;
        let view = self.confirmed_view();
        let before: Vec<Arc<Collection>> = match since {
            Since::Snapshot(state) => {
                view.catalog.saved(state).ok_or_else(|| state.not_found())?.collections.clone()
            }
            Since::Database(origin) => {
                check_database_name(origin)?;
                let collections: Vec<_> = view.catalog.collections(origin).cloned().collect();
                if collections.is_empty() {
                    bail!(NamespaceNotFound, "database '{origin}' does not exist");
                }
                collections
            }
        };
        let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
        for collection in before.into_iter().filter(|collection| !collection.is_temporary()) {
            let pair = pairs.entry(collection.namespace.collection().to_owned()).or_default();
            pair.before = Some(collection);
        }
        for collection in view.catalog.collections(name).filter(|collection| !collection.is_temporary()) {
            let pair = pairs.entry(collection.namespace.collection().to_owned()).or_default();
            pair.after = Some(collection.clone());
        }
        let sides = pairs.values().flat_map(|pair| pair.before.iter().chain(&pair.after));
        if sides.into_iter().any(|collection| collection.is_large()) {
            operation.mark_long();
        }
        let changes = Changes {
            database: name.to_owned(),
            view,
            pairs: pairs.into_iter().collect(),
            present: None,
            ready: VecDeque::new(),
            operation: operation.clone(),
            context: context.clone(),
        };
        let namespace = Namespace::new(name, "$cmd.diffDatabase")?;
        let mut cursor = Cursor::new(namespace, Box::new(changes), operation.clone());
        cursor.looks_ahead = true;
        Ok(cursor)
    }
}

/// The earlier and the present state of a collection.
#[derive(Default)]
struct Pair {
    before: Option<Arc<Collection>>,
    after: Option<Arc<Collection>>,
}

/// Stream of changes.
struct Changes {
    database: String,
    view: View,
    /// Collections not yet compared, by name.
    pairs: VecDeque<(String, Pair)>,
    /// The collection whose documents are being compared.
    present: Option<(String, Pair, Box<dyn Differences>)>,
    /// Changes found and not yet returned.
    ready: VecDeque<DocumentBuf>,
    operation: Arc<Operation>,
    context: Arc<Context>,
}

impl Stage for Changes {
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(Some(change.into()));
            }
            if self.present.is_some() {
                self.compare_documents()?;
            } else if let Some((name, pair)) = self.pairs.pop_front() {
                self.begin(name, pair)?;
            } else {
                return Ok(None);
            }
        }
    }
}

impl Changes {
    /// Compares a collection's options and indexes, and begins with its documents.
    fn begin(&mut self, name: String, pair: Pair) -> Result<()> {
        let events = {
            let event = |kind: &str| self.event(kind, &name);
            match (&pair.before, &pair.after) {
                (None, Some(after)) => {
                    vec![with_document(event("create"), c"operationDescription", &after.options_document())]
                }
                (Some(_), None) => vec![event("drop").finish()],
                (Some(before), Some(after)) => changes_of_collection(before, after, &event),
                (None, None) => Vec::new(),
            }
        };
        self.ready.extend(events);
        // One change stands for all documents of a dropped collection.
        let Some(after) = pair.after.as_ref().and_then(|after| after.data.as_ref()) else { return Ok(()) };
        let before = pair.before.as_ref().and_then(|before| before.data.as_ref()).map(|data| data.ident);
        let differences = self.view.snapshot.differences(before, Some(after.ident)).map_err(storage_error)?;
        self.present = Some((name, pair, differences));
        Ok(())
    }

    /// Finds the next documents that differ.
    fn compare_documents(&mut self) -> Result<()> {
        self.operation.check()?;
        let Some((name, pair, mut differences)) = self.present.take() else { return Ok(()) };
        let mut interrupted = Ok(());
        let found = differences.next(&mut || {
            interrupted = self.operation.check();
            interrupted.is_ok()
        });
        interrupted?;
        let Some(difference) = found.map_err(storage_error)? else { return Ok(()) };
        let (before, after) = (difference.before.as_ref(), difference.after.as_ref());
        match (before.map(document), after.map(document)) {
            (Some(before), Some(after)) if have_same_id(before, after) => {
                self.changed(&name, before, after)?;
            }
            (before, after) => {
                if let Some(before) = before {
                    self.removed(&name, &pair, before)?;
                }
                if let Some(after) = after {
                    self.added(&name, &pair, after)?;
                }
            }
        }
        self.present = Some((name, pair, differences));
        Ok(())
    }

    /// Handles a new or replaced document under a record id: an insert, unless the document had
    /// another record id before.
    fn added(&mut self, name: &str, pair: &Pair, after: Document<'_>) -> Result<()> {
        match self.same_in(pair.before.as_ref(), after)? {
            Some(before) if before[..] == *after.bytes() => {}
            Some(before) => self.changed(name, document(&before), after)?,
            None => {
                let mut event = self.event("insert", name);
                key(&mut event, after);
                self.ready.push_back(with_document(event, c"fullDocument", &after.to_owned()));
            }
        }
        Ok(())
    }

    /// Handles a document removed from a record id: a delete, unless the document has another
    /// record id now.
    fn removed(&mut self, name: &str, pair: &Pair, before: Document<'_>) -> Result<()> {
        if self.same_in(pair.after.as_ref(), before)?.is_none() {
            let mut event = self.event("delete", name);
            key(&mut event, before);
            self.ready.push_back(event.finish());
        }
        Ok(())
    }

    fn changed(&mut self, name: &str, before: Document<'_>, after: Document<'_>) -> Result<()> {
        let mut event = self.event("update", name);
        key(&mut event, after);
        event.begin_document(c"updateDescription");
        let reported = match between(before, after) {
            Some(diff) => describe(diff.view(), false, &mut event).map(|()| true)?,
            None => describe_fields(before, after, &mut event),
        };
        event.end();
        if !reported {
            event = self.event("replace", name);
            key(&mut event, after);
            event.append(c"fullDocument", after);
        }
        self.ready.push_back(event.finish());
        Ok(())
    }

    /// Returns the document with the same `_id` in another state of the collection.
    fn same_in(&self, collection: Option<&Arc<Collection>>, of: Document<'_>) -> Result<Option<Value>> {
        let Some(data) = collection.and_then(|collection| collection.data.as_ref()) else { return Ok(None) };
        let Some(index) = data.id_index() else { return Ok(None) };
        let keys = index.spec.keys_of(of, &self.context)?;
        let Some(key) = keys.keys.first() else { return Ok(None) };
        let (snapshot, context) = (self.view.snapshot.as_ref(), &self.context);
        let (_, _, found) =
            lookup(&self.operation, snapshot, index.ident, data.ident, &key.key_string, None, context)?;
        Ok(found.map(|record| Value::from(record.document.view().bytes())))
    }

    /// Starts a change document.
    fn event(&self, kind: &str, collection: &str) -> Builder {
        let mut event = Builder::new();
        event.append(c"operationType", kind);
        event.begin_document(c"ns").append(c"db", self.database.as_str()).append(c"coll", collection).end();
        event
    }
}

fn document(value: &Value) -> Document<'_> {
    Document::from_valid(value)
}

fn have_same_id(before: Document<'_>, after: Document<'_>) -> bool {
    match (before.find("_id"), after.find("_id")) {
        (Some(before), Some(after)) => same_value(&before, &after),
        (before, after) => before.is_none() && after.is_none(),
    }
}

/// Appends the document key.
fn key(event: &mut Builder, of: Document<'_>) {
    event.begin_document(c"documentKey");
    if let Some(id) = of.find("_id") {
        event.append_element(&id);
    }
    event.end();
}

/// Appends the fields of `updateDescription` with whole top-level fields. Used for small documents,
/// and for documents with few common fields, which a diff would not shorten. Returns `false` if
/// only the order of fields differs.
fn describe_fields(before: Document<'_>, after: Document<'_>, event: &mut Builder) -> bool {
    let was: HashMap<&[u8], Element<'_>> = before.iter().map(|field| (field.name_bytes(), field)).collect();
    let is: HashSet<&[u8]> = after.iter().map(|field| field.name_bytes()).collect();
    let mut differ = false;
    event.begin_document(c"updatedFields");
    for element in after {
        if was.get(element.name_bytes()).is_none_or(|old| !same_value(old, &element)) {
            event.append_element(&element);
            differ = true;
        }
    }
    event.end().begin_array(c"removedFields");
    for element in before.iter().filter(|element| !is.contains(element.name_bytes())) {
        event.push(element.name());
        differ = true;
    }
    event.end().begin_array(c"truncatedArrays").end();
    differ
}

/// Ends a change document with a whole document.
fn with_document(mut event: Builder, name: &'static CStr, document: &DocumentBuf) -> DocumentBuf {
    event.append(name, document);
    event.finish()
}

/// Returns the changes of options and indexes.
fn changes_of_collection(
    before: &Collection,
    after: &Collection,
    event: &dyn Fn(&str) -> Builder,
) -> Vec<DocumentBuf> {
    let mut events = Vec::new();
    let (was, is) = (before.options_document(), after.options_document());
    if was != is || before.is_view() != after.is_view() {
        let mut modified = event("modify");
        modified.append(c"operationDescription", &is);
        modified.begin_document(c"stateBeforeChange").append(c"collectionOptions", &was).end();
        events.push(modified.finish());
    }
    let dropped = missing(before, after);
    if !dropped.is_empty() {
        events.push(of_indexes(event("dropIndexes"), &dropped));
    }
    let new = missing(after, before);
    if !new.is_empty() {
        events.push(of_indexes(event("createIndexes"), &new));
    }
    events
}

/// Returns the indexes of a collection without an equal index in another collection.
fn missing(of: &Collection, among: &Collection) -> Vec<DocumentBuf> {
    let specs = |collection: &Collection| -> Vec<DocumentBuf> {
        let indexes = collection.data.iter().flat_map(|data| &data.indexes);
        indexes.map(|index| IndexSpec::to_document(&index.spec)).collect()
    };
    let others = specs(among);
    specs(of).into_iter().filter(|spec| !others.contains(spec)).collect()
}

fn of_indexes(mut event: Builder, specs: &[DocumentBuf]) -> DocumentBuf {
    event.begin_document(c"operationDescription").begin_array(c"indexes");
    specs.iter().for_each(|spec| _ = event.push(spec.view()));
    event.end().end();
    event.finish()
}

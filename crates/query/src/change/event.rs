//! Events of change streams, built from the operations of an oplog entry.
//!
//! A [`PendingEvent`] has what filters and tokens need. [`PendingEvent::event`] builds the document, which may look up
//! the current document. A new kind of event from a command is a case in [`command`]; a new field of events belongs to
//! [`PendingEvent::event`], in MongoDB's order of fields.

use super::description::describe;
use super::diff::apply_diff;
use super::entry::{Action, Entry, Operation};
use super::oplog::append_session_id;
use super::spec::{BeforeChange, FullDocument, Spec};
use super::token::{EventToken, ResumeToken};
use base::bson::{Builder, Document, DocumentBuf, DocumentCow, Value};
use base::{Result, err};
use std::ffi::CStr;

const UUID_SUBTYPE: u8 = 4;

/// Inputs of events other than the entry.
pub struct EventContext<'s> {
    /// Returns the current document of a collection by namespace, UUID and document key, for `updateLookup`.
    #[allow(clippy::type_complexity)]
    pub lookup: &'s dyn Fn(&str, &[u8; 16], Document<'_>) -> Result<Option<DocumentCow>>,
    /// Wall clock before which pre-images have expired, in milliseconds since 1970.
    pub pre_images_since: i64,
}

/// A change event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its position in the stream.
    pub token: ResumeToken,
    /// The event's document.
    pub document: DocumentBuf,
}

/// The operation that an event reports, with its entry and the event's position.
#[derive(Clone, Copy)]
pub(super) struct EventSource<'e> {
    pub(super) entry: &'e Entry<'e>,
    pub(super) operation: &'e Operation<'e>,
    /// The cluster time of the event.
    pub(super) time: u64,
    /// The position of the operation within an oplog document of several.
    pub(super) index: usize,
}

/// A change event before its document is built.
pub(super) struct PendingEvent<'e> {
    source: EventSource<'e>,
    pub(super) kind: &'static str,
    database: &'e str,
    collection: &'e str,
    /// The new namespace of a renamed collection.
    to: Option<(&'e str, &'e str)>,
    /// The document key.
    key: Option<DocumentBuf>,
    description: Option<DocumentBuf>,
    before: Option<DocumentBuf>,
    pub(super) token: ResumeToken,
}

/// Splits a namespace into database and collection.
fn split(namespace: &str) -> (&str, &str) {
    namespace.split_once('.').unwrap_or((namespace, ""))
}

/// Copies a document without some of its fields.
fn without(document: Document<'_>, names: &[&str]) -> Builder {
    let mut out = Builder::new();
    for element in document.iter().filter(|element| !names.contains(&element.name())) {
        out.append_element(&element);
    }
    out
}

fn key_of(document: Document<'_>) -> Option<DocumentBuf> {
    let id = document.find("_id")?;
    let mut out = Builder::new();
    out.append_element(&id);
    Some(out.finish())
}

/// The event of an oplog command: its kind, collection and description.
struct CommandEvent<'e> {
    kind: &'static str,
    collection: &'e str,
    to: Option<(&'e str, &'e str)>,
    description: Option<DocumentBuf>,
    before: Option<DocumentBuf>,
}

impl<'e> CommandEvent<'e> {
    fn new(kind: &'static str, collection: &'e str) -> CommandEvent<'e> {
        CommandEvent { kind, collection, to: None, description: None, before: None }
    }

    fn described(self, description: Builder) -> CommandEvent<'e> {
        CommandEvent { description: Some(description.finish()), ..self }
    }
}

fn indexes(specification: Document<'_>, command: &str) -> Builder {
    let mut out = Builder::new();
    out.begin_array(c"indexes").push(&without(specification, &[command]).finish()).end();
    out
}

/// Returns the event of an oplog command; `None` for commands without an event. Index builds appear as `createIndexes`
/// when they commit.
fn command<'e>(object: Document<'e>, before: Option<Document<'e>>) -> Option<CommandEvent<'e>> {
    let first = object.first()?;
    let name = first.value().as_str().unwrap_or("");
    Some(match first.name() {
        "create" => CommandEvent::new("create", name).described(without(object, &["create"])),
        "drop" => CommandEvent::new("drop", name),
        "dropDatabase" => CommandEvent::new("dropDatabase", ""),
        "renameCollection" => {
            let to = split(object.get("to").and_then(|to| to.as_str()).unwrap_or(""));
            let mut out = Builder::new();
            for element in object {
                match element.name() {
                    "renameCollection" | "stayTemp" => {}
                    "to" => append_namespace(c"to", to.0, to.1, &mut out),
                    _ => drop(out.append_element(&element)),
                }
            }
            CommandEvent { to: Some(to), ..CommandEvent::new("rename", split(name).1) }.described(out)
        }
        "createIndexes" => {
            CommandEvent::new("createIndexes", name).described(indexes(object, "createIndexes"))
        }
        "commitIndexBuild" => {
            let mut out = Builder::new();
            out.append_optional(c"indexes", object.get("indexes"));
            CommandEvent::new("createIndexes", name).described(out)
        }
        "dropIndexes" => {
            let specification = before.unwrap_or(Document::EMPTY);
            CommandEvent::new("dropIndexes", name).described(indexes(specification, "dropIndexes"))
        }
        "collMod" => {
            // The entry of a view has no state before.
            let state = before.map(|before| {
                let mut state = Builder::new();
                state.append_optional(c"collectionOptions", before.get("collectionOptions_old"));
                state.append_optional(c"indexOptions", before.get("indexOptions_old"));
                state.finish()
            });
            let command_event = CommandEvent::new("modify", name).described(without(object, &["collMod"]));
            CommandEvent { before: state, ..command_event }
        }
        _ => return None,
    })
}

impl<'e> PendingEvent<'e> {
    /// Returns the event of an operation; `None` for operations without events.
    pub(super) fn of(source: EventSource<'e>) -> Option<PendingEvent<'e>> {
        let operation = source.operation;
        let (database, collection) = split(operation.namespace);
        let mut command_event = CommandEvent::new("", collection);
        let key = match operation.action {
            Action::Insert(document) | Action::Replace(document) => key_of(document),
            Action::Update { key, .. } | Action::Delete(key) => Some(key.to_owned()),
            Action::Command { object, before } => {
                command_event = command(object, before)?;
                None
            }
            Action::Noop(_) => return None,
        };
        command_event.kind = match operation.action {
            Action::Insert(_) => "insert",
            Action::Replace(_) => "replace",
            Action::Update { .. } => "update",
            Action::Delete(_) => "delete",
            _ => command_event.kind,
        };
        Some(PendingEvent::command_event(source, database, command_event, key))
    }

    /// Returns the event of a change of `system.views`, for streams on more than one collection.
    pub(super) fn of_view(source: EventSource<'e>) -> Option<PendingEvent<'e>> {
        let (kind, definition) = match source.operation.action {
            Action::Insert(definition) => ("create", Some(definition)),
            Action::Replace(definition) => ("modify", Some(definition)),
            Action::Delete(_) => ("drop", None),
            _ => return None,
        };
        let id = match source.operation.action {
            Action::Insert(document) | Action::Replace(document) | Action::Delete(document) => {
                document.get("_id").and_then(|id| id.as_str())?
            }
            _ => return None,
        };
        let (database, collection) = split(id);
        let mut command_event = CommandEvent::new(kind, collection);
        if let Some(definition) = definition {
            command_event = command_event.described(without(definition, &["_id"]));
        }
        Some(PendingEvent::command_event(source, database, command_event, None))
    }

    /// Builds an event with its token. The token identifies the event by kind, document key and description.
    fn command_event(
        source: EventSource<'e>,
        database: &'e str,
        command_event: CommandEvent<'e>,
        key: Option<DocumentBuf>,
    ) -> PendingEvent<'e> {
        let CommandEvent { kind, collection, to, description, before } = command_event;
        let mut identifier = Builder::new();
        identifier.append(c"operationType", kind);
        identifier.append_optional(c"documentKey", key.as_ref());
        identifier.append_optional(c"operationDescription", description.as_ref());
        let token = ResumeToken::of(EventToken {
            time: source.time,
            index: source.index,
            uuid: source.operation.uuid,
            identifier: identifier.finish().view(),
        });
        PendingEvent { source, kind, database, collection, to, key, description, before, token }
    }

    /// Builds the event's document, with its fields in MongoDB's order.
    ///
    /// Errors: NoMatchingDocument for a missing required image; errors of the lookup.
    pub(super) fn event(self, spec: &Spec, context: &EventContext<'_>) -> Result<Event> {
        let EventSource { entry, operation, time, .. } = self.source;
        let is_view = operation.namespace.ends_with(".system.views") && self.key.is_none();
        let mut out = Builder::new();
        if let Some((database, collection)) = self.to {
            append_namespace(c"to", database, collection, &mut out);
        }
        // MongoDB logs a new collection before its transaction.
        if let Some(session) = entry.session.filter(|_| entry.transaction && self.kind != "create") {
            out.append(c"txnNumber", session.number);
            append_session_id(&session, &mut out);
        }
        out.append(c"_id", &self.token.to_document()).append(c"operationType", self.kind);
        out.append(c"clusterTime", Value::Timestamp(time));
        if !is_view {
            let uuid = operation.uuid.map(|uuid| Value::Binary { subtype: UUID_SUBTYPE, bytes: uuid });
            out.append_optional(c"collectionUUID", uuid);
        }
        out.append(c"wallTime", Value::DateTime(entry.wall));
        let pre_image = operation.pre_image.filter(|_| entry.wall >= context.pre_images_since);
        self.append_full_document(spec, pre_image, context, &mut out)?;
        append_namespace(c"ns", self.database, self.collection, &mut out);
        out.append_optional(c"documentKey", self.key.as_ref());
        out.append_optional(c"operationDescription", self.description.as_ref());
        if let Action::Update { diff, .. } = operation.action {
            if spec.raw_updates {
                out.begin_document(c"rawUpdateDescription");
                out.append(c"$v", 2i32).append(c"diff", diff).end();
            } else {
                out.begin_document(c"updateDescription");
                describe(diff, true, &mut out)?;
                out.end();
            }
        }
        out.append_optional(c"stateBeforeChange", self.before.as_ref());
        if self.kind == "create" {
            let definition = self.description.as_ref().and_then(|options| options.view().get("viewOn"));
            out.append(c"nsType", if definition.is_some() { "view" } else { "collection" });
        }
        let changes =
            matches!(operation.action, Action::Replace(_) | Action::Update { .. } | Action::Delete(_));
        if changes && !is_view && spec.before_change != BeforeChange::Off {
            if pre_image.is_none() && spec.before_change == BeforeChange::Required {
                return Err(self.no_image("pre-image for all update, delete and replace events", "pre-image"));
            }
            append_or_null(c"fullDocumentBeforeChange", pre_image.map(Value::Document), &mut out);
        }
        Ok(Event { token: self.token, document: out.finish() })
    }

    /// Appends `fullDocument`. Inserts and replacements always have it; for updates the stream's option decides.
    ///
    /// Errors: NoMatchingDocument for a missing required post-image; errors of the lookup.
    fn append_full_document(
        &self,
        spec: &Spec,
        pre_image: Option<Document<'_>>,
        context: &EventContext<'_>,
        out: &mut Builder,
    ) -> Result<()> {
        let operation = self.source.operation;
        match (operation.action, spec.full_document) {
            (Action::Insert(document) | Action::Replace(document), _) if self.key.is_some() => {
                out.append(c"fullDocument", document);
            }
            (Action::Update { key, .. }, FullDocument::UpdateLookup) => {
                let current = match operation.uuid {
                    Some(uuid) => (context.lookup)(operation.namespace, uuid, key)?,
                    None => None,
                };
                append_or_null(c"fullDocument", current.as_ref().map(|current| current.view().into()), out);
            }
            (Action::Update { diff, .. }, FullDocument::WhenAvailable | FullDocument::Required) => {
                let post_image = pre_image.map(|before| apply_diff(before, diff)).transpose()?;
                if post_image.is_none() && spec.full_document == FullDocument::Required {
                    return Err(self.no_image("post-image for all update events", "post-image"));
                }
                append_or_null(c"fullDocument", post_image.as_ref().map(Value::from), out);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the error for a missing required image.
    fn no_image(&self, required: &str, image: &str) -> base::Error {
        let session = self.source.entry.session.filter(|_| self.source.entry.transaction);
        let transaction = session.map_or(String::new(), |session| format!(", txnNumber: {}", session.number));
        err!(
            NoMatchingDocument,
            "Change stream was configured to require a {required}, but the {image} was not found for event: \
             {{operationType: \"{}\", ns: {{db: \"{}\", coll: \"{}\"}}, clusterTime: {}{transaction}}}",
            self.kind,
            self.database,
            self.collection,
            Value::Timestamp(self.source.time)
        )
    }
}

/// Returns the invalidation that follows an event.
pub(super) fn invalidation(event: &ResumeToken, source: EventSource<'_>) -> Event {
    let token = event.invalidation();
    let mut out = Builder::new();
    out.append(c"_id", &token.to_document()).append(c"operationType", "invalidate");
    out.append(c"clusterTime", Value::Timestamp(source.time));
    out.append(c"wallTime", Value::DateTime(source.entry.wall));
    Event { token, document: out.finish() }
}

fn append_namespace(name: &'static CStr, database: &str, collection: &str, out: &mut Builder) {
    out.begin_document(name).append(c"db", database);
    if !collection.is_empty() {
        out.append(c"coll", collection);
    }
    out.end();
}

fn append_or_null(name: &'static CStr, value: Option<Value<'_>>, out: &mut Builder) {
    out.append(name, value.unwrap_or(Value::Null));
}

//! Profiler and log entries of an operation: MongoDB's fields, if Vellum has a value for them.
//!
//! An entry is built once and written to `system.profile`, to the log, or to both. A new field of all entries belongs
//! to [`Finished::finish`].

use crate::access::Command;
use crate::auth::redact::{self, is_secret};
use crate::observe::activity::recorded_name;
use crate::observe::profiler::{Entry, Filter, Note, Notes, Setting};
use crate::process::logging::now_millis;
use crate::server::Server;
use crate::state::connection::ConnectionState;
use base::bson::extended_json::to_relaxed;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Error, ErrorCode};
use database::Operation;
use database::language::Context;
use log::kv::ToValue;
use log::{Level, Record};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use wire::request::Request;

/// A finished operation.
pub(crate) struct Finished<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) command: &'static Command,
    /// Collection of the command, or `$cmd`.
    pub(crate) collection: &'a str,
    pub(crate) state: &'a ConnectionState,
    /// Reply or error.
    pub(crate) outcome: Result<Document<'a>, &'a Error>,
    /// Results of single statements, if recorded.
    pub(crate) notes: Option<Notes>,
    /// Size of the reply in bytes.
    pub(crate) reply_length: usize,
    pub(crate) took: Duration,
}

/// Writes the entry of a finished operation to `system.profile` or the log. `setting` is the
/// database's setting at the start of the operation.
pub(crate) fn report(server: &Server, setting: Option<&Setting>, finished: &Finished<'_>) {
    let slow = |took: Duration| server.profiler.slow.logs(took, || server.random());
    let Some(setting) = setting else {
        // The operation is slow, otherwise the function has returned. The log may receive only a
        // sample.
        let entries = finished.entries();
        entries.iter().for_each(|entry| server.profiler.shapes.add(finished.command.name, entry));
        if slow(finished.took) {
            finished.log(&entries);
        }
        return;
    };
    let (mut logged, mut profiled) = (Vec::new(), Vec::new());
    for entry in finished.entries() {
        if server.profiler.slow.is_slow(entry.took) {
            server.profiler.shapes.add(finished.command.name, &entry);
        }
        let chosen = match &setting.filter {
            Some(filter) => chooses(filter, entry.document.view(), server),
            None => slow(entry.took),
        };
        let is_profiled = setting.level == 2 || (setting.level == 1 && chosen);
        // The command that reads and changes the settings has no entry.
        if is_profiled && finished.command.name != "profile" {
            profiled.push(entry.document.clone());
        }
        if chosen {
            logged.push(entry);
        }
    }
    finished.log(&logged);
    for document in profiled {
        add_to_profile(server, finished.request.database, document.view());
    }
}

fn chooses(filter: &Filter, entry: Document<'_>, server: &Server) -> bool {
    // A filter that fails on an entry does not select it.
    filter.matcher.matches(entry, &context(server)).unwrap_or(false)
}

/// Returns the evaluation context of filters and entries.
pub(crate) fn context(server: &Server) -> Context {
    Context::new(now_millis(), server.random(), Arc::new(Operation::new(0)))
}

/// Adds an entry to `system.profile`. Creates the collection if the level was set for all
/// databases. A collection of that name that is not capped gets no entries.
fn add_to_profile(server: &Server, database: &str, entry: Document<'_>) {
    let context = context(server);
    let created = match server.profiler.default {
        Some(_) => server.database.create_profile(&Operation::new(0), database, &context),
        None => Ok(()),
    };
    if let Err(error) = created.and_then(|()| server.database.profile(database, entry, context))
        && error.code() != ErrorCode::NamespaceExists
    {
        log::warn!("an operation on {database} could not be profiled: {error}");
    }
}

/// Returns the kind of an operation.
fn kind(command: &str) -> &'static str {
    match command {
        "find" => "query",
        "getMore" => "getmore",
        "insert" => "insert",
        "update" => "update",
        "delete" => "remove",
        _ => "command",
    }
}

impl Finished<'_> {
    /// Returns one entry, or one for each statement of an update or delete.
    fn entries(&self) -> Vec<Entry> {
        match self.statements() {
            [] => vec![self.of_command()],
            statements => statements.iter().map(|note| self.of_statement(note)).collect(),
        }
    }

    /// Returns the statements of an update or delete.
    fn statements(&self) -> &[Note] {
        self.notes.as_ref().map_or(&[], |notes| &notes.list)
    }

    fn of_command(&self) -> Entry {
        let mut out = Builder::new();
        out.append(c"op", kind(self.command.name)).append(c"ns", &self.namespace());
        self.append_command(&mut out, || self.with_first_statement());
        let operation = self.state.activity.operation();
        if self.command.continues_cursor && !self.has_secrets() {
            let command = operation.as_ref().and_then(|used| used.operation.originating_command());
            out.append_optional(c"originatingCommand", command.map(|command| command.view()));
        }
        let (keys, documents) = operation.as_ref().map_or((0, 0), |used| used.examined());
        let sorted = operation.as_ref().is_some_and(|used| used.operation.sorts());
        // The reply that exhausts a cursor has no id, and its getMore has one.
        let read = self.request.body.get("getMore").filter(|_| self.command.continues_cursor);
        let read = read.and_then(|id| id.as_i64());
        out.append_optional(c"cursorid", read);
        if let Ok(reply) = self.outcome {
            let cursor = reply.get("cursor").and_then(|cursor| cursor.as_document());
            let id = cursor.and_then(|cursor| cursor.get("id")).and_then(|id| id.as_i64());
            out.append_optional(c"cursorid", id.filter(|id| *id != 0 && read.is_none()));
            append_work(&mut out, (keys, documents), sorted);
            if id == Some(0) {
                out.append(c"cursorExhausted", true);
            }
            self.append_counts(&mut out, reply, cursor);
        } else {
            append_work(&mut out, (keys, documents), sorted);
        }
        let plan = operation.and_then(|used| used.operation.plan_summary());
        self.finish(out, plan.as_deref(), self.took)
    }

    /// Returns the command without secrets, with the first statement of an update or delete. Drivers send
    /// the statements beside the command.
    fn with_first_statement(&self) -> DocumentBuf {
        let command = redact::without(self.command, self.request.body);
        let (name, list) = match self.command.name {
            "update" => ("updates", c"updates"),
            "delete" => ("deletes", c"deletes"),
            _ => return command,
        };
        let beside = self.request.sequences.iter().find(|sequence| sequence.name == name);
        let Some(first) = beside.and_then(|sequence| sequence.documents.iter().next()) else {
            return command;
        };
        let mut out = Builder::new();
        out.append_all(command.view()).begin_array(list).push(first).end();
        out.finish()
    }

    fn of_statement(&self, note: &Note) -> Entry {
        let mut out = Builder::new();
        out.append(c"op", kind(self.command.name)).append(c"ns", &self.namespace());
        self.append_command(&mut out, || note.statement.clone());
        append_work(&mut out, note.examined, note.sorted);
        out.append_all(note.counts.view());
        self.finish(out, note.plan.as_deref(), note.took)
    }

    fn append_counts(&self, out: &mut Builder, reply: Document<'_>, cursor: Option<Document<'_>>) {
        let n = reply.get("n").and_then(|n| n.as_i64());
        match self.command.name {
            "insert" => _ = out.append_number(c"ninserted", n.unwrap_or(0)),
            "update" => {
                let modified = reply.get("nModified").and_then(|n| n.as_i64()).unwrap_or(0);
                out.append_number(c"nMatched", n.unwrap_or(0)).append_number(c"nModified", modified);
            }
            "delete" => _ = out.append_number(c"ndeleted", n.unwrap_or(0)),
            "findAndModify" => {
                let last = reply.get("lastErrorObject").and_then(|last| last.as_document());
                let n = last.and_then(|last| last.get("n")).and_then(|n| n.as_i64()).unwrap_or(0);
                match last.and_then(|last| last.get("updatedExisting")) {
                    None => _ = out.append_number(c"ndeleted", n),
                    Some(existing) => {
                        let matched = if existing.as_bool() == Some(true) { n } else { 0 };
                        out.append_number(c"nMatched", matched).append_number(c"nModified", matched);
                        if last.is_some_and(|last| last.find("upserted").is_some()) {
                            out.append_number(c"nUpserted", 1);
                        }
                    }
                }
            }
            _ => {}
        }
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch").or_else(|| cursor.get("nextBatch")));
        if let Some(batch) = batch.and_then(|batch| batch.as_array()) {
            out.append_number(c"nreturned", batch.iter().count() as i64);
        }
    }

    fn finish(&self, mut out: Builder, plan: Option<&str>, took: Duration) -> Entry {
        out.append(c"numYield", 0).append_number(c"responseLength", self.reply_length as i64);
        out.append(c"protocol", "op_msg").append_number(c"millis", took.as_millis() as i64);
        out.append_optional(c"planSummary", plan);
        if let Err(error) = self.outcome {
            out.append(c"ok", 0.0).append(c"errMsg", error.message());
            out.append(c"errName", &*error.code().name()).append(c"errCode", error.code().number());
        }
        out.append(c"ts", Value::DateTime(now_millis()));
        out.append(c"client", &self.state.activity.client.ip().to_string());
        let name = self.state.activity.app_name();
        out.append_optional(c"appName", (!name.is_empty()).then_some(name));
        out.begin_array(c"allUsers");
        if let Some(identity) = &self.state.identity {
            out.push_document().append(c"user", identity.user.name.as_str());
            out.append(c"db", identity.user.db.as_str()).end();
        }
        out.end();
        let user = self.state.identity.as_ref().map(|identity| identity.user.to_string());
        out.append(c"user", &user.unwrap_or_default());
        Entry { document: out.finish(), took }
    }

    fn namespace(&self) -> String {
        format!("{}.{}", self.request.database, recorded_name(self.collection))
    }

    /// Writes a log line for each entry, with the fields of mongod's "Slow query".
    fn log(&self, entries: &[Entry]) {
        if !log::log_enabled!(Level::Info) {
            return;
        }
        let remote = self.state.activity.client.to_string();
        for Entry { document, took } in entries {
            let entry = document.view();
            let kind = if self.statements().is_empty() { "command" } else { kind(self.command.name) };
            let mut attributes: Vec<(&str, Attribute<'_>)> = vec![
                ("id", Attribute::Number(51803)),
                ("c", Attribute::Text("COMMAND".into())),
                ("type", Attribute::Text(kind.into())),
            ];
            let shown =
                entry.iter().filter_map(|field| Some((logged_name(field.name())?, field.value().into())));
            attributes.extend(shown);
            attributes.push(("remote", Attribute::Text(remote.as_str().into())));
            attributes.push(("durationMillis", Attribute::Number(took.as_millis() as i64)));
            let (mut record, attributes) = (Record::builder(), attributes.as_slice());
            record.level(Level::Info).target(module_path!()).key_values(&attributes);
            log::logger().log(&record.args(format_args!("Slow query")).build());
        }
    }

    /// Appends the command, or its truncated text. Omits commands on collections with secrets.
    fn append_command(&self, out: &mut Builder, command: impl FnOnce() -> DocumentBuf) {
        let command = match self.has_secrets() {
            true => DocumentBuf::default(),
            false => redact::truncated(command(), redact::COMMAND_MAX),
        };
        out.append(c"command", &command);
    }

    fn has_secrets(&self) -> bool {
        is_secret(self.request.database, self.collection)
    }
}

/// Appends the numbers of examined keys and documents, and if the operation sorted.
fn append_work(out: &mut Builder, (keys, documents): (i64, i64), sorted: bool) {
    out.append_number(c"keysExamined", keys).append_number(c"docsExamined", documents);
    if sorted {
        out.append(c"hasSortStage", true);
    }
}

/// Returns the name in the log of a field of `system.profile`; `None` for a field that the log has elsewhere or lacks.
fn logged_name(field: &str) -> Option<&str> {
    match field {
        "op" | "millis" | "ts" | "client" | "allUsers" | "user" => None,
        "numYield" => Some("numYields"),
        "responseLength" => Some("reslen"),
        field => Some(field),
    }
}

/// A value of a log line.
enum Attribute<'a> {
    Number(i64),
    Flag(bool),
    Text(Cow<'a, str>),
}

impl<'a> From<Value<'a>> for Attribute<'a> {
    /// Documents become JSON.
    fn from(value: Value<'a>) -> Attribute<'a> {
        match value {
            Value::Boolean(flag) => Attribute::Flag(flag),
            Value::String(text) => Attribute::Text(text.into()),
            Value::Document(document) => Attribute::Text(to_relaxed(document).into()),
            other => match other.as_i64() {
                Some(number) => Attribute::Number(number),
                None => Attribute::Text(other.to_string().into()),
            },
        }
    }
}

impl ToValue for Attribute<'_> {
    fn to_value(&self) -> log::kv::Value<'_> {
        match self {
            Attribute::Number(number) => (*number).into(),
            Attribute::Flag(flag) => (*flag).into(),
            Attribute::Text(text) => (&**text).into(),
        }
    }
}

//! A recording as a script: connections with their requests in order, each with its recorded reply.

use super::order::{may_write, overlapping};
use super::tally::shape_of;
use crate::format::{Event, EventKind, ReadError, Reader};
use crate::message::{EXHAUST_ALLOWED, MORE_TO_COME, Sections};
use crate::redact::walk;
use base::bson::{DocumentBuf, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read;

/// A recording.
#[derive(Default)]
pub struct Script {
    /// Metadata of the recording.
    pub header: Header,
    /// All requests with their replies.
    pub exchanges: Vec<Exchange>,
    /// The connections in the order of their opening.
    pub connections: Vec<Connection>,
    /// Databases that requests name, without system databases.
    pub databases: BTreeSet<String>,
    /// Commands that are not replayed, counted by reason.
    pub skipped: BTreeMap<(String, &'static str), u64>,
    /// Ids that the recorded server generated: they occurred in replies before they occurred in a request.
    pub server_generated: HashSet<Vec<u8>>,
    /// Defects of the file that do not prevent a replay.
    pub warnings: Vec<String>,
    /// Length of the recording in microseconds.
    pub length: u64,
}

/// Metadata of a recording.
#[derive(Default)]
pub struct Header {
    pub started: String,
    pub server: String,
    pub upstream: String,
    pub redacted: Vec<String>,
}

/// One connection.
#[derive(Default)]
pub struct Connection {
    /// Its exchanges in order.
    pub exchanges: Vec<usize>,
    pub opened: u64,
    pub closed: u64,
}

/// A request and its reply.
pub struct Exchange {
    /// Time of the request.
    pub at: u64,
    /// Flags of its message.
    pub flags: u32,
    /// Sections of its message.
    pub sections: Vec<u8>,
    /// Name of the command.
    pub command: String,
    /// The command without its values.
    pub shape: String,
    /// The reply; `None` if the client requested none.
    pub reply: Option<Reply>,
    /// Exchanges that must finish first: of the same session, and the creator of the cursor.
    pub requires: Vec<usize>,
    /// True if an overlapping request of another connection may have changed the reply.
    pub overlaps: bool,
}

/// A reply.
pub struct Reply {
    /// Time of the reply.
    pub at: u64,
    /// Document of the reply.
    pub document: DocumentBuf,
}

impl Exchange {
    /// Returns the end time.
    pub fn ended(&self) -> u64 {
        self.reply.as_ref().map_or(self.at, |reply| reply.at)
    }
}

/// Commands that would end or change the server itself.
// tidy: sorted
const SKIPPED_COMMANDS: &[&str] = &[
    "replSetFreeze",
    "replSetInitiate",
    "replSetMaintenance",
    "replSetReconfig",
    "replSetStepDown",
    "replSetSyncFrom",
    "rotateCertificates",
    "shutdown",
];

/// Commands that change users, roles or settings of the server, and may be sent to any database.
// tidy: sorted
const ADMINISTRATIVE_COMMANDS: &[&str] = &[
    "createRole",
    "createUser",
    "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",
    "dropRole",
    "dropUser",
    "grantPrivilegesToRole",
    "grantRolesToRole",
    "grantRolesToUser",
    "profile",
    "revokePrivilegesFromRole",
    "revokeRolesFromRole",
    "revokeRolesFromUser",
    "updateRole",
    "updateUser",
];

/// Commands that applications send to `admin` and that change nothing there, in addition to reads.
// tidy: sorted
const HARMLESS_COMMANDS: &[&str] = &[
    "abortTransaction",
    "buildinfo",
    "commitTransaction",
    "connPoolStats",
    "features",
    "getClusterParameter",
    "getDefaultRWConcern",
    "getLastError",
    "killSessions",
    "listSessions",
    "lockInfo",
    "replSetGetConfig",
    "rolesInfo",
    "usersInfo",
    "whatsmyuri",
];

/// System databases.
const SYSTEM_DATABASES: &[&str] = &["admin", "config", "local"];

impl Script {
    /// Reads a recording to its end. `spares_system` skips requests that change users, settings or system databases.
    ///
    /// # Errors
    /// It is no recording, or damaged.
    pub fn read(source: impl Read, spares_system: bool) -> Result<Script, String> {
        let mut reader = Reader::open(source).map_err(|broken| broken.to_string())?;
        let mut builder = ScriptBuilder { spares_system, ..ScriptBuilder::default() };
        builder.script.header = header(&reader);
        let started = builder.script.header.started.parse::<jiff::Timestamp>();
        // Tolerance for the difference of two clocks.
        builder.start = started.map_or(i64::MIN, |started| started.as_millisecond() - 60_000);
        let mut ended = false;
        loop {
            match reader.next_event() {
                Ok(Some(Event { kind: EventKind::End(why), at, .. })) => {
                    ended = true;
                    builder.script.length = at;
                    if !why.is_empty() {
                        builder
                            .script
                            .warnings
                            .push(format!("the recording stopped before the traffic did: {why}"));
                    }
                }
                Ok(Some(event)) => builder.add_event(event)?,
                Ok(None) => break,
                Err(ReadError::Truncated) => break,
                Err(broken) => return Err(broken.to_string()),
            }
        }
        if !ended {
            let why = "the file is incomplete (the recorder was killed or still runs): its complete events \
             are replayed";
            builder.script.warnings.push(why.to_string());
        }
        Ok(builder.finish())
    }
}

/// Reads the metadata of a recording.
fn header(reader: &Reader<impl Read>) -> Header {
    let text = |name: &str| {
        reader.header().get(name).and_then(|value| value.as_str()).unwrap_or_default().to_string()
    };
    let redacted = reader.header().get("redacted").and_then(|value| value.as_array());
    let redacted = redacted.map_or_else(Vec::new, |all| {
        all.iter().filter_map(|path| path.as_str().map(str::to_string)).collect()
    });
    Header { started: text("started"), server: text("server"), upstream: text("upstream"), redacted }
}

/// A script under construction.
#[derive(Default)]
struct ScriptBuilder {
    script: Script,
    /// True if requests that change users, settings or system databases are skipped.
    spares_system: bool,
    /// Indexes in the script by connection number in the file.
    connections: HashMap<u32, usize>,
    /// Pending exchanges by connection and request id.
    pending: HashMap<(u32, i32), usize>,
    /// The last exchange of each session.
    sessions: HashMap<Vec<u8>, usize>,
    /// The exchange that created or last used each cursor.
    cursors: HashMap<i64, usize>,
    /// Ids that occurred in a request, so a client may have generated them.
    client_ids: HashSet<Vec<u8>>,
    /// Start of the recording in milliseconds since 1970. The server did not generate older values.
    start: i64,
}

impl ScriptBuilder {
    /// Adds one event to the script.
    fn add_event(&mut self, event: Event) -> Result<(), String> {
        let Event { connection, at, kind } = event;
        self.script.length = self.script.length.max(at);
        let index = *self.connections.entry(connection).or_insert_with(|| {
            self.script.connections.push(Connection {
                opened: at,
                closed: u64::MAX,
                ..Connection::default()
            });
            self.script.connections.len() - 1
        });
        match kind {
            EventKind::Header(_) | EventKind::Opened | EventKind::End(_) => {}
            EventKind::Closed => self.script.connections[index].closed = at,
            EventKind::Withheld(command) => self.skip(command, "not recorded"),
            EventKind::Request { id, flags, sections } => {
                if let Some(exchange) = self.request(at, flags, sections)? {
                    self.add(index, exchange, (flags & MORE_TO_COME == 0).then_some((connection, id)));
                }
            }
            EventKind::Reply { id, to, flags, sections } => {
                let Some(exchange) = self.pending.remove(&(connection, to)) else { return Ok(()) };
                let document =
                    Sections::parse(&sections).ok_or("it contains an invalid reply")?.body.to_owned();
                self.reply(exchange, at, document);
                if flags & MORE_TO_COME != 0 {
                    // An exhaust cursor sent this batch without a request. The replay sends a getMore for it.
                    let next = &self.script.exchanges[exchange];
                    let next = self.request(at, next.flags, next.sections.clone())?;
                    next.into_iter().for_each(|next| self.add(index, next, Some((connection, id))));
                }
            }
        }
        Ok(())
    }

    /// Adds a request; `None` if it is not replayed.
    fn request(&mut self, at: u64, flags: u32, sections: Vec<u8>) -> Result<Option<Exchange>, String> {
        let parts = Sections::parse(&sections).ok_or("it contains an invalid request")?;
        let command = parts.command().to_string();
        if SKIPPED_COMMANDS.contains(&command.as_str()) {
            self.skip(command, "it would stop or reconfigure the server");
            return Ok(None);
        }
        let databases = named_databases(&parts);
        if self.spares_system && changes_system(&parts, &databases) {
            self.skip(command, "it would change users, settings or system databases of a given target");
            return Ok(None);
        }
        let mut requires = Vec::new();
        let index = self.script.exchanges.len();
        if let Some(session) = session(&parts) {
            requires.extend(self.sessions.insert(session, index));
        }
        for cursor in cursors(&parts) {
            requires.extend(self.cursors.get(&cursor));
        }
        for document in parts.sequences.iter().flat_map(|(_, list)| list).chain([&parts.body]) {
            walk(*document, &mut Vec::new(), &mut |_, value| {
                self.client_ids.extend(id_of(value));
                true
            });
        }
        self.script.databases.extend(databases);
        self.script.databases.extend(database(&parts).map(str::to_string));
        let shape = shape_of(&parts);
        Ok(Some(Exchange {
            at,
            flags: flags & !EXHAUST_ALLOWED,
            sections,
            command,
            shape,
            reply: None,
            requires,
            overlaps: false,
        }))
    }

    /// Adds an exchange to its connection, and registers it for its reply.
    fn add(&mut self, connection: usize, exchange: Exchange, reply_key: Option<(u32, i32)>) {
        let index = self.script.exchanges.len();
        self.script.exchanges.push(exchange);
        self.script.connections[connection].exchanges.push(index);
        if let Some(key) = reply_key {
            self.pending.insert(key, index);
        }
    }

    /// Adds the reply of an exchange. Collects the ids that the server generated for it, and its cursor.
    fn reply(&mut self, exchange: usize, at: u64, document: DocumentBuf) {
        if let Some(id) = cursor_of(&document).filter(|id| *id != 0) {
            self.cursors.insert(id, exchange);
        }
        let start = self.start;
        walk(document.view(), &mut Vec::new(), &mut |_, value| {
            let generated =
                id_of(value).filter(|id| is_recent(value, start) && !self.client_ids.contains(id));
            self.script.server_generated.extend(generated);
            true
        });
        self.script.exchanges[exchange].reply = Some(Reply { at, document });
    }

    /// Counts a command that is not replayed.
    fn skip(&mut self, command: String, why: &'static str) {
        *self.script.skipped.entry((command, why)).or_default() += 1;
    }

    /// Removes pending exchanges and finds overlapping ones.
    fn finish(mut self) -> Script {
        let unanswered: HashSet<usize> = self.pending.values().copied().collect();
        for exchange in &unanswered {
            let command = self.script.exchanges[*exchange].command.clone();
            self.skip(command, "it has no recorded reply");
        }
        for connection in &mut self.script.connections {
            connection.exchanges.retain(|exchange| !unanswered.contains(exchange));
            connection.closed = connection.closed.min(self.script.length);
        }
        for exchange in &mut self.script.exchanges {
            exchange.requires.retain(|required| !unanswered.contains(required));
        }
        // Requests that overlapped may overlap again, as when a cursor is killed during a wait for its batch.
        let ended: Vec<u64> = self.script.exchanges.iter().map(Exchange::ended).collect();
        for exchange in &mut self.script.exchanges {
            exchange.requires.retain(|required| ended[*required] <= exchange.at);
        }
        self.script.connections.retain(|connection| !connection.exchanges.is_empty());
        let sent = self.script.connections.iter().map(|connection| connection.exchanges.as_slice());
        for exchange in overlapping(&self.script.exchanges, sent) {
            self.script.exchanges[exchange].overlaps = true;
        }
        self.script.databases.retain(|name| !SYSTEM_DATABASES.contains(&name.as_str()));
        self.script
    }
}

/// Returns the session id of a request.
fn session(parts: &Sections<'_>) -> Option<Vec<u8>> {
    match parts.body.get("lsid")?.as_document()?.get("id")? {
        Value::Binary { bytes, .. } => Some(bytes.to_vec()),
        _ => None,
    }
}

/// Returns the cursors that a request names.
pub(super) fn cursors(parts: &Sections<'_>) -> Vec<i64> {
    match parts.command() {
        "getMore" => parts.body.get("getMore").and_then(|id| id.as_i64()).into_iter().collect(),
        "killCursors" => {
            let all = parts.body.get("cursors").and_then(|all| all.as_array());
            all.map_or_else(Vec::new, |all| all.iter().filter_map(|id| id.as_i64()).collect())
        }
        _ => Vec::new(),
    }
}

/// Returns the cursor that a reply names; 0 is none.
pub(super) fn cursor_of(document: &DocumentBuf) -> Option<i64> {
    document.view().get("cursor")?.as_document()?.get("id")?.as_i64()
}

/// Returns the bytes of a value that a server may have generated: an id or a time.
pub(super) fn id_of(value: &Value<'_>) -> Option<Vec<u8>> {
    match value {
        Value::ObjectId(id) => Some(id.0.to_vec()),
        Value::Binary { subtype: 4, bytes } => Some(bytes.to_vec()),
        Value::DateTime(time) => Some(time.to_le_bytes().to_vec()),
        _ => None,
    }
}

/// Returns true if the value may have been generated at that time or later.
fn is_recent(value: &Value<'_>, start: i64) -> bool {
    match value {
        Value::ObjectId(id) => id.timestamp_millis() >= start,
        Value::DateTime(time) => *time >= start,
        _ => true,
    }
}

/// Returns the database of a request.
fn database<'a>(parts: &Sections<'a>) -> Option<&'a str> {
    parts.body.get("$db")?.as_str()
}

/// Returns true if a request may change users, settings or system databases. `named` are its [`named_databases`].
fn changes_system(parts: &Sections<'_>, named: &BTreeSet<String>) -> bool {
    let is_system = |name: &str| SYSTEM_DATABASES.contains(&name);
    let command = parts.command();
    // These commands are sent to `admin`, and their namespaces are elsewhere.
    let is_general = matches!(command, "applyOps" | "bulkWrite" | "renameCollection");
    let is_sent_to_system = !is_general && database(parts).is_some_and(is_system);
    let writes = may_write(parts) && !HARMLESS_COMMANDS.contains(&command);
    ADMINISTRATIVE_COMMANDS.contains(&command)
        || writes && (is_sent_to_system || named.iter().any(|name| is_system(name)))
}

/// Returns the databases that a request may write to, without the database that it is sent to.
fn named_databases(parts: &Sections<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let of_namespace = |text: &str| text.split_once('.').map_or(text, |(database, _)| database).to_string();
    let documents = parts.sequences.iter().filter(|(name, _)| *name == "nsInfo").flat_map(|(_, list)| list);
    for document in documents {
        found.extend(document.get("ns").and_then(|name| name.as_str()).map(of_namespace));
    }
    let is_rename = parts.command() == "renameCollection";
    let is_fork = parts.command().ends_with("Database");
    walk(parts.body, &mut Vec::new(), &mut |path, value| {
        let Some(text) = value.as_str() else { return !matches!(path, ["documents", ..]) };
        let is_database = match path {
            ["renameCollection"] => true,
            ["to"] => is_rename || is_fork,
            ["from" | "db"] => is_fork,
            ["nsInfo", _, "ns"] | [.., "applyOps", _, "ns"] => true,
            // Operations of applyOps may contain commands, applyOps included.
            [.., "applyOps", _, "o", "renameCollection" | "to"] => true,
            ["pipeline", _, "$out", "db"] | ["pipeline", _, "$merge", "into", "db"] => true,
            _ => false,
        };
        if is_database {
            found.insert(of_namespace(text));
        }
        false
    });
    found
}

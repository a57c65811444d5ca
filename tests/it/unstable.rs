//! Values of replies that differ from run to run, and their names in golden scripts.
//!
//! Fields that depend on the moment (`$clusterTime`, timings) are removed or become `"<time>"`. Cursor ids, ObjectIds
//! of the server and resume tokens get numbered names, `"<cursor 1>"`, `"<ObjectId 1>"`, `"<token 1>"`. In a later
//! command such a name stands for the real value.

use crate::describe::rewrite;
use base::bson::{Document, DocumentBuf, Value, ValueBuf};

/// Fields that are removed everywhere.
const LEFT_OUT: &[&str] = &[
    "$clusterTime",
    "electionId",
    "opTime",
    "operationTime",
    "processId",
    "recoveryToken",
    "serverInfo",
    "serverParameters",
    "signature",
    "topologyVersion",
];
/// Fields whose values are hidden.
const HIDDEN: &[&str] = &[
    "clusterParameterTime",
    "clusterTime",
    "connectionId",
    "lastWriteDate",
    "majorityOpTime",
    "majorityWriteDate",
    "executionTimeMillis",
    "executionTimeMillisEstimate",
    "lastUse",
    "latency",
    "localTime",
    "localUpdateWallClockTime",
    "millis",
    "optimizationTimeMillis",
    "postBatchResumeToken",
    "startTime",
    "timeMillis",
    "updateOpTime",
    "updateWallClockTime",
    "uuids",
    "wallTime",
];

/// Fields with sizes of the machine, which are hidden.
const SIZES: &[&str] = &["fsUsedSize", "fsTotalSize"];

/// Fields whose values are hidden if they are text.
const SECRET: &[&str] = &["salt", "serverKey", "storedKey"];

/// The names given in one script.
#[derive(Default)]
pub(crate) struct Names {
    known: Vec<(String, ValueBuf)>,
    /// The script's own text: its values are stable.
    script: String,
}

impl Names {
    /// Creates the names for the text of a script.
    pub(crate) fn new(script: &str) -> Names {
        Names { known: Vec::new(), script: script.to_string() }
    }

    /// Returns the command with names replaced by values.
    pub(crate) fn resolve(&self, command: Document<'_>) -> DocumentBuf {
        rewrite(command, &mut |_, value| {
            let found = value.as_str().and_then(|text| self.known.iter().find(|(name, _)| name == text));
            Some(found.map(|(_, value)| value.clone()))
        })
    }

    /// Returns the reply with unstable values replaced by names, and `ok: 1` without its decimal point.
    pub(crate) fn normalise(&mut self, reply: Document<'_>) -> DocumentBuf {
        let cursor = reply.get("cursor").and_then(|cursor| cursor.as_document()?.get("id")?.as_i64());
        if let Some(id) = cursor.filter(|&id| id != 0) {
            self.name("cursor", Value::Int64(id));
        }
        // The hash in the reply of explain follows from the command.
        let is_explain = reply.find("explainVersion").is_some();
        rewrite(reply, &mut |name, value| {
            let is_out = LEFT_OUT.contains(&name) || is_explain && name == "queryShapeHash";
            if is_out { None } else { Some(self.replacement(name, value)) }
        })
    }

    fn replacement(&mut self, name: &str, value: Value<'_>) -> Option<ValueBuf> {
        match value {
            Value::String(text) if name == "host" && is_this_machine(text) => {
                Some(Value::String("<host>").to_owned())
            }
            Value::String(_) if SECRET.contains(&name) => Some(Value::String("<secret>").to_owned()),
            _ if SIZES.contains(&name) => Some(Value::String("<bytes>").to_owned()),
            _ if HIDDEN.contains(&name) => Some(Value::String("<time>").to_owned()),
            Value::Double(1.0) if name == "ok" => Some(Value::Int32(1).to_owned()),
            Value::Double(0.0) if name == "ok" => Some(Value::Int32(0).to_owned()),
            Value::Int64(_) if self.known.iter().any(|(_, known)| *known == value.to_owned()) => {
                Some(self.name("cursor", value))
            }
            Value::ObjectId(id) if !self.script.contains(&id.to_string()) => {
                Some(self.name("ObjectId", value))
            }
            Value::String(_) if name == "_data" => Some(self.name("token", value)),
            Value::String(text) if is_own_address(text) => Some(self.name("address", value)),
            Value::String(text) if name == "errmsg" => Some(self.name_within(text)),
            Value::Binary { subtype: 4, .. }
                if matches!(name, "uuid" | "collectionUUID" | "ui" | "userId") =>
            {
                Some(Value::String("<uuid>").to_owned())
            }
            _ => None,
        }
    }

    /// Replaces cursor ids, addresses and UUIDs in a message by names.
    fn name_within(&self, text: &str) -> ValueBuf {
        let cursors = self.known.iter().filter_map(|(name, value)| Some((name, value.view().as_i64()?)));
        let addresses = self.known.iter().filter_map(|(name, value)| Some((name, value.view().as_str()?)));
        let addresses = addresses.filter(|(_, address)| is_own_address(address));
        let text = &addresses.fold(text.to_string(), |text, (name, address)| text.replace(address, name));
        let text = cursors.fold(text.to_string(), |text, (name, id)| text.replace(&id.to_string(), name));
        let text = with_hidden(&text, "_data: \"", "\"", "<token>");
        Value::String(&without_uuids(&with_hidden(&text, "Timestamp(", ")", "<time>"))).to_owned()
    }

    /// Returns the name of a value, a new one at its first occurrence.
    fn name(&mut self, kind: &str, value: Value<'_>) -> ValueBuf {
        let value = value.to_owned();
        let known = self.known.iter().find(|(_, other)| *other == value).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            let prefix = format!("<{kind} ");
            let number = self.known.iter().filter(|(name, _)| name.starts_with(&prefix)).count() + 1;
            let name = format!("{prefix}{number}>");
            self.known.push((name.clone(), value));
            name
        });
        Value::String(&name).to_owned()
    }
}

/// Returns true if a text is the address of a server on this machine.
fn is_own_address(text: &str) -> bool {
    text.strip_prefix("127.0.0.1:").is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Replaces the text between each of these beginnings and its end by a name.
fn with_hidden(text: &str, begin: &str, end: &str, name: &str) -> String {
    let mut parts = text.split(begin);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let rest = part.find(end).map_or("", |at| &part[at..]);
        out.extend([begin, name, rest]);
    }
    out
}

/// Returns true if host and port are this machine's, by its name.
fn is_this_machine(text: &str) -> bool {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.split_once(':').is_some_and(|(host, _)| !host.is_empty() && host == name.trim())
}

/// Replaces each UUID, and the random end of a temporary name, by `<uuid>`.
fn without_uuids(text: &str) -> String {
    const TEMPORARY: &str = ".tmp.agg_out.";
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let is_uuid = |word: &str| {
        let groups: Vec<_> = word.split('-').collect();
        let is_hex = |group: &&str| group.bytes().all(|b| b.is_ascii_hexdigit());
        groups.iter().map(|group| group.len()).eq(GROUPS) && groups.iter().all(is_hex)
    };
    let replace = |word: &str| match word.split_once(TEMPORARY) {
        Some((database, _)) => format!("{database}{TEMPORARY}<uuid>"),
        None if is_uuid(word.trim_end_matches(':')) => {
            format!("<uuid>{}", if word.ends_with(':') { ":" } else { "" })
        }
        None => word.to_string(),
    };
    text.split(' ').map(replace).collect::<Vec<_>>().join(" ")
}

#[test]
fn names_replace_unstable_values_in_both_directions() {
    use base::bson::extended_json::{parse, to_shell};
    let mut names = Names::new("{a: ObjectId('000000000000000000000001')}");
    let reply = parse(
        "{cursor: {firstBatch: [{_id: ObjectId('000000000000000000000001')}, {_id: ObjectId('000000000000000000000002')}],
          id: NumberLong(77), ns: 'a.b'}, ok: 1.0, operationTime: Timestamp(1, 1), localTime: Date(5)}",
    );
    let text = to_shell(names.normalise(reply.unwrap().view()).view());
    assert_eq!(
        text,
        "{cursor: {firstBatch: [{_id: ObjectId(\"000000000000000000000001\")}, {_id: \"<ObjectId 1>\"}], \
         id: \"<cursor 1>\", ns: \"a.b\"}, ok: 1, localTime: \"<time>\"}"
    );
    let command = parse("{getMore: '<cursor 1>', x: ['<ObjectId 1>', '<cursor 2>']}").unwrap();
    assert_eq!(
        to_shell(names.resolve(command.view()).view()),
        "{getMore: NumberLong(77), x: [ObjectId(\"000000000000000000000002\"), \"<cursor 2>\"]}"
    );
}

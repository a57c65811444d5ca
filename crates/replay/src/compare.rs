//! Comparison of a reply with the recorded one. [docs/lab.md](../../../../docs/lab.md) lists the allowed differences.

use super::mapping::Mapping;
use crate::message::Sections;
use crate::redact::Redactor;
use base::bson::extended_json::value_to_relaxed;
use base::bson::{Array, Document, Value};

/// Fields of a reply that depend on the moment or the server.
// tidy: sorted
const VOLATILE_FIELDS: &[&str] = &[
    "$clusterTime",
    "$configTime",
    "$gleStats",
    "$topologyTime",
    "atClusterTime",
    "connectionId",
    "electionId",
    "errmsg",
    "lastCommittedOpTime",
    "localTime",
    "opTime",
    "operationTime",
    "topologyVersion",
];

/// Commands whose replies describe the server. Only their success is compared.
// tidy: sorted
const SERVER_STATUS_COMMANDS: &[&str] = &[
    "buildInfo",
    "buildinfo",
    "collStats",
    "connPoolStats",
    "connectionStatus",
    "currentOp",
    "dataSize",
    "dbStats",
    "dbstats",
    "explain",
    "getCmdLineOpts",
    "getLog",
    "getParameter",
    "hostInfo",
    "listCommands",
    "listDatabases",
    "lockInfo",
    "replSetGetConfig",
    "replSetGetStatus",
    "serverStatus",
    "top",
    "validate",
    "whatsmyuri",
];

/// Stages that read data about the server.
const SERVER_STATUS_STAGES: &[&str] =
    &["$collStats", "$currentOp", "$indexStats", "$listLocalSessions", "$listSessions", "$planCacheStats"];

/// Maximum number of characters of a value in a difference.
const SHOWN_MAX: usize = 60;

/// Compares replies to one request.
pub(super) struct Comparison<'a> {
    pub(super) mapping: &'a Mapping<'a>,
    pub(super) redactor: &'a Redactor,
}

/// Returns the outcome of a reply: error codes with their places. Equal failures have equal outcomes.
pub(super) fn outcome(reply: Document<'_>) -> String {
    let code =
        |document: Document<'_>| document.get("code").and_then(|code| code.as_i64()).unwrap_or_default();
    if reply.get("ok").is_some_and(|ok| !ok.is_truthy()) {
        let name = reply.get("codeName").and_then(|name| name.as_str()).unwrap_or_default();
        return format!("error {} {name}", code(reply)).trim_end().to_string();
    }
    let mut parts = Vec::new();
    for error in
        reply.get("writeErrors").and_then(|errors| errors.as_array()).iter().flat_map(|all| all.iter())
    {
        let Some(error) = error.as_document() else { continue };
        let index = error.get("index").and_then(|index| index.as_i64()).unwrap_or_default();
        parts.push(format!("write error {} at {index}", code(error)));
    }
    if let Some(concern) = reply.get("writeConcernError").and_then(|error| error.as_document()) {
        parts.push(format!("write concern error {}", code(concern)));
    }
    if parts.is_empty() { "success".to_string() } else { parts.join(", ") }
}

/// Returns true if only success is compared for this request.
pub(super) fn reads_server_status(parts: &Sections<'_>) -> bool {
    let first = || parts.body.get("pipeline")?.as_array()?.get(0)?.as_document()?.first();
    SERVER_STATUS_COMMANDS.contains(&parts.command())
        || first().is_some_and(|stage| SERVER_STATUS_STAGES.contains(&stage.name()))
}

impl Comparison<'_> {
    /// Returns the first difference that is not allowed, if any.
    pub(super) fn difference(
        &self,
        request: &Sections<'_>,
        recorded: Document<'_>,
        actual: Document<'_>,
    ) -> Option<String> {
        if reads_server_status(request) {
            return None;
        }
        let difference = self.documents(recorded, actual, &mut Vec::new())?;
        let has_order = request.body.find("sort").is_some() || request.body.find("pipeline").is_some();
        if !has_order && self.is_reordered(recorded, actual) {
            return None;
        }
        Some(difference)
    }

    /// Compares two documents field by field in order. Returns the first difference with its path.
    fn documents<'d>(
        &self,
        recorded: Document<'d>,
        actual: Document<'d>,
        path: &mut Vec<&'d str>,
    ) -> Option<String> {
        let may_differ = |name: &str, depth: usize| depth == 0 && VOLATILE_FIELDS.contains(&name);
        let depth = path.len();
        let mut actual_fields = actual.iter().filter(|element| !may_differ(element.name(), depth));
        for element in recorded.iter().filter(|element| !may_differ(element.name(), depth)) {
            path.push(element.name());
            let difference = match actual_fields.next() {
                None => Some(format!("{}: {} is missing", path.join("."), preview(&element.value()))),
                Some(other) if other.name() != element.name() => {
                    Some(format!("{}: the reply has the field {}", path.join("."), other.name()))
                }
                Some(other) => self.values(&element.value(), &other.value(), path),
            };
            if difference.is_some() {
                return difference;
            }
            path.pop();
        }
        actual_fields.next().map(|more| {
            path.push(more.name());
            format!("{}: {} is not in the recording", path.join("."), preview(&more.value()))
        })
    }

    /// Compares two values. Returns the first difference with its path.
    fn values<'d>(
        &self,
        recorded: &Value<'d>,
        actual: &Value<'d>,
        path: &mut Vec<&'d str>,
    ) -> Option<String> {
        if recorded.kind() == actual.kind() && self.may_differ_at(recorded, actual, path) {
            return None;
        }
        match (recorded, actual) {
            (Value::Document(recorded), Value::Document(actual)) => self.documents(*recorded, *actual, path),
            (Value::Array(recorded), Value::Array(actual)) if recorded.len() == actual.len() => {
                self.documents(recorded.as_document(), actual.as_document(), path)
            }
            (Value::Array(recorded), Value::Array(actual)) => {
                Some(format!("{}: {} elements instead of {}", path.join("."), actual.len(), recorded.len()))
            }
            _ if same_bytes(recorded, actual) => None,
            _ => Some(format!("{}: {} instead of {}", path.join("."), preview(actual), preview(recorded))),
        }
    }

    /// Returns true if two values of the same type may differ at this path.
    fn may_differ_at(&self, recorded: &Value<'_>, actual: &Value<'_>, path: &[&str]) -> bool {
        match (path, recorded, actual) {
            (["cursor", "id"], Value::Int64(recorded), Value::Int64(actual)) => {
                (*recorded == 0) == (*actual == 0)
            }
            ([list, _], Value::Int64(recorded), Value::Int64(actual)) if list.starts_with("cursors") => {
                self.mapping.is_cursor(*recorded, *actual)
            }
            ([.., "errmsg"], Value::String(_), _) => path.first() == Some(&"writeErrors"),
            ([.., "lsid", "id"], Value::Binary { .. }, _) => true,
            _ => self.mapping.is_generated(path, recorded) || self.redactor.covers(path),
        }
    }

    /// Returns true if both replies have the same batch in a different order.
    fn is_reordered(&self, recorded: Document<'_>, actual: Document<'_>) -> bool {
        let (Some((name, recorded)), Some((other, actual))) = (batch(recorded), batch(actual)) else {
            return false;
        };
        if name != other || recorded.len() != actual.len() {
            return false;
        }
        let mut unmatched: Vec<Value<'_>> = actual.iter().collect();
        // The limit bounds the quadratic search. Different batches are rare and usually short.
        recorded.len() <= 2000
            && recorded.iter().all(|value| {
                let same =
                    |other: &Value<'_>| self.values(&value, other, &mut vec!["cursor", name, "0"]).is_none();
                unmatched.iter().position(same).map(|at| unmatched.swap_remove(at)).is_some()
            })
    }
}

/// Returns the name and the elements of a cursor's batch.
fn batch(reply: Document<'_>) -> Option<(&'static str, Array<'_>)> {
    let cursor = reply.get("cursor")?.as_document()?;
    ["firstBatch", "nextBatch"].into_iter().find_map(|name| Some((name, cursor.get(name)?.as_array()?)))
}

/// Compares two values by their encoded bytes.
fn same_bytes(one: &Value<'_>, other: &Value<'_>) -> bool {
    let bytes = |value: &Value<'_>| {
        let mut out = Vec::new();
        value.write_to(&mut out);
        out
    };
    one.kind() == other.kind() && bytes(one) == bytes(other)
}

/// Returns a value in the shell's form, shortened.
fn preview(value: &Value<'_>) -> String {
    let text = value_to_relaxed(*value);
    match text.chars().count() {
        0..=SHOWN_MAX => text,
        _ => text.chars().take(SHOWN_MAX).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::ObjectId;
    use base::bson::extended_json::parse;
    use std::collections::HashSet;

    fn difference(request: &str, recorded: &str, actual: &str) -> Option<String> {
        let generated = HashSet::from([ObjectId::parse("0123456789abcdef01234567").unwrap().0.to_vec()]);
        let mapping = Mapping::new([0; 16], &generated);
        let redactor = Redactor::new(&["pin".to_string()]);
        let (request, recorded, actual) =
            (parse(request).unwrap(), parse(recorded).unwrap(), parse(actual).unwrap());
        let parts = Sections { body: request.view(), sequences: Vec::new() };
        Comparison { mapping: &mapping, redactor: &redactor }.difference(
            &parts,
            recorded.view(),
            actual.view(),
        )
    }

    #[test]
    fn allowed_differences_pass() {
        for (recorded, actual) in [
            ("{n: 1, ok: 1.0, operationTime: Timestamp(1, 1)}", "{n: 1, ok: 1.0}"),
            ("{t: Timestamp(1, 1)}", "{t: Timestamp(9, 9)}"),
            (
                "{cursor: {id: NumberLong(5), firstBatch: []}}",
                "{cursor: {id: NumberLong(6), firstBatch: []}}",
            ),
            ("{_id: ObjectId('0123456789abcdef01234567')}", "{_id: ObjectId('ffffffffffffffffffffffff')}"),
            ("{cursor: {firstBatch: [{pin: 1}]}}", "{cursor: {firstBatch: [{pin: 2}]}}"),
            ("{writeErrors: [{code: 1, errmsg: 'a'}]}", "{writeErrors: [{code: 1, errmsg: 'b'}]}"),
            ("{cursor: {firstBatch: [{a: 1}, {a: 2}]}}", "{cursor: {firstBatch: [{a: 2}, {a: 1}]}}"),
        ] {
            assert_eq!(difference("{find: 'c'}", recorded, actual), None, "{recorded}");
        }
        assert_eq!(difference("{serverStatus: 1}", "{a: 1}", "{b: 2}"), None);
        assert_eq!(difference("{aggregate: 1, pipeline: [{$currentOp: {}}]}", "{a: 1}", "{b: 2}"), None);
    }

    #[test]
    fn other_differences_are_reported_with_their_path() {
        for (recorded, actual, part) in [
            ("{n: 1}", "{n: 2}", "n: 2 instead of 1"),
            ("{n: 1}", "{n: NumberLong(1)}", "n: 1 instead of 1"),
            ("{n: 1, m: 2}", "{n: 1}", "m: 2 is missing"),
            ("{n: 1}", "{n: 1, m: 2}", "m: 2 is not in the recording"),
            ("{cursor: {id: NumberLong(0)}}", "{cursor: {id: NumberLong(6)}}", "cursor.id"),
            ("{cursorsKilled: [NumberLong(5)]}", "{cursorsKilled: [NumberLong(6)]}", "cursorsKilled.0"),
            (
                "{cursor: {firstBatch: [{a: 1}, {a: 1}]}}",
                "{cursor: {firstBatch: [{a: 2}, {a: 1}]}}",
                "cursor.firstBatch.0.a",
            ),
            ("{a: [1]}", "{a: [1, 2]}", "2 elements instead of 1"),
            (
                "{_id: ObjectId('aaaaaaaaaaaaaaaaaaaaaaaa')}",
                "{_id: ObjectId('ffffffffffffffffffffffff')}",
                "_id",
            ),
        ] {
            let found = difference("{find: 'c'}", recorded, actual).unwrap_or_default();
            assert!(found.contains(part), "{recorded}: {found}");
        }
        let (before, after) =
            ("{cursor: {firstBatch: [{a: 1}, {a: 2}]}}", "{cursor: {firstBatch: [{a: 2}, {a: 1}]}}");
        assert!(difference("{find: 'c', sort: {a: 1}}", before, after).is_some(), "a requested order");
    }

    #[test]
    fn outcomes_contain_error_codes() {
        for (reply, expected) in [
            ("{ok: 1.0, n: 1}", "success"),
            ("{ok: 0.0, code: 26, codeName: 'NamespaceNotFound'}", "error 26 NamespaceNotFound"),
            ("{ok: 1.0, writeErrors: [{index: 3, code: 11000}]}", "write error 11000 at 3"),
            ("{ok: 1.0, writeConcernError: {code: 64}}", "write concern error 64"),
        ] {
            assert_eq!(outcome(parse(reply).unwrap().view()), expected);
        }
    }
}

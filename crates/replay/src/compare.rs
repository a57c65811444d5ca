//! Comparison of an answer with the recorded one. Some differences are [allowed](../../../../docs/lab.md).

use super::mapping::Mapping;
use crate::message::Parts;
use crate::redact::Redactor;
use base::bson::extended_json::value_to_relaxed;
use base::bson::{Array, Document, Value};

/// Fields of an answer that depend on the moment or the server.
// tidy: sorted
const MAY_DIFFER: &[&str] = &[
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

/// Commands whose answers describe the server. Only their success is compared.
// tidy: sorted
const ABOUT_SERVER: &[&str] = &[
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
const STAGES_ABOUT_SERVER: &[&str] =
    &["$collStats", "$currentOp", "$indexStats", "$listLocalSessions", "$listSessions", "$planCacheStats"];

/// Maximum number of characters of a value in a difference.
const SHOWN_MAX: usize = 60;

/// Compares answers to one request.
pub(super) struct Comparison<'a> {
    pub(super) mapping: &'a Mapping<'a>,
    pub(super) redactor: &'a Redactor,
}

/// Returns the outcome of an answer: error codes with their places. Equal failures have equal outcomes.
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
pub(super) fn is_about_server(parts: &Parts<'_>) -> bool {
    let first = || parts.body.get("pipeline")?.as_array()?.get(0)?.as_document()?.first();
    ABOUT_SERVER.contains(&parts.command())
        || first().is_some_and(|stage| STAGES_ABOUT_SERVER.contains(&stage.name()))
}

impl Comparison<'_> {
    /// Returns the first difference that is not allowed, if any.
    pub(super) fn difference(
        &self,
        request: &Parts<'_>,
        recorded: Document<'_>,
        answered: Document<'_>,
    ) -> Option<String> {
        if is_about_server(request) {
            return None;
        }
        let found = self.documents(recorded, answered, &mut Vec::new())?;
        let has_order = request.body.find("sort").is_some() || request.body.find("pipeline").is_some();
        if !has_order && self.is_another_order(recorded, answered) {
            return None;
        }
        Some(found)
    }

    /// Compares two documents field by field in order. Returns the first difference with its path.
    fn documents<'d>(
        &self,
        recorded: Document<'d>,
        answered: Document<'d>,
        path: &mut Vec<&'d str>,
    ) -> Option<String> {
        let may_differ = |name: &str, depth: usize| depth == 0 && MAY_DIFFER.contains(&name);
        let depth = path.len();
        let mut own = answered.iter().filter(|element| !may_differ(element.name(), depth));
        for element in recorded.iter().filter(|element| !may_differ(element.name(), depth)) {
            path.push(element.name());
            let found = match own.next() {
                None => Some(format!("{}: {} is missing", path.join("."), shown(&element.value()))),
                Some(other) if other.name() != element.name() => {
                    Some(format!("{}: the reply has the field {}", path.join("."), other.name()))
                }
                Some(other) => self.values(&element.value(), &other.value(), path),
            };
            if found.is_some() {
                return found;
            }
            path.pop();
        }
        own.next().map(|more| {
            path.push(more.name());
            format!("{}: {} is not in the recording", path.join("."), shown(&more.value()))
        })
    }

    /// Compares two values. Returns the first difference with its path.
    fn values<'d>(
        &self,
        recorded: &Value<'d>,
        answered: &Value<'d>,
        path: &mut Vec<&'d str>,
    ) -> Option<String> {
        if recorded.kind() == answered.kind() && self.is_let_pass(recorded, answered, path) {
            return None;
        }
        match (recorded, answered) {
            (Value::Document(theirs), Value::Document(own)) => self.documents(*theirs, *own, path),
            (Value::Array(theirs), Value::Array(own)) if theirs.len() == own.len() => {
                self.documents(theirs.as_document(), own.as_document(), path)
            }
            (Value::Array(theirs), Value::Array(own)) => {
                Some(format!("{}: {} elements instead of {}", path.join("."), own.len(), theirs.len()))
            }
            _ if is_same(recorded, answered) => None,
            _ => Some(format!("{}: {} instead of {}", path.join("."), shown(answered), shown(recorded))),
        }
    }

    /// Returns true if two values of the same type may differ at this path.
    fn is_let_pass(&self, recorded: &Value<'_>, answered: &Value<'_>, path: &[&str]) -> bool {
        match (path, recorded, answered) {
            (["cursor", "id"], Value::Int64(theirs), Value::Int64(own)) => (*theirs == 0) == (*own == 0),
            ([list, _], Value::Int64(theirs), Value::Int64(own)) if list.starts_with("cursors") => {
                self.mapping.is_cursor(*theirs, *own)
            }
            ([.., "errmsg"], Value::String(_), _) => path.first() == Some(&"writeErrors"),
            ([.., "lsid", "id"], Value::Binary { .. }, _) => true,
            _ => self.mapping.is_made(path, recorded) || self.redactor.covers(path),
        }
    }

    /// Returns true if both answers have the same batch in a different order.
    fn is_another_order(&self, recorded: Document<'_>, answered: Document<'_>) -> bool {
        let (Some((name, theirs)), Some((other, own))) = (batch(recorded), batch(answered)) else {
            return false;
        };
        if name != other || theirs.len() != own.len() {
            return false;
        }
        let mut left: Vec<Value<'_>> = own.iter().collect();
        // The limit bounds the quadratic search. Different batches are rare and usually short.
        theirs.len() <= 2000
            && theirs.iter().all(|wanted| {
                let same =
                    |other: &Value<'_>| self.values(&wanted, other, &mut vec!["cursor", name, "0"]).is_none();
                left.iter().position(same).map(|at| left.swap_remove(at)).is_some()
            })
    }
}

/// Returns the name and the elements of a cursor's batch.
fn batch(reply: Document<'_>) -> Option<(&'static str, Array<'_>)> {
    let cursor = reply.get("cursor")?.as_document()?;
    ["firstBatch", "nextBatch"].into_iter().find_map(|name| Some((name, cursor.get(name)?.as_array()?)))
}

/// Compares two values by their encoded bytes.
fn is_same(one: &Value<'_>, other: &Value<'_>) -> bool {
    let bytes = |value: &Value<'_>| {
        let mut out = Vec::new();
        value.write_to(&mut out);
        out
    };
    one.kind() == other.kind() && bytes(one) == bytes(other)
}

/// Returns a value in the shell's form, shortened.
fn shown(value: &Value<'_>) -> String {
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

    fn difference(request: &str, recorded: &str, answered: &str) -> Option<String> {
        let made = HashSet::from([ObjectId::parse("0123456789abcdef01234567").unwrap().0.to_vec()]);
        let mapping = Mapping::new([0; 16], &made);
        let redactor = Redactor::new(&["pin".to_string()]);
        let (request, recorded, answered) =
            (parse(request).unwrap(), parse(recorded).unwrap(), parse(answered).unwrap());
        let parts = Parts { body: request.view(), sequences: Vec::new() };
        Comparison { mapping: &mapping, redactor: &redactor }.difference(
            &parts,
            recorded.view(),
            answered.view(),
        )
    }

    #[test]
    fn what_may_differ_passes() {
        for (recorded, answered) in [
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
            assert_eq!(difference("{find: 'c'}", recorded, answered), None, "{recorded}");
        }
        assert_eq!(difference("{serverStatus: 1}", "{a: 1}", "{b: 2}"), None);
        assert_eq!(difference("{aggregate: 1, pipeline: [{$currentOp: {}}]}", "{a: 1}", "{b: 2}"), None);
    }

    #[test]
    fn what_may_not_differ_is_told_with_its_place() {
        for (recorded, answered, part) in [
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
            let found = difference("{find: 'c'}", recorded, answered).unwrap_or_default();
            assert!(found.contains(part), "{recorded}: {found}");
        }
        let (before, after) =
            ("{cursor: {firstBatch: [{a: 1}, {a: 2}]}}", "{cursor: {firstBatch: [{a: 2}, {a: 1}]}}");
        assert!(
            difference("{find: 'c', sort: {a: 1}}", before, after).is_some(),
            "an order that was asked for"
        );
    }

    #[test]
    fn outcomes_are_told_by_their_codes() {
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

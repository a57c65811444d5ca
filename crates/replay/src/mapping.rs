//! Translation of the names that servers generate: cursors, sessions, ids, times and resume tokens.
//!
//! The id of a cursor is learned from the reply that creates it. Session ids are changed by a mask that differs in
//! each round, since a server takes repeated transaction numbers of one session for retries. Generated ids, times and
//! resume tokens are learned by comparing each reply with the recorded one. Later requests use the value of the
//! target.

use super::script::{cursor_of, cursors, id_of};
use crate::message::Sections;
use crate::redact::{Change, rewrite};
use base::bson::{Document, DocumentBuf, Value, ValueBuf};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The mappings of one round on one target.
pub(super) struct Mapping<'a> {
    session_mask: [u8; 16],
    server_generated: &'a HashSet<Vec<u8>>,
    cursors: Mutex<HashMap<i64, i64>>,
    values: Mutex<HashMap<Vec<u8>, ValueBuf>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Mapping<'a> {
    /// Creates an empty mapping. `session_mask` changes the session ids.
    pub(super) fn new(mut session_mask: [u8; 16], server_generated: &'a HashSet<Vec<u8>>) -> Mapping<'a> {
        // The version and variant bits of the UUID stay.
        session_mask[6] &= 0x0F;
        session_mask[8] &= 0x3F;
        Mapping { session_mask, server_generated, cursors: Mutex::default(), values: Mutex::default() }
    }

    /// Returns the sections of a request for this target.
    pub(super) fn request(&self, parts: &Sections<'_>) -> Vec<u8> {
        let command = parts.command();
        parts.encode_with(|sequence, document| {
            let mut path = if sequence.is_empty() { Vec::new() } else { vec![sequence] };
            rewrite(document, &mut path, &mut |path, value| self.change(command, path, value))
        })
    }

    /// Returns the action for a value of a request: removed, replaced by the target's value, or kept.
    fn change(&self, command: &str, path: &[&str], value: &Value<'_>) -> Change {
        match (path, value) {
            // Cluster times of another server mean nothing here, and signed ones are refused.
            (["$clusterTime"] | ["readConcern", "afterClusterTime"], _) => Change::Remove,
            (["lsid", "id"], Value::Binary { bytes, .. }) => self.session(bytes),
            (["endSessions" | "killSessions" | "refreshSessions", _, "id"], Value::Binary { bytes, .. }) => {
                self.session(bytes)
            }
            (["getMore"], _) if command == "getMore" => self.cursor(value),
            (["cursors", _], _) if command == "killCursors" => self.cursor(value),
            (_, Value::Document(_) | Value::Array(_)) => Change::Descend,
            _ => match key(path, value).and_then(|key| lock(&self.values).get(&key).cloned()) {
                Some(target) => Change::Replace(target),
                None => Change::Keep,
            },
        }
    }

    /// Replaces a session id. XOR with the mask keeps distinct ids distinct.
    fn session(&self, id: &[u8]) -> Change {
        let target: Vec<u8> = id.iter().zip(self.session_mask).map(|(byte, mask)| byte ^ mask).collect();
        Change::Replace(Value::Binary { subtype: 4, bytes: &target }.to_owned())
    }

    /// Replaces the id of a cursor that this target has opened.
    fn cursor(&self, id: &Value<'_>) -> Change {
        let target = id.as_i64().and_then(|id| lock(&self.cursors).get(&id).copied());
        target.map_or(Change::Keep, |target| Change::Replace(Value::Int64(target).to_owned()))
    }

    /// Returns true if a request names a cursor that this target never created.
    pub(super) fn lacks_cursor(&self, parts: &Sections<'_>) -> bool {
        let known = lock(&self.cursors);
        parts.command() == "getMore" && cursors(parts).iter().any(|id| !known.contains_key(id))
    }

    /// Returns true if the recorded cursor `recorded` is `actual` on the target.
    pub(super) fn is_cursor(&self, recorded: i64, actual: i64) -> bool {
        lock(&self.cursors).get(&recorded) == Some(&actual)
    }

    /// Compares a reply with the recorded one, and stores the values that differ by server.
    pub(super) fn learn(&self, recorded: &DocumentBuf, actual: &DocumentBuf) {
        if let (Some(recorded), Some(actual)) = (cursor_of(recorded), cursor_of(actual))
            && recorded != 0
            && actual != 0
        {
            lock(&self.cursors).insert(recorded, actual);
        }
        self.pairs(recorded.view(), actual.view(), &mut Vec::new());
    }

    /// Compares two documents and stores the values that both servers generated at one path.
    fn pairs<'d>(&self, recorded: Document<'d>, actual: Document<'d>, path: &mut Vec<&'d str>) {
        let mut fields = actual.iter();
        for element in recorded {
            // Most servers reply in the same field order.
            let same = fields.next().filter(|field| field.name() == element.name());
            let Some(value) = same.or_else(|| actual.find(element.name())).map(|element| element.value())
            else {
                continue;
            };
            path.push(element.name());
            match (element.value(), value) {
                (Value::Document(recorded), Value::Document(actual)) => self.pairs(recorded, actual, path),
                (Value::Array(recorded), Value::Array(actual)) => {
                    self.pairs(recorded.as_document(), actual.as_document(), path)
                }
                (recorded, actual)
                    if recorded.kind() == actual.kind() && self.is_generated(path, &recorded) =>
                {
                    if let Some(key) = key(path, &recorded) {
                        lock(&self.values).entry(key).or_insert_with(|| actual.to_owned());
                    }
                }
                _ => {}
            }
            path.pop();
        }
    }

    /// Returns true if the recorded server generated this value.
    pub(super) fn is_generated(&self, path: &[&str], value: &Value<'_>) -> bool {
        match value {
            Value::Timestamp(_) => true,
            Value::String(_) => path.last() == Some(&"_data"),
            other => id_of(other).is_some_and(|id| self.server_generated.contains(&id)),
        }
    }
}

/// Returns the key of a value that servers generate; `None` for other values.
fn key(path: &[&str], value: &Value<'_>) -> Option<Vec<u8>> {
    let mut key = vec![value.kind() as u8];
    match value {
        Value::Timestamp(time) => key.extend(time.to_le_bytes()),
        Value::String(text) if path.last() == Some(&"_data") => key.extend(text.as_bytes()),
        other => key.extend(id_of(other)?),
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::{parse, to_relaxed};

    fn sent(mapping: &Mapping<'_>, text: &str) -> String {
        let body = parse(text).unwrap();
        let sections = mapping.request(&Sections { body: body.view(), sequences: Vec::new() });
        to_relaxed(Sections::parse(&sections).unwrap().body)
    }

    #[test]
    fn cursors_are_translated() {
        let generated = HashSet::new();
        let mapping = Mapping::new([0; 16], &generated);
        let getmore = parse("{getMore: NumberLong(7), collection: 'c'}").unwrap();
        let parts = Sections { body: getmore.view(), sequences: Vec::new() };
        assert!(mapping.lacks_cursor(&parts));
        mapping.learn(
            &parse("{cursor: {id: NumberLong(7)}}").unwrap(),
            &parse("{cursor: {id: NumberLong(99)}}").unwrap(),
        );
        assert!(!mapping.lacks_cursor(&parts));
        assert!(mapping.is_cursor(7, 99) && !mapping.is_cursor(7, 7) && !mapping.is_cursor(8, 99));
        assert!(sent(&mapping, "{getMore: NumberLong(7), collection: 'c'}").contains("99"));
        assert!(sent(&mapping, "{killCursors: 'c', cursors: [NumberLong(7)]}").contains("99"));
        assert!(
            sent(&mapping, "{find: 'c', filter: {a: NumberLong(7)}}").contains('7'),
            "only ids of cursors"
        );
    }

    #[test]
    fn session_ids_are_masked_and_cluster_times_removed() {
        let generated = HashSet::new();
        let text =
            "{ping: 1, lsid: {id: UUID('00000000-0000-4000-8000-000000000000')}, $clusterTime: {a: 1}}";
        let (first, second) = (Mapping::new([0xFF; 16], &generated), Mapping::new([0x55; 16], &generated));
        assert_ne!(sent(&first, text), sent(&second, text));
        assert!(!sent(&first, text).contains("clusterTime"));
        // ffffffff-ffff-4fff-bfff-ffffffffffff: version 4 stays version 4.
        let found = sent(&first, text);
        assert!(found.contains("////////T/+//////////w=="), "{found}");
    }

    #[test]
    fn generated_ids_are_learned_and_client_ids_stay() {
        let (recorded, target) = ("0123456789abcdef01234567", "ffffffffffffffffffffffff");
        let reply =
            |id: &str| parse(&format!("{{upserted: [{{index: 0, _id: ObjectId('{id}')}}], ok: 1}}")).unwrap();
        let find = format!("{{find: 'c', filter: {{_id: ObjectId('{recorded}')}}}}");
        let none = HashSet::new();
        let mapping = Mapping::new([0; 16], &none);
        mapping.learn(&reply(recorded), &reply(target));
        assert!(sent(&mapping, &find).contains(recorded));
        let generated = HashSet::from([base::bson::ObjectId::parse(recorded).unwrap().0.to_vec()]);
        let mapping = Mapping::new([0; 16], &generated);
        mapping.learn(&reply(recorded), &reply(target));
        assert!(sent(&mapping, &find).contains(target));
    }
}

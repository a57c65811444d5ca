//! Replays one recorded conversation and judges every reply.
//!
//! What is compared and what isn't follows the README beside the recordings. Ids that the server
//! made (cursors, ObjectIds that no command had said before) may differ from the recorded ones,
//! but consistently: they are translated in later commands.

use crate::client::Client;
use crate::describe::rewrite;
use base::bson::extended_json::{parse, value_to_canonical, value_to_shell};
use base::bson::{Array, Document, DocumentBuf, ObjectId, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Never compared.
const UNCOMPARED: &[&str] = &[
    "$clusterTime",
    "connectionId",
    "dropped",
    "electionId",
    "errInfo",
    "errmsg",
    "localTime",
    "note",
    "opTime",
    "operationTime",
    "signature",
    "storageStats",
    "topologyVersion",
    "uuid",
];
/// Never sent.
const UNSENT: &[&str] = &["$clusterTime", "afterClusterTime", "atClusterTime"];
/// Of these `ok` alone is compared; lower case.
const OK_ALONE: &[&str] = &[
    "buildinfo",
    "collstats",
    "currentop",
    "datasize",
    "dbstats",
    "endsessions",
    "explain",
    "getcmdlineopts",
    "getparameter",
    "hostinfo",
    "killallsessions",
    "killallsessionsbypattern",
    "killsessions",
    "listcommands",
    "listdatabases",
    "profile",
    "refreshsessions",
    "serverstatus",
    "setparameter",
    "startsession",
    "top",
    "validate",
];
/// Replies of these hold users' documents, in which every field counts.
const WITH_DOCUMENTS: &[&str] =
    &["aggregate", "distinct", "find", "findAndModify", "findandmodify", "getMore"];

/// A line of a recording.
pub(crate) struct Exchange {
    pub(crate) connection: i64,
    pub(crate) command: DocumentBuf,
    pub(crate) reply: Option<DocumentBuf>,
}

impl Exchange {
    /// Reads a line. Panics where it is none: the recordings are fixed.
    pub(crate) fn parse(line: &str) -> Exchange {
        let line = parse(line).unwrap();
        let document = |name| Some(line.view().get(name)?.as_document()?.to_owned());
        Exchange {
            connection: line.view().get("c").and_then(|c| c.as_i64()).unwrap(),
            command: document("q").unwrap(),
            reply: document("r"),
        }
    }

    /// The command's name.
    pub(crate) fn name(&self) -> &str {
        self.command.view().first().map_or("", |element| element.name())
    }

    /// The command's database.
    pub(crate) fn database(&self) -> &str {
        self.command.view().get("$db").and_then(|db| db.as_str()).unwrap_or("")
    }

    /// All names with a dollar in the command: its operators and stages.
    pub(crate) fn operators(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        rewrite(self.command.view(), &mut |name, _| {
            if name.starts_with('$') && name.len() > 1 && !matches!(name, "$db" | "$clusterTime") {
                found.insert(name.to_string());
            }
            Some(None)
        });
        found
    }

    fn sorts(&self) -> bool {
        let command = self.command.view();
        command.find("sort").is_some() || self.operators().contains("$sort")
    }
}

/// What may differ in all replies of a command. Paths leave out positions in arrays.
pub(crate) trait Leniency {
    /// Whether a field isn't compared.
    fn skips(&self, command: &str, path: &str) -> bool;
    /// Whether a document's fields, or an array's elements, may come in another order.
    fn reorders(&self, command: &str, path: &str) -> bool;
}

/// How a reply compares.
pub(crate) enum Verdict {
    Same,
    /// The same documents in another order, no order having been asked for.
    Unordered,
    Different {
        /// The first field that differs, dotted.
        path: String,
        expected: String,
        actual: String,
    },
}

/// Ids of this server by the recorded ones, over one conversation.
#[derive(Default)]
pub(crate) struct Replay {
    /// Recorded cursor → own cursor and whether its command sorts.
    cursors: BTreeMap<i64, (i64, bool)>,
    made: HashMap<ObjectId, ObjectId>,
    said: BTreeSet<ObjectId>,
}

impl Replay {
    /// The command as this server must get it.
    pub(crate) fn translate(&mut self, exchange: &Exchange) -> DocumentBuf {
        let names_cursors = matches!(exchange.name(), "getMore" | "killCursors");
        rewrite(exchange.command.view(), &mut |name, value| match value {
            _ if UNSENT.contains(&name) => None,
            Value::Int64(id) if names_cursors => {
                let own = self.cursors.get(&id).map_or(id, |cursor| cursor.0);
                Some(Some(Value::Int64(own).to_owned()))
            }
            Value::ObjectId(id) => match self.made.get(&id) {
                Some(own) => Some(Some(Value::ObjectId(*own).to_owned())),
                None => {
                    self.said.insert(id);
                    Some(None)
                }
            },
            _ => Some(None),
        })
    }

    /// Sends the command and compares the reply. Errors are those of the connection.
    pub(crate) fn exchange(
        &mut self,
        exchange: &Exchange,
        client: &mut Client,
        leniency: &dyn Leniency,
    ) -> std::io::Result<(Verdict, Option<DocumentBuf>)> {
        let command = self.translate(exchange);
        let Some(expected) = &exchange.reply else {
            client.command_unacknowledged(&command)?;
            return Ok((Verdict::Same, None));
        };
        let reply = client.command(&command)?;
        let verdict = self.judge(exchange, expected.view(), reply.view(), leniency);
        Ok((verdict, Some(reply)))
    }

    fn judge(
        &mut self,
        exchange: &Exchange,
        expected: Document<'_>,
        actual: Document<'_>,
        leniency: &dyn Leniency,
    ) -> Verdict {
        let sorts = self.note_cursor(exchange, expected, actual);
        let ok = |reply: Document<'_>| reply.get("ok").and_then(|ok| ok.as_i64());
        if ok(expected) != ok(actual) {
            if leniency.skips(exchange.name(), "ok") {
                return Verdict::Same;
            }
            return different("ok", expected.get("ok"), actual.get("ok"));
        }
        if OK_ALONE.contains(&exchange.name().to_ascii_lowercase().as_str()) {
            return Verdict::Same;
        }
        if ok(expected) == Some(0) {
            let code = |reply: Document<'_>| reply.get("code").and_then(|code| code.as_i64());
            let same = code(expected) == code(actual);
            return if same {
                Verdict::Same
            } else {
                different("code", expected.get("code"), actual.get("code"))
            };
        }
        if exchange.name() == "aggregate" && exchange.command.view().get("explain").is_some() {
            // An explanation like any other.
            return Verdict::Same;
        }
        let mut comparison = Comparison {
            replay: self,
            command: exchange.name(),
            leniency,
            all_fields: WITH_DOCUMENTS.contains(&exchange.name()),
            may_reorder: !sorts,
            reordered: false,
        };
        match comparison.replies(expected, actual) {
            Err(difference) => difference,
            Ok(()) if comparison.reordered => Verdict::Unordered,
            Ok(()) => Verdict::Same,
        }
    }

    /// Remembers the cursor that the reply opened or went on with; returns whether it sorts.
    fn note_cursor(&mut self, exchange: &Exchange, expected: Document<'_>, actual: Document<'_>) -> bool {
        let id = |reply: Document<'_>| reply.get("cursor")?.as_document()?.get("id")?.as_i64();
        let earlier = exchange.command.view().first().and_then(|element| element.value().as_i64());
        let earlier = earlier.and_then(|id| self.cursors.get(&id)).map(|cursor| cursor.1);
        let sorts = earlier.unwrap_or_else(|| exchange.sorts());
        if let (Some(recorded), Some(own)) = (id(expected), id(actual))
            && recorded != 0
        {
            self.cursors.insert(recorded, (own, sorts));
        }
        sorts
    }

    fn same_object_id(&mut self, expected: ObjectId, actual: ObjectId) -> bool {
        if expected == actual {
            return true;
        }
        if self.said.contains(&expected) {
            return false;
        }
        *self.made.entry(expected).or_insert(actual) == actual
    }
}

fn different(path: &str, expected: Option<Value<'_>>, actual: Option<Value<'_>>) -> Verdict {
    let text = |value: Option<Value<'_>>| value.map_or("nothing".to_string(), value_to_shell);
    Verdict::Different { path: path.to_string(), expected: text(expected), actual: text(actual) }
}

struct Comparison<'r> {
    replay: &'r mut Replay,
    command: &'r str,
    leniency: &'r dyn Leniency,
    all_fields: bool,
    may_reorder: bool,
    reordered: bool,
}

impl Comparison<'_> {
    /// Every field of the recorded reply must be there; more may be.
    fn replies(&mut self, expected: Document<'_>, actual: Document<'_>) -> Result<(), Verdict> {
        for element in expected {
            let name = element.name();
            if UNCOMPARED.contains(&name) || name == "ok" || self.leniency.skips(self.command, name) {
                continue;
            }
            match actual.get(name) {
                Some(value) => self.values(name, element.value(), value)?,
                None => return Err(different(name, Some(element.value()), None)),
            }
        }
        Ok(())
    }

    fn values(&mut self, path: &str, expected: Value<'_>, actual: Value<'_>) -> Result<(), Verdict> {
        let failed = || different(path, Some(expected), Some(actual));
        let same = match (expected, actual) {
            (Value::Document(a), Value::Document(b)) => return self.documents(path, a, b),
            (Value::Array(a), Value::Array(b)) => return self.arrays(path, a, b),
            (Value::ObjectId(a), Value::ObjectId(b)) => self.replay.same_object_id(a, b),
            (Value::Int64(a), Value::Int64(b)) if path == "cursor.id" => (a == 0) == (b == 0),
            // One NaN is as good as another; all else is compared bit by bit.
            (Value::Double(a), Value::Double(b)) if a.is_nan() => b.is_nan(),
            (a, b) => a.to_owned() == b.to_owned(),
        };
        if same { Ok(()) } else { Err(failed()) }
    }

    fn documents(&mut self, path: &str, expected: Document<'_>, actual: Document<'_>) -> Result<(), Verdict> {
        let general = without_positions(path);
        let counted = |name: &str| {
            (self.all_fields || !UNCOMPARED.contains(&name))
                && !self.leniency.skips(self.command, &format!("{general}.{name}"))
        };
        let reorders = self.leniency.reorders(self.command, &general);
        let fields = |document| {
            let mut fields: Vec<_> = Document::iter(document).filter(|e| counted(e.name())).collect();
            if reorders {
                fields.sort_by_key(|field| field.name());
            }
            fields
        };
        let (left, right) = (fields(expected), fields(actual));
        for (at, element) in left.iter().enumerate() {
            let inner = format!("{path}.{}", element.name());
            match right.get(at) {
                Some(other) if other.name() == element.name() => {
                    self.values(&inner, element.value(), other.value())?;
                }
                _ => {
                    let elsewhere = right.iter().any(|other| other.name() == element.name());
                    let what = if elsewhere { format!("{inner} (elsewhere)") } else { inner };
                    return Err(different(&what, Some(element.value()), right.get(at).map(|e| e.value())));
                }
            }
        }
        match right.get(left.len()) {
            Some(extra) => Err(different(&format!("{path}.{}", extra.name()), None, Some(extra.value()))),
            None => Ok(()),
        }
    }

    fn arrays(&mut self, path: &str, expected: Array<'_>, actual: Array<'_>) -> Result<(), Verdict> {
        let result = self.array_in_order(path, expected, actual);
        let is_batch = matches!(path, "cursor.firstBatch" | "cursor.nextBatch");
        if result.is_err() && is_batch && self.may_reorder && same_in_any_order(expected, actual) {
            self.reordered = true;
            return Ok(());
        }
        let general = without_positions(path);
        if result.is_err()
            && self.leniency.reorders(self.command, &general)
            && same_in_any_order(expected, actual)
        {
            return Ok(());
        }
        result
    }

    fn array_in_order(&mut self, path: &str, expected: Array<'_>, actual: Array<'_>) -> Result<(), Verdict> {
        let mut others = actual.iter();
        for (at, value) in expected.iter().enumerate() {
            let inner = format!("{path}.{at}");
            match others.next() {
                Some(other) => self.values(&inner, value, other)?,
                None => return Err(different(&inner, Some(value), None)),
            }
        }
        match others.next() {
            Some(extra) => Err(different(&format!("{path}.{}", expected.len()), None, Some(extra))),
            None => Ok(()),
        }
    }
}

/// A path without positions in arrays, which are of no interest to a rule.
fn without_positions(path: &str) -> String {
    let parts: Vec<_> = path.split('.').filter(|part| part.parse::<u32>().is_err()).collect();
    parts.join(".")
}

fn same_in_any_order(a: Array<'_>, b: Array<'_>) -> bool {
    let sorted = |array: Array<'_>| {
        let mut texts: Vec<_> = array.iter().map(value_to_canonical).collect();
        texts.sort();
        texts
    };
    sorted(a) == sorted(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Skips `listIndexes`'s `ns` and lets the fields of its indexes come in any order.
    struct OfIndexes;

    impl Leniency for OfIndexes {
        fn skips(&self, command: &str, path: &str) -> bool {
            (command, path) == ("listIndexes", "cursor.firstBatch.ns")
        }

        fn reorders(&self, command: &str, path: &str) -> bool {
            (command, path) == ("listIndexes", "cursor.firstBatch")
        }
    }

    fn judge(command: &str, expected: &str, actual: &str) -> Result<bool, String> {
        let exchange = Exchange {
            connection: 0,
            command: parse(command).unwrap(),
            reply: Some(parse(expected).unwrap()),
        };
        let mut replay = Replay::default();
        replay.translate(&exchange);
        let (expected, actual) = (parse(expected).unwrap(), parse(actual).unwrap());
        match replay.judge(&exchange, expected.view(), actual.view(), &OfIndexes) {
            Verdict::Same => Ok(true),
            Verdict::Unordered => Ok(false),
            Verdict::Different { path, .. } => Err(path),
        }
    }

    #[test]
    fn replies_are_judged_by_the_rules_of_the_recordings() {
        let find = "{find: 'c', filter: {_id: ObjectId('000000000000000000000001')}}";
        let batch = |documents: &str| {
            format!("{{cursor: {{firstBatch: [{documents}], id: NumberLong(0)}}, ok: 1.0}}")
        };
        let check = |expected: &str, actual: &str| judge(find, &batch(expected), &batch(actual));
        assert_eq!(check("{a: 1}", "{a: 1}"), Ok(true));
        assert_eq!(check("{a: 1}", "{a: 1.0}"), Err("cursor.firstBatch.0.a".to_string()));
        assert_eq!(check("{a: 1}, {b: 1}", "{b: 1}, {a: 1}"), Ok(false));
        assert_eq!(check("{a: 1, note: 1}", "{a: 1}"), Err("cursor.firstBatch.0.note".to_string()));
        assert_eq!(
            check("{a: 1, b: 2}", "{b: 2, a: 1}"),
            Err("cursor.firstBatch.0.a (elsewhere)".to_string())
        );
        let (said, made) = ("ObjectId('000000000000000000000001')", "ObjectId('000000000000000000000002')");
        assert!(check(&format!("{{a: {said}}}"), &format!("{{a: {made}}}")).is_err());
        assert_eq!(check(&format!("{{a: {made}}}"), &format!("{{a: {said}}}")), Ok(true));
        assert_eq!(judge(find, "{ok: 0, code: 2, errmsg: 'a'}", "{ok: 0.0, code: 2, errmsg: 'b'}"), Ok(true));
        assert_eq!(judge(find, "{ok: 0, code: 2}", "{ok: 0.0, code: 9}"), Err("code".to_string()));
        assert_eq!(judge(find, "{ok: 1}", "{ok: 0, code: 9}"), Err("ok".to_string()));
        assert_eq!(judge("{insert: 'c'}", "{n: 1, ok: 1}", "{n: 1, more: 2, ok: 1}"), Ok(true));
        let list = "{listIndexes: 'c'}";
        assert_eq!(judge(list, &batch("{a: 1, b: 2, ns: 'd.c'}"), &batch("{b: 2, a: 1}")), Ok(true));
        assert!(judge(list, &batch("{a: 1, ns: 'd.c'}"), &batch("{a: 2}")).is_err());
        assert_eq!(judge("{explain: {}}", "{a: 1, ok: 1}", "{ok: 1}"), Ok(true));
    }
}

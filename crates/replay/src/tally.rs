//! Counts of a replay's observations: of all requests, by command and by shape.
//!
//! The shape of a request is its text without values, like MongoDB's query shape. Requests of one shape are counted
//! together. A new part of a shape is a case in [`shape_of`]; a new count is a field of [`Tally`].

use super::{Exchange, Observation, Script};
use crate::message::Sections;
use base::bson::{Document, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Number of shapes with their own group. Further shapes share one group.
const SHAPES_MAX: usize = 16;

/// Groups of requests in three ways: all in one, by command, and by shape.
pub struct Grouping {
    /// Names of the groups, ordered by time, longest first.
    pub names: [Vec<String>; 3],
    /// Groups of each exchange.
    groups: Vec<[usize; 3]>,
    /// True for an exchange that overlapped with a write: their order is unknown.
    overlaps: Vec<bool>,
}

/// Counts of one group.
#[derive(Debug, Default)]
pub struct Tally {
    /// Times of requests that succeeded.
    pub latencies: Vec<Duration>,
    /// Requests without a reply.
    pub failures: u64,
    /// Reason of the first failure.
    pub first_error: Option<String>,
    /// Requests sent more than a millisecond after they were due.
    pub late: u64,
    /// Replies with another error than recorded.
    pub errors: u64,
    /// Replies that differ from the recorded ones.
    pub replies: u64,
    /// Differences of either kind in requests that overlapped with writes in the recording.
    pub order_dependent: u64,
}

impl Grouping {
    /// Returns the groups of a recording.
    pub fn of(script: &Script) -> Grouping {
        let by = |name: fn(&Exchange) -> &str| {
            names(script.exchanges.iter().map(|exchange| (name(exchange), time_of(exchange))))
        };
        let (commands, mut shapes) = (by(|exchange| &exchange.command), by(|exchange| &exchange.shape));
        if shapes.len() > SHAPES_MAX + 1 {
            shapes.truncate(SHAPES_MAX);
            shapes.push("all others".to_string());
        }
        let index = |names: &[String], name: &str| {
            names.iter().position(|known| known == name).unwrap_or_else(|| names.len().saturating_sub(1))
        };
        let groups = script.exchanges.iter();
        let groups = groups
            .map(|exchange| [0, index(&commands, &exchange.command), index(&shapes, &exchange.shape)])
            .collect();
        let overlaps = script.exchanges.iter().map(|exchange| exchange.overlaps).collect();
        Grouping { names: [vec!["everything".to_string()], commands, shapes], groups, overlaps }
    }

    /// Counts observations in one of the three ways: one tally for each name.
    pub fn count(&self, grouping: usize, observations: &[Observation]) -> Vec<Tally> {
        let mut tallies: Vec<Tally> = self.names[grouping].iter().map(|_| Tally::default()).collect();
        for observation in observations {
            let group =
                self.groups.get(observation.exchange).and_then(|groups| tallies.get_mut(groups[grouping]));
            let overlaps = self.overlaps.get(observation.exchange).copied().unwrap_or(false);
            if let Some(tally) = group {
                tally.count(observation, overlaps);
            }
        }
        tallies
    }
}

impl Tally {
    /// Adds one observation. Differences of overlapping requests are counted separately.
    fn count(&mut self, observation: &Observation, overlaps: bool) {
        match &observation.result {
            Ok(()) => self.latencies.push(observation.latency),
            Err(why) => {
                self.failures += 1;
                self.first_error.get_or_insert_with(|| why.clone());
            }
        }
        self.late += u64::from(observation.late);
        let errors = u64::from(observation.error_differs.is_some());
        let replies = u64::from(observation.reply_differs.is_some());
        if overlaps {
            self.order_dependent += errors + replies;
        } else {
            self.errors += errors;
            self.replies += replies;
        }
    }
}

impl Script {
    /// Returns the observations of the recorder: the times of the recorded server.
    pub fn recorded(&self) -> Vec<Observation> {
        let exchanges = self.connections.iter().flat_map(|connection| &connection.exchanges);
        let observed = |&exchange: &usize| Observation {
            exchange,
            latency: Duration::from_micros(time_of(&self.exchanges[exchange]).max(1)),
            late: false,
            result: Ok(()),
            error_differs: None,
            reply_differs: None,
        };
        exchanges.map(observed).collect()
    }

    /// Returns the number of requests that a replay sends.
    pub fn requests(&self) -> u64 {
        self.connections.iter().map(|connection| connection.exchanges.len() as u64).sum()
    }

    /// Returns one sentence for each reason why requests are not replayed.
    pub fn skip_reasons(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((command, reason), times) in &self.skipped {
            by_reason.entry(reason).or_default().push(format!("{command} ({times})"));
        }
        let because = |reason| match reason {
            "not recorded" => "it was not recorded (handshakes, authentication, passwords, redacted values)",
            other => other,
        };
        by_reason
            .into_iter()
            .map(|(reason, commands)| format!("not sent, since {}: {}", because(reason), commands.join(", ")))
            .collect()
    }

    /// Returns failures and differences with their first examples. The second list has the differences that an unknown
    /// order explains.
    pub fn differences(&self, observations: &[Observation], check: bool) -> (Vec<String>, Vec<String>) {
        type Pick = fn(&Observation) -> Option<&String>;
        let error: Pick = |observation| observation.error_differs.as_ref();
        let reply: Pick = |observation| observation.reply_differs.as_ref();
        let select = |pick: Pick, overlapping: Option<bool>| {
            let chosen = observations.iter().filter(move |observation| {
                overlapping.is_none_or(|overlaps| self.exchanges[observation.exchange].overlaps == overlaps)
            });
            chosen.filter_map(move |observation| {
                Some(format!("{}: {}", self.exchanges[observation.exchange].shape, pick(observation)?))
            })
        };
        let (mut failures, mut order_dependent) = (Vec::new(), Vec::new());
        failures.extend(summary(
            "requests failed",
            select(|observation| observation.result.as_ref().err(), None).collect(),
        ));
        let errors = summary("replies have other errors than recorded", select(error, Some(false)).collect());
        if check { &mut failures } else { &mut order_dependent }.extend(errors);
        failures.extend(summary("replies differ", select(reply, Some(false)).collect()));
        order_dependent.extend(summary(
            ORDER_UNKNOWN,
            select(error, Some(true)).chain(select(reply, Some(true))).collect(),
        ));
        (failures, order_dependent)
    }
}

/// Text about requests that overlapped.
const ORDER_UNKNOWN: &str = "replies differ for requests that overlapped with recorded writes: the original \
 order is unknown";

/// Returns the number of differences and the first five.
fn summary(label: &str, all: Vec<String>) -> Option<String> {
    const SHOWN: usize = 5;
    let shown = all.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    let more = all.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!all.is_empty()).then(|| format!("{} {label}: {shown}{more}", all.len()))
}

/// Returns the time until the reply in microseconds.
fn time_of(exchange: &Exchange) -> u64 {
    exchange.ended().saturating_sub(exchange.at)
}

/// Returns each name once, ordered by time, longest first.
fn names<'a>(timed: impl Iterator<Item = (&'a str, u64)>) -> Vec<String> {
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    timed.for_each(|(name, time)| *times.entry(name).or_default() += time);
    let mut names: Vec<(&str, u64)> = times.into_iter().collect();
    names.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    names.into_iter().map(|(name, _)| name.to_string()).collect()
}

/// Maximum number of characters of a shape.
const LENGTH_MAX: usize = 100;

/// Maximum depth of a filter in a shape.
const DEPTH_MAX: usize = 6;

/// Returns the shape of a request: "find shop.orders {status, total: {$gt}} sort {total}".
pub(super) fn shape_of(parts: &Sections<'_>) -> String {
    let command = parts.command();
    let mut text = command.to_string();
    let collection = match command {
        "getMore" => text_of(parts.body, "collection"),
        _ => parts.body.first().and_then(|element| element.value().as_str()),
    };
    if let Some(collection) = collection {
        let _ = write!(text, " {}.{collection}", text_of(parts.body, "$db").unwrap_or("?"));
    }
    for name in ["filter", "query", "q", "sort", "update"] {
        if let Some(document) = parts.body.get(name).and_then(|value| value.as_document())
            && !document.is_empty()
        {
            text += if matches!(name, "sort" | "update") { keyword(name) } else { " " };
            fields(document, 0, &mut text);
        }
    }
    statements(parts, &mut text);
    if let Some(stages) = parts.body.get("pipeline").and_then(|value| value.as_array()) {
        let names = stages.iter().filter_map(|stage| Some(stage.as_document()?.first()?.name()));
        let _ = write!(text, " [{}]", names.collect::<Vec<_>>().join(" "));
    }
    shortened(text)
}

/// Returns the keyword before a sort or an update.
fn keyword(name: &str) -> &'static str {
    if name == "sort" { " sort " } else { " update " }
}

/// Appends the first statement of an update or delete, and a mark for further statements.
fn statements(parts: &Sections<'_>, text: &mut String) {
    for name in ["updates", "deletes"] {
        let (first, count) = list(parts, name);
        let Some(first) = first else { continue };
        for part in ["q", "u"] {
            if let Some(document) = first.get(part).and_then(|value| value.as_document()) {
                text.push(' ');
                fields(document, 0, text);
            }
        }
        if count > 1 {
            text.push_str(" and others");
        }
    }
}

/// Returns the first document of a list and the number of documents. The list may be in the body or a section.
fn list<'a>(parts: &Sections<'a>, name: &str) -> (Option<Document<'a>>, usize) {
    if let Some((_, list)) = parts.sequences.iter().find(|(known, _)| *known == name) {
        return (list.first().copied(), list.len());
    }
    let array = parts.body.get(name).and_then(|value| value.as_array());
    let first = array.and_then(|array| array.get(0)).and_then(|value| value.as_document());
    (first, array.map_or(0, |array| array.len().min(2)))
}

fn text_of<'a>(document: Document<'a>, name: &str) -> Option<&'a str> {
    document.get(name).and_then(|value| value.as_str())
}

/// Appends the field names of a document and of its contents, without values.
fn fields(document: Document<'_>, depth: usize, text: &mut String) {
    text.push('{');
    for (at, element) in document.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(element.name());
        let inner = match element.value() {
            Value::Document(inner) => Some(inner),
            // Alternatives are usually alike.
            Value::Array(inner) => inner.get(0).and_then(|value| value.as_document()),
            _ => None,
        };
        if let Some(inner) = inner.filter(|inner| depth < DEPTH_MAX && !inner.is_empty()) {
            text.push_str(": ");
            fields(inner, depth + 1, text);
        }
        if text.len() > LENGTH_MAX {
            break;
        }
    }
    text.push('}');
}

/// Cuts a text that is too long, with an ellipsis.
fn shortened(text: String) -> String {
    if text.chars().count() <= LENGTH_MAX {
        return text;
    }
    text.chars().take(LENGTH_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_requests_that_overlapped_are_counted_by_themselves() {
        let observation = |result: Result<(), String>, differs: bool| Observation {
            exchange: 0,
            latency: Duration::from_millis(1),
            late: true,
            result,
            error_differs: None,
            reply_differs: differs.then(|| "other".to_string()),
        };
        let mut tally = Tally::default();
        tally.count(&observation(Ok(()), true), false);
        tally.count(&observation(Ok(()), true), true);
        tally.count(&observation(Err("first".to_string()), false), false);
        tally.count(&observation(Err("second".to_string()), false), false);
        assert_eq!((tally.latencies.len(), tally.failures, tally.late), (2, 2, 4));
        assert_eq!((tally.replies, tally.errors, tally.order_dependent), (1, 0, 1));
        assert_eq!(tally.first_error.as_deref(), Some("first"));
    }

    #[test]
    fn names_are_in_the_order_of_their_time() {
        assert_eq!(names([("a", 1), ("b", 3), ("a", 1)].into_iter()), ["b", "a"]);
    }

    #[test]
    fn five_examples_are_listed_and_all_are_counted() {
        let many: Vec<String> = (1..=7).map(|n| format!("d{n}")).collect();
        assert_eq!(summary("differ", many).unwrap(), "7 differ: d1; d2; d3; d4; d5; and 2 more");
        assert_eq!(summary("differ", Vec::new()), None);
    }
}

#[cfg(test)]
mod shape_tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn shapes_have_names_and_no_values() {
        for (command, shape) in [
            (
                "{find: 'orders', filter: {status: 'new', total: {$gt: 5}}, sort: {total: 1}, $db: 'shop'}",
                "find shop.orders {status, total: {$gt}} sort {total}",
            ),
            (
                "{aggregate: 'orders', pipeline: [{$match: {a: 1}}, {$group: {_id: '$b'}}], $db: 'shop'}",
                "aggregate shop.orders [$match $group]",
            ),
            (
                "{update: 'orders', updates: [{q: {_id: 1}, u: {$set: {secret: 'x'}}}], $db: 'shop'}",
                "update shop.orders {_id} {$set: {secret}}",
            ),
            ("{delete: 'c', deletes: [{q: {}}, {q: {a: 1}}], $db: 'd'}", "delete d.c {} and others"),
            ("{getMore: NumberLong(5), collection: 'orders', $db: 'shop'}", "getMore shop.orders"),
            ("{ping: 1, $db: 'admin'}", "ping"),
            ("{find: 'c', filter: {$or: [{a: 1}, {b: 1}]}, $db: 'd'}", "find d.c {$or: {a}}"),
        ] {
            let body = parse(command).unwrap();
            assert_eq!(shape_of(&Sections { body: body.view(), sequences: Vec::new() }), shape);
        }
    }

    #[test]
    fn long_shapes_are_cut() {
        let names: Vec<String> = (0..100).map(|at| format!("field{at}: 1")).collect();
        let body = parse(&format!("{{find: 'c', filter: {{{}}}, $db: 'd'}}", names.join(", "))).unwrap();
        let shape = shape_of(&Sections { body: body.view(), sequences: Vec::new() });
        assert_eq!(shape.chars().count(), LENGTH_MAX);
    }
}

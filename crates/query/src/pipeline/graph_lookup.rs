//! `$graphLookup`: recursive search in another collection.
//!
//! The search is breadth-first: one filter looks up all values of a depth, so the number of queries equals the depth of
//! the graph. A new option is a case in [`parse`].
//!
//! ```text
//! {$graphLookup: {
//!     from: <collection>,
//!     startWith: <expression>,
//!     connectFromField: <path>,
//!     connectToField: <path>,
//!     as: <path>,
//!     maxDepth: <integer>,                    optional
//!     depthField: <path>,                     optional
//!     restrictSearchWithMatch: <filter>,      optional
//! }}
//! ```

use super::collections::Namespace;
use super::definition::Inputs;
use super::fields::{set_path, visit_values};
use super::operator::{Effect, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::expression::{Dependencies, Expression};
use crate::field_path::checked_path;
use crate::interrupt_check::InterruptCheck;
use crate::{Arena, Context, Matcher, Row, RowView};
use base::bson::{Builder, Document, DocumentBuf, Element, Path, Value, ValueBuf};
use base::{Result, bail, err, key_string};
use std::collections::HashSet;
use std::sync::Arc;

/// A parsed `$graphLookup`.
struct GraphLookup {
    from: Namespace,
    output: Path,
    start: Expression,
    connect_from: Path,
    connect_to: Path,
    depth_max: Option<u64>,
    depth_field: Option<Path>,
    restrict: Option<Arc<Matcher>>,
}

/// Parses `$graphLookup`. Errors: FailedToParse, 40100 to 40105 and 40185 as in MongoDB; the errors of expressions,
/// filters and paths.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        let found = spec.kind().alias();
        bail!(FailedToParse, "the $graphLookup stage specification must be an object, but found {found}");
    };
    let from = match options.get("from") {
        Some(Value::String(from)) => Namespace::local(from),
        Some(other) => {
            let found = other.kind().alias();
            bail!(FailedToParse, "$graphLookup 'from' field must be a string, but found {found}");
        }
        None => {
            bail!(FailedToParse, "missing 'from' option to $graphLookup stage specification: {options}");
        }
    };
    let (mut output, mut start, mut connect_from, mut connect_to) = (None, None, None, None);
    let (mut depth_max, mut depth_field, mut restrict) = (None, None, None);
    for option in options {
        match option.name() {
            "startWith" => start = Some(Expression::parse(option.value(), scope.context)?),
            "maxDepth" => depth_max = Some(parse_depth(option.value())?),
            "restrictSearchWithMatch" => restrict = Some(parse_restriction(option.value(), scope)?),
            "from" => {}
            "as" => output = Some(checked_path(text(&option)?)?),
            "connectFromField" => connect_from = Some(checked_path(text(&option)?)?),
            "connectToField" => connect_to = Some(checked_path(text(&option)?)?),
            "depthField" => depth_field = Some(checked_path(text(&option)?)?),
            other => bail!(40104, "unknown argument to $graphLookup: {other}"),
        }
    }
    let missing = || {
        err!(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified."
        )
    };
    Ok(Parsed::one(GraphLookup {
        from,
        output: output.ok_or_else(missing)?,
        start: start.ok_or_else(missing)?,
        connect_from: connect_from.ok_or_else(missing)?,
        connect_to: connect_to.ok_or_else(missing)?,
        depth_max,
        depth_field,
        restrict,
    }))
}

fn text<'a>(option: &Element<'a>) -> Result<&'a str> {
    let found = option.kind().alias();
    option
        .value()
        .as_str()
        .ok_or_else(|| err!(40103, "expected string as argument for {}, found: {found}", option.name()))
}

/// Parses `maxDepth`. Errors: 40100 to 40102.
fn parse_depth(value: Value<'_>) -> Result<u64> {
    let Some(number) = value.as_number() else {
        bail!(40100, "maxDepth must be numeric, found type: {}", value.kind().alias());
    };
    match number.to_i64_exact() {
        None => Err(err!(40102, "maxDepth could not be represented as a long long: {value}")),
        Some(depth) => u64::try_from(depth)
            .map_err(|_| err!(40101, "maxDepth requires a nonnegative argument, found: {depth}")),
    }
}

fn parse_restriction(value: Value<'_>, scope: &Scope<'_>) -> Result<Arc<Matcher>> {
    let Value::Document(filter) = value else {
        bail!(40185, "restrictSearchWithMatch must be an object, found {}", value.kind());
    };
    Ok(Arc::new(Matcher::parse(filter, scope.context)?))
}

pub(crate) fn inputs(specification: Value<'_>) -> Inputs<'_> {
    Inputs { pipelines: Vec::new(), ..Inputs::of_options(specification, "from") }
}

impl Operator for GraphLookup {
    fn effect(&self) -> Effect {
        Effect::Changes(vec![self.output.first().to_string()])
    }

    fn reads(&self) -> Reads {
        match self.start.dependencies() {
            Dependencies::Paths(paths) if self.output.components().len() == 1 => Reads::Also(paths),
            _ => Reads::Everything,
        }
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let interrupts = InterruptCheck::new(&environment.context);
        Ok(Box::new(Running {
            stage: self,
            input,
            environment: environment.clone(),
            interrupts,
            arena: Arena::new(),
        }))
    }
}

/// Searches for one input document at a time.
struct Running {
    stage: Arc<GraphLookup>,
    input: Stream,
    environment: Environment,
    interrupts: InterruptCheck,
    arena: Arena,
}

/// State of one document's search.
struct Search {
    /// The array of the found documents.
    output: Builder,
    /// Keys of the found `_id`s.
    visited: HashSet<Vec<u8>>,
    /// Keys of the values searched so far.
    searched: HashSet<Vec<u8>>,
    /// Values to search at the next depth.
    frontier: Vec<ValueBuf>,
    /// Approximate memory.
    bytes: usize,
    limit: usize,
}

fn key(value: Value<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    key_string::encode(value, true, &mut key);
    key
}

impl Search {
    fn new(limit: usize) -> Search {
        let mut output = Builder::new();
        output.begin_array(c"");
        let (visited, searched) = (HashSet::new(), HashSet::new());
        Search { output, visited, searched, frontier: Vec::new(), bytes: 0, limit }
    }

    fn enqueue(&mut self, value: Value<'_>) {
        let key = key(value);
        self.bytes += 2 * key.len();
        if self.searched.insert(key) {
            self.frontier.push(value.to_owned());
        }
    }

    /// Adds a found document. Errors: 40099 beyond the memory limit.
    fn visit(&mut self, stage: &GraphLookup, document: Document<'_>, depth: u64) -> Result<()> {
        let id = key(document.get("_id").unwrap_or(Value::Null));
        self.bytes += id.len() + document.bytes().len();
        if !self.visited.insert(id) {
            return Ok(());
        }
        if self.bytes > self.limit {
            bail!(40099, "$graphLookup reached maximum memory consumption");
        }
        match &stage.depth_field {
            Some(path) => {
                let depth = Value::Int64(i64::try_from(depth).unwrap_or(i64::MAX));
                self.output.push(&set_path(document, path, Some(depth)));
            }
            None => {
                self.output.push(document);
            }
        }
        let root = Value::Document(document);
        visit_values(root, stage.connect_from.components(), &mut |value| self.enqueue(value));
        Ok(())
    }
}

impl GraphLookup {
    /// Returns the filter for all documents of the next depth.
    fn filter(&self, values: &[ValueBuf], context: &Context) -> Result<Arc<Matcher>> {
        let mut builder = Builder::new();
        builder.begin_document(&self.connect_to);
        // Unlike in filters, null matches no missing field.
        if values.iter().any(|value| matches!(value.view(), Value::Null)) {
            builder.append(c"$exists", true);
        }
        builder.begin_array(c"$in");
        for value in values {
            builder.push(value);
        }
        let connected = Arc::new(Matcher::parse(builder.finish().view(), context)?);
        let all: Vec<_> = self.restrict.iter().chain([&connected]).collect();
        Ok(Matcher::all(all.iter().copied()).unwrap_or(connected))
    }
}

impl Running {
    /// Returns the documents that one document reaches, up to the maximum depth.
    fn search(&mut self, root: RowView<'_>) -> Result<DocumentBuf> {
        let stage = Arc::clone(&self.stage);
        let mut search = Search::new(self.environment.context.limits.graph_lookup);
        match stage.start.evaluate(root, &self.environment.context, &self.arena)? {
            Some(Value::Array(values)) => values.iter().for_each(|value| search.enqueue(value)),
            Some(value) => search.enqueue(value),
            None => {}
        }
        self.arena.reset();
        let mut depth = 0;
        while !search.frontier.is_empty() && stage.depth_max.is_none_or(|max| depth <= max) {
            let environment = &self.environment;
            let matcher = stage.filter(&std::mem::take(&mut search.frontier), &environment.context)?;
            let mut matches = environment.collections.find(&stage.from, matcher, environment)?;
            while let Some(row) = matches.next()? {
                let document = row.document.view();
                self.interrupts.check_bytes(document.bytes().len())?;
                search.visit(&stage, document, depth)?;
            }
            depth += 1;
        }
        Ok(search.output.finish())
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(row) = self.input.next()? else { return Ok(None) };
        let reached = self.search(row.view())?;
        let joined = set_path(row.document.view(), &self.stage.output, reached.view().get(""));
        self.environment.context.limits.check_document(joined.bytes().len())?;
        Ok(Some(row.with(joined)))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails};

    const STAFF: &str =
        "[{_id: 1}, {_id: 2, boss: 1}, {_id: 3, boss: 2}, {_id: 4, boss: 9}, {_id: 5, boss: [6, 3]},
        {_id: 6, boss: 5}]";

    #[track_caller]
    fn reaches(input: &str, more: &str, expected: &str) {
        let stage = format!(
            "[{{$graphLookup: {{from: 's', startWith: '$boss', connectFromField: 'boss', connectToField: '_id', as: 'r'
                {more}}}}}]"
        );
        Run::new(input, &stage).with("s", STAFF).gives(expected);
    }

    #[test]
    fn follows_connections_once() {
        reaches("[{boss: 2}]", "", "[{boss: 2, r: [{_id: 2, boss: 1}, {_id: 1}]}]");
        reaches("[{boss: 2}]", ", maxDepth: 0", "[{boss: 2, r: [{_id: 2, boss: 1}]}]");
        reaches(
            "[{boss: 6}]",
            ", depthField: 'd', restrictSearchWithMatch: {_id: {$gt: 3}}",
            "[{boss: 6, r: [{_id: 6, boss: 5, d: NumberLong(0)}, {_id: 5, boss: [6, 3], d: NumberLong(1)}]}]",
        );
        reaches("[{}]", "", "[{r: []}]");
        let to_missing = "[{$graphLookup: {from: 's', startWith: null, connectFromField: 'x', connectToField: 'y', \
            as: 'r'}}]";
        Run::new("[{}]", to_missing)
            .with("s", "[{_id: 1, y: null}, {_id: 2}]")
            .gives("[{r: [{_id: 1, y: null}]}]");
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$graphLookup: 1}]", 9, "must be an object, but found int");
        fails("[{$graphLookup: {as: 's'}}]", 9, "missing 'from' option");
        fails("[{$graphLookup: {from: 1}}]", 9, "'from' field must be a string, but found int");
        let with = |option: &str| format!("[{{$graphLookup: {{from: 's', {option}}}}}]");
        fails(&with("as: 'x'"), 40105, "requires 'from'");
        fails(&with("as: 1"), 40103, "expected string as argument for as, found: int");
        fails(&with("maxDepth: 'x'"), 40100, "maxDepth must be numeric, found type: string");
        fails(&with("maxDepth: -1"), 40101, "nonnegative argument, found: -1");
        fails(&with("maxDepth: 1.5"), 40102, "could not be represented as a long long: 1.5");
        fails(&with("x: 1"), 40104, "unknown argument to $graphLookup: x");
        fails(&with("restrictSearchWithMatch: 1"), 40185, "must be an object, found int");
    }
}

//! `$lookup`: adds matching documents of another collection as an array.
//!
//! The join is by equality (`localField`, `foreignField`), by a pipeline with variables (`let`), or both; the equality
//! then comes first in the pipeline. The equality is a normal filter, so the foreign collection's indexes serve it.
//! Without an index, a hash join runs ([`lookup_table`](super::lookup_table)). A following `$unwind` of the output runs
//! within this stage. Its matches are never collected, so a document may have more matches than an array can hold.
//! A new option is a case in [`parse`].
//!
//! ```text
//! {$lookup: {
//!     from: <collection>,                     absent if the pipeline begins with $documents
//!     localField: <path>,                     optional, together with foreignField
//!     foreignField: <path>,
//!     let: {<variable>: <expression>, …},     optional, for the pipeline
//!     pipeline: [<stage>, …],                 optional with both fields
//!     as: <path>,
//! }}
//! ```

use super::collections::Namespace;
use super::definition::Inputs;
use super::fields::{set_path, text_option, visit_values};
use super::lookup_table::{Equality, Join};
use super::r#match::{Match, matching};
use super::operator::{Effect, Operator, Reads};
use super::parse::{Parsed, Scope, SubPipelineStage};
use super::source::from_documents;
use super::unwind::Unwind;
use super::variables::{Let, parse_let};
use super::{Environment, Pipeline, Stage, Stream};
use crate::field_path::checked_path;
use crate::interrupt_check::InterruptCheck;
use crate::{Arena, Matcher, Row, RowView};
use base::bson::{Array, Builder, Document, DocumentBuf, Element, Path, Value, ValueBuf};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$lookup`.
#[derive(Clone)]
pub(super) struct Lookup {
    /// The foreign collection; `None` if the pipeline begins with `$documents`.
    pub(super) from: Option<Namespace>,
    output: Path,
    equality: Option<(Path, Path)>,
    pipeline: Option<Pipeline>,
    /// The equality of a hash join, if the stage has one.
    pub(super) hash_equality: Option<Equality>,
    variables: Let,
    /// The specification as given.
    spec: ValueBuf,
    /// The `$unwind` of the output, if joined to this stage.
    unwind: Option<Unwind>,
}

/// Parses `$lookup`. Errors: FailedToParse for invalid, missing and unknown options, with MongoDB's messages; the
/// errors of the pipeline.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(FailedToParse, "the $lookup specification must be an Object, but found {}", spec.kind());
    };
    let (mut from, mut output, mut local, mut foreign) = (None, None, None, None);
    let (mut stages, mut variables) = (None, None);
    for option in options {
        match option.name() {
            "pipeline" => stages = Some(stages_option(&option)?),
            "let" => variables = Some(parse_let("$lookup", &option, scope.context)?),
            "from" => from = Some(from_option(&option)?),
            "as" => output = Some(text_option("$lookup", &option)?),
            // Null means an absent option.
            "localField" | "foreignField" if option.value().is_nullish() => {}
            "localField" => local = Some(field_option(&option)?),
            "foreignField" => foreign = Some(field_option(&option)?),
            other => bail!(FailedToParse, "unknown argument to $lookup: {other}"),
        }
    }
    let output = output.ok_or_else(|| err!(FailedToParse, "must specify 'as' field for a $lookup"))?;
    let equality = equality(local, foreign, stages.is_some())?;
    if variables.is_some() && stages.is_none() {
        bail!(FailedToParse, "$lookup with a 'let' argument must also specify 'pipeline'");
    }
    let variables = variables.unwrap_or_default();
    let first = stages.and_then(|stages| stages.get(0)?.as_document()?.first());
    if from.is_none() && first.is_none_or(|first| !first.name().starts_with("$documents")) {
        bail!(FailedToParse, "missing 'from' option to $lookup stage specification: {spec}");
    }
    let pipeline = stages.map(|stages| sub_pipeline(stages, &variables, scope)).transpose()?;
    if from.is_none() && !pipeline.as_ref().is_some_and(begins_with_source) {
        bail!(FailedToParse, "missing 'from' option to $lookup stage specification: {spec}");
    }
    let first_stage = pipeline.as_ref().and_then(|pipeline| pipeline.first());
    if let Some(first) = first_stage.filter(|first| from.is_some() && first.needs_no_collection()) {
        bail!(InvalidNamespace, "'{}' can only be run with {{aggregate: 1}}", first.name);
    }
    let from = from.map(Namespace::local);
    let hash_equality = Equality::of(equality.as_ref(), pipeline.as_ref(), &variables.declare(scope.context));
    let (output, spec) = (checked_path(output)?, spec.value().to_owned());
    Ok(Parsed::one(Lookup { from, output, equality, pipeline, hash_equality, variables, spec, unwind: None }))
}

pub(crate) fn inputs(specification: Value<'_>) -> Inputs<'_> {
    Inputs::of_options(specification, "from")
}

/// Returns the name of the other collection.
///
/// Errors: FailedToParse for a value that is not a string. MongoDB allows `{db, coll}` only for a few internal
/// collections of a cluster, which do not exist here.
fn from_option<'a>(option: &Element<'a>) -> Result<&'a str> {
    let Value::Document(named) = option.value() else { return text_option("$lookup", option) };
    let named = Namespace::parse("$lookup.from", named)?;
    Err(err!(
        FailedToParse,
        "$lookup with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {} and coll: {}",
        named.database.unwrap_or_default(),
        named.collection
    ))
}

/// Parses a path. Errors: TypeMismatch for a value that is not a string, FailedToParse for an empty path, errors of
/// paths.
fn field_option(option: &Element<'_>) -> Result<Path> {
    let Value::String(text) = option.value() else {
        bail!(TypeMismatch, "$lookup argument '{option}' must be a string, is type {}", option.kind());
    };
    match text {
        "" => Err(err!(FailedToParse, "$lookup argument '{}' must not be empty", option.name())),
        text => checked_path(text),
    }
}

fn stages_option<'a>(option: &Element<'a>) -> Result<Array<'a>> {
    option
        .value()
        .as_array()
        .ok_or_else(|| err!(TypeMismatch, "'pipeline' option must be specified as an array"))
}

/// Returns the paths of the equality; both or neither must be given. Errors: FailedToParse.
fn equality(local: Option<Path>, foreign: Option<Path>, has_pipeline: bool) -> Result<Option<(Path, Path)>> {
    match (local, foreign) {
        (Some(local), Some(foreign)) => Ok(Some((local, foreign))),
        (None, None) if has_pipeline => Ok(None),
        (None, None) => Err(err!(
            FailedToParse,
            "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified"
        )),
        _ => Err(err!(
            FailedToParse,
            "$lookup requires both or neither of 'localField' and 'foreignField' to be specified"
        )),
    }
}

fn sub_pipeline(stages: Array<'_>, variables: &Let, scope: &Scope<'_>) -> Result<Pipeline> {
    let context = variables.declare(scope.context);
    let mut pipeline = scope.within(SubPipelineStage::Lookup, &context)?.pipeline(stages)?;
    pipeline.optimize(&context)?;
    Ok(pipeline)
}

/// Whether the pipeline begins with a source, such as `$documents` or `$collStats`, and not with the documents of the
/// collection.
fn begins_with_source(pipeline: &Pipeline) -> bool {
    !pipeline.reads_collection()
}

/// Returns the filter for equality with the local values. A missing value is null, and an array stands for its
/// elements. `$eq` compares a regular expression as a value, which `$in` would match as a pattern.
pub(crate) fn equality_filter(document: Document<'_>, local: &Path, foreign: &Path) -> DocumentBuf {
    let mut values = Vec::new();
    visit_values(Value::Document(document), local.components(), &mut |value| values.push(value));
    let mut builder = Builder::new();
    if let [] | [_] = values.as_slice() {
        let value = values.first().copied().unwrap_or(Value::Null);
        builder.begin_document(foreign).append(c"$eq", value).end();
    } else if values.iter().any(|value| matches!(value, Value::Regex { .. })) {
        builder.begin_array(c"$or");
        for value in values {
            builder.push_document().begin_document(foreign).append(c"$eq", value).end().end();
        }
        builder.end();
    } else {
        builder.begin_document(foreign).begin_array(c"$in");
        for value in values {
            builder.push(value);
        }
        builder.end().end();
    }
    builder.finish()
}

impl Operator for Lookup {
    fn effect(&self) -> Effect {
        match &self.unwind {
            Some(unwind) => Effect::Multiplies(unwind.changed()),
            None => Effect::Changes(vec![self.output.first().to_string()]),
        }
    }

    /// The joined `$unwind` avoids an array of all matches.
    fn unwinding(&self, unwind: &Unwind) -> Option<(DocumentBuf, Arc<dyn Operator>)> {
        if self.unwind.is_some() || unwind.path != self.output {
            return None;
        }
        let mut spec = Builder::new();
        spec.begin_document(c"$lookup");
        spec.append_all(self.spec.view().as_document().unwrap_or(Document::EMPTY));
        spec.begin_document(c"unwinding").append(c"preserveNullAndEmptyArrays", unwind.preserve);
        spec.append_optional(c"includeArrayIndex", unwind.index.as_ref().map(|path| path.as_str()))
            .end()
            .end();
        let operator = Lookup { unwind: Some(unwind.clone()), ..self.clone() };
        Some((spec.finish(), Arc::new(operator)))
    }

    fn reads(&self) -> Reads {
        let mut paths: Vec<Path> = self.equality.iter().map(|(local, _)| local.clone()).collect();
        match self.variables.dependencies() {
            Some(read) => {
                paths.extend(read);
                // A dotted output is set within the existing field.
                paths.extend(
                    (self.output.components().len() > 1).then(|| Path::new(self.output.first_name())),
                );
                Reads::Also(paths)
            }
            None => Reads::Everything,
        }
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let search = Search {
            interrupts: InterruptCheck::new(&environment.context),
            environment: environment.clone(),
            arena: Arena::new(),
            join: Join::NestedLoop(0),
        };
        match self.unwind.clone() {
            Some(unwind) => Ok(start_unwind(self, unwind, input, search)),
            None => Ok(Box::new(Running { stage: self, input, search, uncorrelated: None })),
        }
    }
}

/// Joins one input document at a time.
struct Running {
    stage: Arc<Lookup>,
    input: Stream,
    search: Search,
    /// The cached matches of an uncorrelated join, which are equal for all documents.
    uncorrelated: Option<DocumentBuf>,
}

/// State of the search for the matches of one document after another.
pub(super) struct Search {
    environment: Environment,
    pub(super) interrupts: InterruptCheck,
    arena: Arena,
    join: Join,
}

impl Search {
    /// Returns the stream of matches for one row.
    pub(super) fn matches(&mut self, stage: &Lookup, row: RowView<'_>) -> Result<Stream> {
        let environment = &self.environment;
        let filter =
            stage.equality.as_ref().map(|(local, foreign)| equality_filter(row.document, local, foreign));
        match (&stage.pipeline, &stage.from, filter) {
            (None, Some(from), Some(filter)) => {
                let context = &environment.context;
                let matcher = Arc::new(Matcher::parse(filter.view(), context)?);
                match self.join.candidates(stage, row.document, context, environment)? {
                    Some(candidates) => Ok(matching(from_documents(candidates), matcher, context.clone())),
                    None => environment.collections.find(from, matcher, environment),
                }
            }
            (Some(pipeline), from, filter) => {
                let context = stage.variables.set(row, &environment.context, &self.arena)?;
                self.arena.reset();
                let mut pipeline = pipeline.clone();
                if let Some(filter) = filter {
                    let at = usize::from(begins_with_source(&pipeline));
                    pipeline.steps.insert(at, Match::step(filter.view(), &context)?);
                }
                let candidates = self.join.candidates(stage, row.document, &context, environment)?;
                let environment = environment.with_context(context);
                match (candidates, from) {
                    (Some(candidates), _) => pipeline.run(from_documents(candidates), &environment),
                    (None, Some(from)) => environment.collections.aggregate(from, &pipeline, &environment),
                    (None, None) => pipeline.run(from_documents(Vec::new()), &environment),
                }
            }
            _ => Ok(from_documents(Vec::new())),
        }
    }

    /// Returns the matches as `{"": [ … ]}`.
    fn collect(&mut self, stage: &Lookup, mut matches: Stream) -> Result<DocumentBuf> {
        let limit = self.environment.context.limits.lookup;
        let mut builder = Builder::new();
        builder.begin_array(c"");
        while let Some(row) = matches.next()? {
            self.interrupts.check_bytes(row.document.view().bytes().len())?;
            builder.push(row.document.view());
            if builder.len() > limit {
                let from = stage.from.as_ref().map_or("", |from| from.collection.as_str());
                bail!(
                    4568,
                    "Total size of documents in {from} matching pipeline's $lookup stage exceeds {limit} bytes"
                );
            }
        }
        Ok(builder.finish())
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(row) = self.input.next()? else { return Ok(None) };
        self.search.interrupts.check()?;
        let collected = match self.uncorrelated.take() {
            Some(collected) => collected,
            None => {
                let matches = self.search.matches(&self.stage, row.view())?;
                self.search.collect(&self.stage, matches)?
            }
        };
        let joined = set_path(row.document.view(), &self.stage.output, collected.view().get(""));
        self.search.interrupts.check_bytes(joined.bytes().len())?;
        self.search.environment.context.limits.check_document(joined.bytes().len())?;
        if self.stage.equality.is_none() && self.stage.variables.is_empty() {
            self.uncorrelated = Some(collected);
        }
        Ok(Some(row.with(joined)))
    }
}

/// Joins one input document at a time, and returns its matches one by one.
struct RunningUnwind {
    stage: Arc<Lookup>,
    unwind: Unwind,
    input: Stream,
    search: Search,
    current: Option<Current>,
}

/// The row being joined, the remaining matches and the number of matches so far.
struct Current {
    row: Row,
    matches: Stream,
    position: i64,
}

pub(super) fn start_unwind(stage: Arc<Lookup>, unwind: Unwind, input: Stream, search: Search) -> Stream {
    Box::new(RunningUnwind { stage, unwind, input, search, current: None })
}

impl Stage for RunningUnwind {
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            self.search.interrupts.check()?;
            if let Some(current) = &mut self.current {
                let document = current.row.document.view();
                if let Some(found) = current.matches.next()? {
                    let found = Value::Document(found.document.view());
                    let joined = self.unwind.output(document, Some(found), Some(current.position));
                    current.position += 1;
                    return Ok(Some(current.row.copy(joined)));
                }
                let unmatched = current.position == 0 && self.unwind.preserve;
                let alone = unmatched.then(|| {
                    // As if an empty array were unwound: documents on a dotted path stay.
                    let joined = set_path(document, &self.stage.output, Some(Value::Array(Array::EMPTY)));
                    current.row.copy(self.unwind.output(joined.view(), None, None))
                });
                self.current = None;
                if let Some(alone) = alone {
                    return Ok(Some(alone));
                }
            }
            let Some(row) = self.input.next()? else { return Ok(None) };
            let matches = self.search.matches(&self.stage, row.view())?;
            self.current = Some(Current { row, matches, position: 0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails};

    const FOREIGN: &str =
        "[{_id: 1, x: 1}, {_id: 2, x: [1, 2]}, {_id: 3, x: null}, {_id: 4}, {_id: 5, x: /a/}]";

    fn joined(input: &str, stage: &str, expected: &str) {
        Run::new(input, &format!("[{{$lookup: {stage}}}]")).with("f", FOREIGN).gives(expected);
    }

    #[test]
    fn equality_finds_arrays_nulls_and_missing() {
        let stage =
            "{from: 'f', localField: 'a', foreignField: 'x', as: 'r', pipeline: [{$project: {_id: 1}}]}";
        joined("[{a: 1}]", stage, "[{a: 1, r: [{_id: 1}, {_id: 2}]}]");
        joined("[{a: [1, 2]}]", stage, "[{a: [1, 2], r: [{_id: 1}, {_id: 2}]}]");
        joined("[{}]", stage, "[{r: [{_id: 3}, {_id: 4}]}]");
        joined("[{a: null}]", stage, "[{a: null, r: [{_id: 3}, {_id: 4}]}]");
        joined("[{a: /a/}]", stage, "[{a: /a/, r: [{_id: 5}]}]");
        let plain = "{from: 'f', localField: 'a', foreignField: 'x', as: 'r.s'}";
        joined("[{a: 2, r: {t: 0}}]", plain, "[{a: 2, r: {t: 0, s: [{_id: 2, x: [1, 2]}]}}]");
    }

    #[test]
    fn equality_uses_an_index() {
        let run = Run::new(
            "[{a: [1, 2]}, {a: 7}]",
            "[{$lookup: {from: 'f', localField: 'a', foreignField: 'x', as: 'r'}}]",
        );
        run.result().unwrap();
        let log = run.collections.log.lock();
        assert_eq!(log[..2], ["find f { x: { $in: [ 1, 2 ] } }", "find f { x: { $eq: 7 } }"]);
    }

    #[test]
    fn pipelines_see_their_variables() {
        joined(
            "[{a: 1}, {a: 4}]",
            "{from: 'f', let: {v: '$a'}, as: 'r', pipeline: [
                {$match: {$expr: {$eq: ['$_id', '$$v']}}}, {$project: {_id: 1, v: '$$v'}}]}",
            "[{a: 1, r: [{_id: 1, v: 1}]}, {a: 4, r: [{_id: 4, v: 4}]}]",
        );
        joined(
            "[{a: 3, b: 0}]",
            "{from: 'f', let: {v: '$a', b: '$b'}, as: 'r', pipeline: [{$match: {_id: 1}}, {$lookup:
                {from: 'f', let: {v: {$add: ['$$v', 1]}}, as: 's', pipeline: [
                    {$match: {$expr: {$eq: ['$_id', '$$v']}}}, {$project: {b: '$$b'}}]}}]}",
            "[{a: 3, b: 0, r: [{_id: 1, x: 1, s: [{_id: 4, b: 0}]}]}]",
        );
    }

    #[test]
    fn uncorrelated_pipelines_run_once() {
        let run =
            Run::new("[{a: 1}, {a: 2}]", "[{$lookup: {from: 'f', pipeline: [{$count: 'n'}], as: 'r'}}]");
        let run = run.with("f", FOREIGN);
        run.gives("[{a: 1, r: [{n: 5}]}, {a: 2, r: [{n: 5}]}]");
        // Once unoptimised and once optimised.
        assert_eq!(*run.collections.log.lock(), ["aggregate f", "aggregate f"]);
    }

    #[test]
    fn an_unwind_of_the_output_joins_it() {
        let stage = "{from: 'f', localField: 'a', foreignField: 'x', as: 'r'}";
        let run = |unwind: &str, expected: &str| {
            let pipeline = format!("[{{$lookup: {stage}}}, {{$unwind: {unwind}}}]");
            Run::new("[{a: 1}, {a: 8}]", &pipeline).with("f", FOREIGN).gives(expected);
        };
        run("'$r'", "[{a: 1, r: {_id: 1, x: 1}}, {a: 1, r: {_id: 2, x: [1, 2]}}]");
        run(
            "{path: '$r', preserveNullAndEmptyArrays: true, includeArrayIndex: 'i'}",
            "[{a: 1, r: {_id: 1, x: 1}, i: NumberLong(0)}, {a: 1, r: {_id: 2, x: [1, 2]}, i: NumberLong(1)},
              {a: 8, i: null}]",
        );
        Run::new(
            "[{a: 8}, {a: 8, r: [1]}]",
            "[{$lookup: {from: 'f', localField: 'a', foreignField: 'x', as: 'r.s'}},
              {$unwind: {path: '$r.s', preserveNullAndEmptyArrays: true}}]",
        )
        .with("f", FOREIGN)
        .gives("[{a: 8, r: {}}, {a: 8, r: {}}]");
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$lookup: 1}]", 9, "the $lookup specification must be an Object, but found int");
        fails(
            "[{$lookup: {from: 'f', localField: 'a', foreignField: 'b'}}]",
            9,
            "must specify 'as' field for a $lookup",
        );
        fails("[{$lookup: {from: 'f', as: 'r'}}]", 9, "requires either 'pipeline' or both");
        fails("[{$lookup: {from: 'f', as: 'r', localField: 'a'}}]", 9, "requires both or neither");
        fails("[{$lookup: {as: 'r', pipeline: []}}]", 9, "missing 'from' option");
        fails("[{$lookup: {from: 1, as: 'r', pipeline: []}}]", 9, "must be a string, is type int");
        fails("[{$lookup: {from: 'f', as: 'r', x: 1}}]", 9, "unknown argument to $lookup: x");
        fails(
            "[{$lookup: {from: 'f', as: 'r', pipeline: [{$out: 'x'}]}}]",
            51047,
            "$out is not allowed within a $lookup's sub-pipeline",
        );
        fails(
            "[{$lookup: {from: 'f', as: 'r', pipeline: [{$match: {$expr: '$$x'}}]}}]",
            17276,
            "Use of undefined variable: x",
        );
    }
}

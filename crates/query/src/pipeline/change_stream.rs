//! `$changeStream`: the events of the database, and the rules for stages after it.
//! `$changeStreamSplitLargeEvent` splits events that exceed the document size into fragments.

use super::definition::{Requester, Resource, Right, Streams, is_set};
use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::{Environment, Pipeline, Stage, Step, Stream};
use crate::Row;
use crate::change::split::{split, token_of};
use crate::change::{ResumeToken, Spec, id_modified};
use base::bson::{Document, DocumentBuf, Element, MAX_DOCUMENT_SIZE, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$changeStream`. The database reads its options from the specification.
struct ChangeStream;

/// Parses `$changeStream`. Errors: the errors of [`Spec::parse`]; 40573 on a standalone.
pub(crate) fn parse_change_stream(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    Spec::parse(spec)?;
    if scope.context.cluster_time.is_none() {
        bail!(40573, "The $changeStream stage is only supported on replica sets");
    }
    Ok(Parsed::one(ChangeStream))
}

/// Whether the stable API contains the options: `showExpandedEvents` is not a part of it.
pub(crate) fn is_stable(options: Document<'_>) -> bool {
    options.find("showExpandedEvents").is_none()
}

/// Returns the rights to read the watched collection, database or all databases.
pub(crate) fn rights<'v>(specification: Value<'v>, requester: &Requester<'_>) -> Vec<Right<'v>> {
    let on = match requester.collection {
        _ if is_set(specification, "allChangesForCluster") => Resource::AnyNormal,
        None => Resource::Database,
        Some(_) => Resource::Collection,
    };
    vec![Right { on, actions: &["changeStream", "find"] }]
}

impl Operator for ChangeStream {
    fn kind(&self) -> Kind<'_> {
        Kind::Source
    }

    /// The input of the pipeline already consists of events.
    fn start(self: Arc<Self>, input: Stream, _environment: &Environment) -> Result<Stream> {
        Ok(input)
    }
}

impl Pipeline {
    /// Checks the stages that only change streams may contain, and the stages that they may not contain.
    ///
    /// Errors: 7182802 for `$changeStreamSplitLargeEvent` that is not last, IllegalOperation otherwise.
    pub(super) fn check_change_stream(&self) -> Result<()> {
        let splits = |step: &&Step| step.definition.streams == Streams::Required;
        if let Some(step) = self.steps.iter().rev().skip(1).find(splits) {
            bail!(7182802, "{} must be the last stage in the pipeline", step.definition.name);
        }
        if !self.is_change_stream() {
            return self.steps.iter().find(splits).map_or(Ok(()), |step| {
                let name = step.definition.name;
                Err(err!(IllegalOperation, "{name} can only be used in a $changeStream pipeline"))
            });
        }
        let stranger = self.steps.iter().find(|step| step.definition.streams == Streams::Refused);
        stranger.map_or(Ok(()), |step| {
            // MongoDB names the stages that `$count` expands to.
            let shown = step.explained();
            let name = shown.first().and_then(|stage| stage.view().first());
            let name = name.as_ref().map_or("", |stage| stage.name());
            Err(err!(IllegalOperation, "{name} is not permitted in a $changeStream pipeline"))
        })
    }

    /// Whether the pipeline is a change stream.
    pub fn is_change_stream(&self) -> bool {
        self.steps.first().is_some_and(|step| step.definition.opens_stream())
    }

    /// Whether the pipeline splits large events.
    pub fn splits_events(&self) -> bool {
        self.steps.iter().any(|step| step.definition.streams == Streams::Required)
    }
}

/// Largest event that is not split, and largest fragment with its token. A reply has 8 KiB more.
const EVENT_SIZE_MAX: usize = MAX_DOCUMENT_SIZE + 8 * 1024;

/// A parsed `$changeStreamSplitLargeEvent`.
struct SplitLargeEvent {
    /// The fragment after which the stream resumes.
    resume: Option<ResumeToken>,
    most: usize,
}

/// Parses the stage. Errors: 7182800 for anything but an empty document.
pub(crate) fn parse_split_large_event(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    match spec.value() {
        Value::Document(fields) if fields.is_empty() => {}
        _ => bail!(7182800, "$changeStreamSplitLargeEvent spec should be an empty object"),
    }
    let stream = scope.first().and_then(|first| first.find("$changeStream"));
    let token = match stream.map(|stream| Spec::parse(&stream)).transpose()? {
        Some(spec) => spec.token().cloned(),
        None => None,
    };
    let resume = match token {
        Some(token) if token.parts()?.fragment.is_some() => Some(token),
        _ => None,
    };
    Ok(Parsed::one(SplitLargeEvent { resume, most: EVENT_SIZE_MAX }))
}

impl Operator for SplitLargeEvent {
    fn start(self: Arc<Self>, input: Stream, _environment: &Environment) -> Result<Stream> {
        let resume = self.resume.clone();
        Ok(Box::new(Running { stage: self, input, resume, queue: Vec::new() }))
    }
}

/// Splits one event at a time.
struct Running {
    stage: Arc<SplitLargeEvent>,
    input: Stream,
    resume: Option<ResumeToken>,
    /// Remaining fragments; the next is last.
    queue: Vec<DocumentBuf>,
}

impl Running {
    /// Returns the number of fragments of the event that the client has received already.
    fn skipped(&mut self, token: &ResumeToken, is_large: bool) -> Result<usize> {
        let Some(resume) = self.resume.take().filter(|resume| resume.is_fragment_of(token)) else {
            return Ok(0);
        };
        if !is_large {
            bail!(
                ChangeStreamFatalError,
                "Attempted to resume from a split event fragment, but the event in the resumed stream was not large \
                 enough to be split"
            );
        }
        Ok(resume.parts()?.fragment.map_or(0, |fragment| fragment as usize + 1))
    }

    /// Splits an event and queues the fragments that the client has not received. Errors: ChangeStreamFatalError if the
    /// event now has fewer fragments.
    fn fill(&mut self, event: Document<'_>, token: &ResumeToken) -> Result<()> {
        let skipped = self.skipped(token, true)?;
        self.queue = split(event, token, self.stage.most)?;
        if skipped > self.queue.len() {
            bail!(
                ChangeStreamFatalError,
                "Attempted to resume from a split event, but the resumed stream produced a different split. Ensure \
                 that the pipeline used to resume is the same as the original"
            );
        }
        self.queue.drain(..skipped);
        self.queue.reverse();
        Ok(())
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(fragment) = self.queue.pop() {
                return Ok(Some(fragment.into()));
            }
            let Some(row) = self.input.next()? else { return Ok(None) };
            let event = row.document.view();
            let is_large = event.bytes().len() > self.stage.most;
            if !is_large && self.resume.is_none() {
                return Ok(Some(row));
            }
            match token_of(event) {
                Some(token) if is_large => self.fill(event, &token)?,
                Some(token) => {
                    self.skipped(&token, false)?;
                    return Ok(Some(row));
                }
                // The reader of the stream detects a changed `_id`.
                None if !is_large => return Ok(Some(row)),
                None => return Err(id_modified(&ResumeToken::before(0), event)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::pipeline::testing::{self, Memory, collect, fails, with_array};
    use crate::pipeline::{Collections, Pipeline, from_documents};
    use base::Result;
    use base::bson::Builder;

    fn on_a_set(text: &str) -> Result<Pipeline> {
        let mut context = Context::for_tests();
        context.cluster_time = Some(1);
        with_array(text, |array| Pipeline::parse(array, &context))
    }

    #[track_caller]
    fn refused(text: &str, code: i32, message: &str) {
        testing::check(on_a_set(text).err(), code, message, text);
    }

    #[test]
    fn there_are_streams_on_replica_sets_only() {
        fails("[{$changeStream: {}}]", 40573, "The $changeStream stage is only supported on replica sets");
        fails("[{$changeStream: {x: 1}}]", 40415, "BSON field '$changeStream.x' is an unknown field.");
        let pipeline = on_a_set("[{$changeStream: {}}, {$match: {}}]").unwrap();
        assert!(pipeline.is_change_stream() && !pipeline.splits_events() && !pipeline.reads_collection());
        fails(
            "[{$lookup: {from: 'c', as: 'a', pipeline: [{$changeStream: {}}]}}]",
            40573,
            "$changeStream is not allowed within a $lookup's sub-pipeline",
        );
    }

    #[test]
    fn only_some_stages_may_follow() {
        let all = "[{$changeStream: {}}, {$match: {a: 1}}, {$project: {a: 1}}, {$addFields: {a: 1}}, {$set: {a: 1}},
            {$unset: 'a'}, {$replaceRoot: {newRoot: '$$ROOT'}}, {$replaceWith: '$$ROOT'}, {$redact: '$$KEEP'},
            {$changeStreamSplitLargeEvent: {}}]";
        assert!(on_a_set(all).unwrap().splits_events());
        refused(
            "[{$changeStream: {}}, {$limit: 1}]",
            20,
            "$limit is not permitted in a $changeStream pipeline",
        );
        refused("[{$changeStream: {}}, {$sortByCount: '$a'}]", 20, "$group is not permitted");
        refused("[{$changeStream: {}}, {$count: 'a'}]", 20, "$group is not permitted");
        refused(
            "[{$match: {}}, {$changeStream: {}}]",
            40602,
            "$changeStream is only valid as the first stage",
        );
    }

    #[test]
    fn a_stream_is_a_pipeline_of_its_own() {
        refused(
            "[{$facet: {a: [{$changeStream: {}}]}}]",
            40600,
            "$changeStream is not allowed to be used within",
        );
        let inner = "pipeline: [{$changeStream: {}}]";
        let lookup = format!("[{{$lookup: {{from: 'c', as: 'a', {inner}}}}}]");
        refused(&lookup, 51047, "$changeStream is not allowed within a $lookup's sub-pipeline");
        let union = format!("[{{$unionWith: {{coll: 'c', {inner}}}}}]");
        refused(&union, 31441, "$changeStream is not allowed within a $unionWith's sub-pipeline");
    }

    fn event(time: u64, sizes: &[usize]) -> DocumentBuf {
        let mut out = Builder::new();
        out.append(c"_id", &ResumeToken::sample(time).to_document());
        for (number, size) in sizes.iter().enumerate() {
            out.append(
                &base::bson::FieldNameBuf::new(format!("f{number}")).unwrap(),
                "x".repeat(*size).as_str(),
            );
        }
        out.finish()
    }

    fn run(resume: Option<ResumeToken>, events: &[DocumentBuf]) -> Result<Vec<String>> {
        run_with(SplitLargeEvent { resume, most: 1000 }, events)
    }

    fn run_with(stage: SplitLargeEvent, events: &[DocumentBuf]) -> Result<Vec<String>> {
        let stage = Arc::new(stage);
        let collections = Arc::new(Memory::default()) as Arc<dyn Collections>;
        let environment = Environment::new(collections, Arc::new(Context::for_tests()));
        let documents = collect(stage.start(from_documents(events.to_vec()), &environment)?)?;
        let shown = |document: &DocumentBuf| match document.view().get("splitEvent") {
            Some(Value::Document(split)) => {
                format!("{}/{}", split.get("fragment").unwrap(), split.get("of").unwrap())
            }
            _ => "whole".to_owned(),
        };
        Ok(documents.iter().map(shown).collect())
    }

    #[test]
    fn large_events_are_split() {
        let events = [event(1, &[10]), event(2, &[500, 600, 700]), event(3, &[10])];
        assert_eq!(run(None, &events).unwrap(), ["whole", "1/3", "2/3", "3/3", "whole"]);
        let token = ResumeToken::sample(2);
        let rest = &events[1..];
        assert_eq!(run(Some(token.fragment(0)), rest).unwrap(), ["2/3", "3/3", "whole"]);
        assert_eq!(run(Some(token.fragment(2)), rest).unwrap(), ["whole"]);
        let failed = |fragment, events: &[DocumentBuf]| run(Some(fragment), events).unwrap_err();
        assert!(failed(token.fragment(3), rest).message().contains("produced a different split"));
        let small = [event(2, &[10])];
        let error = failed(token.fragment(0), &small);
        assert!(error.code().number() == 280 && error.message().contains("was not large enough"));
    }

    #[test]
    fn an_event_with_the_largest_document_passes() {
        let stage = || SplitLargeEvent { resume: None, most: EVENT_SIZE_MAX };
        let largest = event(1, &[MAX_DOCUMENT_SIZE]);
        assert_eq!(run_with(stage(), &[largest]).unwrap(), ["whole"]);
        let updated = event(1, &[MAX_DOCUMENT_SIZE, MAX_DOCUMENT_SIZE]);
        assert_eq!(run_with(stage(), &[updated]).unwrap(), ["1/2", "2/2"]);
    }

    #[test]
    fn it_must_be_the_last_stage() {
        let split = "{$changeStreamSplitLargeEvent: {}}";
        fails(&format!("[{split}]"), 20, "can only be used in a $changeStream pipeline");
        fails(&format!("[{split}, {{$match: {{}}}}]"), 7182802, "must be the last stage in the pipeline");
        fails("[{$changeStreamSplitLargeEvent: {a: 1}}]", 7182800, "spec should be an empty object");
    }
}

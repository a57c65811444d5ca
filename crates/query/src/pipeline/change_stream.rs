//! `$changeStream`: the events of the database, and the rules for stages after it.

use super::definition::{Requester, Resource, Right, Streams, is_set};
use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::{Environment, Pipeline, Step, Stream};
use crate::change::Spec;
use base::bson::{Document, Element, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A parsed `$changeStream`. The database reads its options from the specification.
struct ChangeStream;

/// Parses `$changeStream`. Errors: the errors of [`Spec::parse`]; 40573 on a standalone.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
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

#[cfg(test)]
mod tests {
    use crate::Context;
    use crate::pipeline::testing::{fails, with_array};
    use crate::pipeline::{Pipeline, testing};
    use base::Result;

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
        refused(&lookup, 40573, "$changeStream is not allowed within a $lookup's sub-pipeline");
        let union = format!("[{{$unionWith: {{coll: 'c', {inner}}}}}]");
        refused(&union, 31441, "$changeStream is not allowed within a $unionWith's sub-pipeline");
    }
}

//! What becomes of `$meta` on the way through a pipeline.
//!
//! The source notes the metadata of the document it yields; a stage that passes each document on
//! before it pulls the next needs to do nothing. The others are named here: those that give a
//! document a sort key, those that hold documents back, and those that make new ones.

use super::operator::Kind;
use super::{Environment, Pipeline, Stage, Step, Stream};
use crate::{Context, MetaKind, Noted, SortPattern};
use base::Result;
use base::bson::{Document, DocumentCow, Value};
use std::sync::Arc;

/// Stages that hold documents back, and may look at them when others have come.
const HOLD_BACK: &[&str] = &["$bucketAuto", "$densify", "$facet", "$sample", "$setWindowFields"];

/// Stages whose documents are new, and have no metadata.
const MAKE_NEW: &[&str] = &["$bucketAuto", "$count", "$facet", "$group"];

impl Step {
    /// The input of the stage, if need be wrapped so that what it asks of documents held back is
    /// refused.
    pub(super) fn before(&self, input: Stream, environment: &Environment) -> Stream {
        let name = self.operator.name();
        if !environment.context.metadata.wants_any() || !HOLD_BACK.contains(&name) {
            return input;
        }
        let context = environment.context.clone();
        Box::new(Noting {
            input,
            context,
            source: From::Stage(Noted { lost_in: Some(name), ..Noted::default() }),
        })
    }

    /// The output of the stage, if need be wrapped so that its metadata is noted.
    ///
    /// Errors: those of parsing a sort's pattern again, which there are none of.
    pub(super) fn after(&self, output: Stream, environment: &Environment) -> Result<Stream> {
        if !environment.context.metadata.wants_any() {
            return Ok(output);
        }
        let context = environment.context.clone();
        let source = match self.operator.kind() {
            Kind::Sort { pattern, .. } => {
                From::Sort(SortPattern::parse(pattern.view())?.collated(&context.collation))
            }
            Kind::Source => From::Stage(Noted::default()),
            _ if MAKE_NEW.contains(&self.operator.name()) => From::Stage(Noted::default()),
            _ => return Ok(output),
        };
        Ok(Box::new(Noting { input: output, context, source }))
    }
}

impl Pipeline {
    /// Whether a stage asks for the sort key of documents that nothing has sorted: what MongoDB
    /// refuses to plan. `$group` may ask, and finds none.
    pub fn asks_for_unsorted_key(&self) -> bool {
        for step in &self.steps {
            let makes_new = MAKE_NEW.contains(&step.operator.name());
            if makes_new || matches!(step.operator.kind(), Kind::Sort { .. }) {
                return false;
            }
            if mentions(step.spec.view(), MetaKind::SortKey.name()) {
                return true;
            }
        }
        false
    }
}

/// Whether `{$meta: kind}` stands anywhere in a specification, whose depth is bounded.
/// Sub-pipelines, which look at other documents, don't count.
fn mentions(spec: Document<'_>, kind: &str) -> bool {
    spec.iter().filter(|element| element.name() != "pipeline").any(|element| {
        let named = element.name() == "$meta" && element.value().as_str() == Some(kind);
        named || mentions_in(element.value(), kind)
    })
}

fn mentions_in(value: Value<'_>, kind: &str) -> bool {
    match value {
        Value::Document(inner) => mentions(inner, kind),
        Value::Array(items) => items.iter().any(|item| mentions_in(item, kind)),
        _ => false,
    }
}

/// Where the metadata of a stream's documents comes from.
enum From {
    /// All have the same.
    Stage(Noted),
    /// They are sorted by this.
    Sort(SortPattern),
}

/// Notes the metadata of each document that passes.
struct Noting {
    input: Stream,
    context: Arc<Context>,
    source: From,
}

impl Stage for Noting {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        let Some(document) = self.input.next()? else { return Ok(None) };
        let noted = match &self.source {
            From::Stage(noted) => noted.clone(),
            From::Sort(pattern) => {
                // A sort holds all documents back: what was noted last is of any of them.
                let before = self.context.metadata.noted();
                let had_any = before.record_id.is_some() || before.lost_in.is_some();
                drop(before);
                let lost_in = had_any.then_some("$sort");
                Noted { sort_key: Some(pattern.values(document.view())?), lost_in, ..Noted::default() }
            }
        };
        self.context.metadata.note(noted);
        Ok(Some(document))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, gives};

    #[test]
    fn a_sort_gives_each_document_its_key() {
        gives(
            "[{_id: 1, a: [3, 1], b: 'x'}, {_id: 2, a: 2}, {_id: 3}]",
            "[{$unwind: {path: '$c', preserveNullAndEmptyArrays: true}}, {$sort: {a: -1, b: 1}},
              {$project: {k: {$meta: 'sortKey'}}}]",
            "[{_id: 1, k: [3, 'x']}, {_id: 2, k: [2, null]}, {_id: 3, k: [null, null]}]",
        );
        gives(
            "[{a: 2}, {a: 1}]",
            "[{$sort: {a: 1}}, {$match: {a: {$gt: 0}}}, {$addFields: {k: {$meta: 'sortKey'}}}, {$limit: 1}]",
            "[{a: 1, k: [1]}]",
        );
    }

    #[test]
    fn new_documents_have_none() {
        let pipeline = "[{$sort: {a: 1}}, {$group: {_id: '$a', k: {$push: {$meta: 'sortKey'}}}},
            {$sort: {_id: 1}}, {$group: {_id: null, all: {$push: '$$ROOT'}}},
            {$addFields: {s: {$meta: 'sortKey'}, r: {$meta: 'recordId'}, v: {$meta: 'randVal'}}}]";
        let grouped = "[{_id: null, all: [{_id: 1, k: [[1]]}, {_id: 2, k: [[2]]}]}]";
        gives("[{a: 2}, {a: 1}]", pipeline, grouped);
    }

    #[test]
    fn what_was_held_back_has_lost_its_own() {
        let pipeline = "[{$sample: {size: 1}}, {$project: {r: {$meta: 'recordId'}}}]";
        Run::new("[{}]", pipeline).fails(238, "{$meta: \"recordId\"} is not kept through $sample");
    }
}

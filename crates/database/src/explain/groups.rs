//! `$group`s directly behind a plan, which MongoDB runs together with it in its engine of slots: their place in the
//! explanation is that of stages of the plan, which are numbered from the bottom up.

use super::Stats;
use crate::exec::{Explainer, RecordStream};
use base::bson::{Builder, Document, DocumentBuf, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What that engine leaves to the stages behind it.
const LEFT_OUT: [&str; 2] = ["$median", "$percentile"];

/// Whether a stage, as explain shows it, is a `$group` of that engine.
pub(super) fn is_pushed(stage: Document<'_>) -> bool {
    let Some(Value::Document(group)) = stage.get("$group") else { return false };
    let operators = group.iter().filter_map(|field| field.value().as_document()?.first());
    !operators.into_iter().any(|operator| LEFT_OUT.contains(&operator.name()))
}

/// Prints the groups, the last of them on top, over what the plan's own stages did.
pub(super) fn explain(counts: &[Arc<AtomicU64>], stream: &dyn RecordStream, out: &mut Explainer) {
    let Some((last, before)) = counts.split_last() else { return stream.explain(out) };
    let groups = last.load(Relaxed);
    out.stage("GROUP", None, &Stats { works: groups + 1, advanced: groups, ended: true });
    out.input(|out| explain(before, stream, out));
}

/// Stages with their numbers, the first that runs being 1.
pub(super) fn numbered(stage: Document<'_>) -> DocumentBuf {
    let mut out = Builder::new();
    append_numbered(stage, 0, &mut out);
    out.finish()
}

/// Recursion is bounded by the stages that a plan has.
fn append_numbered(stage: Document<'_>, mut before: i32, out: &mut Builder) {
    let number = before + stages_in(stage);
    for element in stage {
        match (element.name(), element.value()) {
            ("stage", Value::String(name)) => {
                out.append(c"stage", name).append(c"planNodeId", number);
                if name == "COLLSCAN" && stage.get("filter").is_none() {
                    out.append(c"filter", Document::EMPTY);
                }
            }
            ("inputStage", Value::Document(input)) => {
                out.begin_document(c"inputStage");
                append_numbered(input, before, out);
                out.end();
            }
            ("inputStages", Value::Array(inputs)) => {
                out.begin_array(c"inputStages");
                for input in inputs.iter().filter_map(|input| input.as_document()) {
                    out.push_document();
                    append_numbered(input, before, out);
                    out.end();
                    before += stages_in(input);
                }
                out.end();
            }
            _ => {
                out.append_element(&element);
            }
        }
    }
}

/// How many stages there are, this one and all below.
fn stages_in(stage: Document<'_>) -> i32 {
    let one = stage.get("inputStage").and_then(|input| input.as_document()).map_or(0, stages_in);
    let several = stage.get("inputStages").and_then(|inputs| inputs.as_array());
    let several =
        several.into_iter().flat_map(|inputs| inputs.iter()).filter_map(|input| input.as_document());
    1 + one + several.map(stages_in).sum::<i32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn stages_are_numbered_as_they_run() {
        let plan = "{stage: 'GROUP', inputStage: {stage: 'FETCH', filter: {a: 1}, inputStage: {stage: 'OR', \
                    inputStages: [{stage: 'IXSCAN'}, {stage: 'COLLSCAN'}]}}}";
        assert_eq!(
            numbered(parse(plan).unwrap().view()).to_string(),
            "{ stage: \"GROUP\", planNodeId: 5, inputStage: { stage: \"FETCH\", planNodeId: 4, filter: { a: 1 }, \
             inputStage: { stage: \"OR\", planNodeId: 3, inputStages: [ { stage: \"IXSCAN\", planNodeId: 1 }, { \
             stage: \"COLLSCAN\", planNodeId: 2, filter: {} } ] } } }"
        );
    }

    #[test]
    fn percentiles_are_left_out() {
        let pushed = |stage: &str| is_pushed(parse(stage).unwrap().view());
        assert!(pushed("{$group: {_id: '$a', n: {$sum: 1}}}"));
        assert!(!pushed("{$group: {_id: '$a', n: {$median: {input: '$b', method: 'approximate'}}}}"));
        assert!(!pushed("{$sort: {a: 1}}"));
    }
}

//! Parser of pipelines: positions and nesting of stages, and their numeric arguments.

use super::definition::{Parser, Position, RunsOn, StageDefinition};
use super::external::Source;
use super::operator::Operator;
use super::registry;
use super::{Pipeline, Step};
use crate::Context;
use base::bson::{Array, Builder, Document, Element, Number, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// Maximum number of stages in a pipeline, as in MongoDB (internalPipelineLengthLimit).
const STAGES_MAX: usize = 1000;
/// Maximum nesting of sub-pipelines, as in MongoDB.
pub const DEPTH_MAX: usize = 20;

/// Returns the error for sub-pipelines that nest deeper than [`DEPTH_MAX`].
pub fn too_deep() -> base::Error {
    err!(232, "Maximum number of nested sub-pipelines exceeded. Limit is {DEPTH_MAX}")
}

/// The surroundings of a pipeline being parsed.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'p> {
    /// The context: variables and other inputs.
    pub(crate) context: &'p Context,
    /// The stage that contains this sub-pipeline.
    inside: Option<SubPipelineStage>,
    /// Whether any surrounding pipeline is within `$facet`.
    in_facet: bool,
    depth: usize,
    position: usize,
    /// The first stage of the pipeline.
    first: Option<Document<'p>>,
}

/// Stages that parse sub-pipelines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubPipelineStage {
    Facet,
    Lookup,
    UnionWith,
}

impl SubPipelineStage {
    /// Returns the place of a stage in this one, as errors of `$facet` name it.
    fn place(self) -> &'static str {
        match self {
            SubPipelineStage::Facet => "",
            SubPipelineStage::Lookup => " inside of $lookup",
            SubPipelineStage::UnionWith => " inside of $unionWith",
        }
    }
}

/// Result of parsing a specification.
pub(crate) enum Parsed {
    /// One operator, described by the specification as given.
    One(Arc<dyn Operator>),
    /// The stages that a shorthand such as `$sortByCount` expands to.
    Steps(Vec<Step>),
}

impl Parsed {
    pub(crate) fn one(operator: impl Operator + 'static) -> Parsed {
        Parsed::One(Arc::new(operator))
    }

    /// Parses the expansion of a stage: the array that is open in the builder. Each stage describes itself.
    pub(crate) fn stages(stages: Builder, scope: &Scope<'_>) -> Result<Parsed> {
        let stages = stages.finish();
        let array = stages.view().first().and_then(|array| array.value().as_array()).unwrap_or(Array::EMPTY);
        Ok(Parsed::Steps(scope.pipeline(array)?.steps))
    }
}

impl<'p> Scope<'p> {
    /// Returns the scope of the command's own pipeline.
    pub(crate) fn top(context: &'p Context) -> Scope<'p> {
        Scope { context, inside: None, in_facet: false, depth: 0, position: 0, first: None }
    }

    /// Returns the scope of a stage's sub-pipeline.
    ///
    /// Errors: MaxSubPipelineDepthExceeded's number beyond 20 levels.
    pub(crate) fn within<'q>(&self, stage: SubPipelineStage, context: &'q Context) -> Result<Scope<'q>> {
        if self.depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        let in_facet = self.in_facet || stage == SubPipelineStage::Facet;
        Ok(Scope { context, inside: Some(stage), in_facet, depth: self.depth + 1, position: 0, first: None })
    }

    /// Parses stages in this scope.
    pub(crate) fn pipeline(&self, stages: Array<'_>) -> Result<Pipeline> {
        let mut pipeline = Pipeline::default();
        let count = stages.len();
        check_length(count)?;
        let first = stages.get(0).and_then(|first| first.as_document());
        for (at, stage) in stages.iter().enumerate() {
            let Value::Document(stage) = stage else {
                if self.is_inside(SubPipelineStage::Facet) {
                    bail!(40171, "elements of arrays in $facet spec must be non-empty objects");
                }
                bail!(TypeMismatch, "Each element of the 'pipeline' array must be an object");
            };
            Scope { position: at, first, ..*self }.stage(stage, count, &mut pipeline)?;
        }
        pipeline.check_change_stream()?;
        Ok(pipeline)
    }

    /// Parses one stage of `count` and appends it, or its expansion, to the pipeline.
    fn stage(&self, stage: Document<'_>, count: usize, pipeline: &mut Pipeline) -> Result<()> {
        let mut fields = stage.iter();
        let (Some(spec), None) = (fields.next(), fields.next()) else {
            bail!(40323, "A pipeline stage specification object must contain exactly one field.");
        };
        let definition = registry::find(spec.name())?;
        self.check_position(definition, count)?;
        let parsed = match definition.parser {
            Parser::Stage(parse) => parse(&spec, self)?,
            Parser::External(parse) => Parsed::one(Source(parse(&spec)?)),
            Parser::Refused(error) => return Err(error(&spec)),
        };
        match parsed {
            Parsed::One(operator) => {
                let mut builder = Builder::new();
                builder.append_element(&spec);
                pipeline.steps.push(Step::new(definition, builder.finish(), operator));
            }
            Parsed::Steps(steps) => pipeline.steps.extend(steps),
        }
        Ok(())
    }

    /// Checks the position of a stage and the pipelines around it. Errors: 40601 and 40602; InvalidNamespace, 40573,
    /// 51047, 31441 and 40600 for sub-pipelines.
    fn check_position(&self, definition: &StageDefinition, count: usize) -> Result<()> {
        let (name, at) = (definition.name, self.position);
        match definition.position {
            Position::Last if at + 1 < count => {
                bail!(40601, "{name} can only be the final stage in the pipeline");
            }
            Position::First if at > 0 => {
                bail!(40602, "{name} is only valid as the first stage in a pipeline.");
            }
            _ => {}
        }
        if definition.runs_on == RunsOn::Sessions && (self.in_facet || self.inside.is_some()) {
            bail!(InvalidNamespace, "{name} may only be run against config.system.sessions");
        }
        match self.inside {
            // On a standalone MongoDB refuses the stage first.
            Some(SubPipelineStage::Lookup)
                if definition.opens_stream() && self.context.cluster_time.is_none() =>
            {
                Err(err!(40573, "{name} is not allowed within a $lookup's sub-pipeline"))
            }
            Some(SubPipelineStage::Lookup) if !definition.in_joins => {
                Err(err!(51047, "{name} is not allowed within a $lookup's sub-pipeline"))
            }
            Some(SubPipelineStage::UnionWith) if !definition.in_joins => {
                Err(err!(31441, "{name} is not allowed within a $unionWith's sub-pipeline"))
            }
            _ if self.in_facet && !definition.in_facet => {
                let place = self.inside.map_or("", SubPipelineStage::place);
                Err(err!(40600, "{name}{place} is not allowed to be used within a $facet stage"))
            }
            _ => Ok(()),
        }
    }

    /// The first stage of the pipeline, as given.
    pub(crate) fn first(&self) -> Option<Document<'p>> {
        self.first
    }

    /// Whether the pipeline is a sub-pipeline of this stage.
    pub(crate) fn is_inside(&self, stage: SubPipelineStage) -> bool {
        self.inside == Some(stage)
    }

    /// The position of the current stage in its pipeline.
    pub(crate) fn position(&self) -> usize {
        self.position
    }
}

/// Checks the number of stages. Errors: 7749501 beyond the maximum.
pub(crate) fn check_length(stages: usize) -> Result<()> {
    if stages > STAGES_MAX {
        bail!(7749501, "Pipeline length must be no longer than {STAGES_MAX} stages");
    }
    Ok(())
}

/// Parses a number as MongoDB reads counts: integral, not negative, within an int64. The error describes the problem.
pub(crate) fn non_negative(spec: &Element<'_>) -> std::result::Result<u64, String> {
    let shown = || format!("{}: {}", spec.name(), spec.value());
    let Some(number) = spec.value().as_number() else {
        return Err(format!("Expected a number in: {}", shown()));
    };
    if number.is_nan() {
        return Err(format!("Expected an integer, but found NaN in: {}", shown()));
    }
    match number.to_i64_exact() {
        Some(exact) => {
            u64::try_from(exact).map_err(|_| format!("Expected a non-negative number in: {}", shown()))
        }
        None if matches!(number, Number::Double(v) if v.abs() >= 2f64.powi(63)) => {
            Err(format!("Cannot represent as a 64-bit integer: {}", shown()))
        }
        None => Err(format!("Expected an integer: {}", shown())),
    }
}

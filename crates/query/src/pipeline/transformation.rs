//! Stages that turn each document into one document, independently of other documents. Updates run only these stages.

use super::depth::Growth;
use super::operator::{Kind, Operator};
use super::{Environment, Pipeline, Split, Stage, Stream};
use crate::{Arena, Context, Row, RowView};
use base::bson::{Document, DocumentBuf, check_depth};
use base::{Result, bail};
use std::sync::Arc;

/// The effect of the stage on one document.
pub(crate) trait Transformation: Operator {
    /// Returns the new document. Computed values live in `arena`.
    fn transform(&self, row: RowView<'_>, context: &Context, arena: &Arena) -> Result<DocumentBuf>;
}

/// Stacks the running stage on its input.
pub(super) fn start(stage: Arc<dyn Transformation>, input: Stream, environment: &Environment) -> Stream {
    let context = Arc::clone(&environment.context);
    Box::new(Running { stage, input, context, arena: Arena::new() })
}

struct Running {
    stage: Arc<dyn Transformation>,
    input: Stream,
    context: Arc<Context>,
    arena: Arena,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(row) = self.input.next()? else { return Ok(None) };
        let transformed = self.stage.transform(row.view(), &self.context, &self.arena)?;
        self.arena.reset();
        self.context.steps(transformed.bytes().len() / 1024)?;
        Ok(Some(row.with(transformed)))
    }

    fn begin_section(&mut self) -> bool {
        self.input.begin_section()
    }

    fn split(&mut self) -> Option<Split> {
        let later = self.input.split()?;
        let running = |input, interrupt: &_| -> Stream {
            let context = Arc::new(self.context.for_helper(interrupt));
            Box::new(Running { stage: self.stage.clone(), input, context, arena: Arena::new() })
        };
        Some(later.through(running))
    }
}

impl Pipeline {
    /// Checks that an update may run the stages.
    ///
    /// Errors: InvalidOptions with the name of the first other stage, as explain prints it.
    pub(crate) fn check_update(&self) -> Result<()> {
        let refused = self.steps.iter().find(|step| transformation(&*step.operator).is_none());
        let Some(refused) = refused else { return Ok(()) };
        let stages = refused.explained();
        let mut names = stages.iter().filter_map(|stage| Some(stage.view().first()?.name()));
        let name = names.find(|name| *name != "$addFields").unwrap_or(refused.definition.name);
        bail!(InvalidOptions, "{name} is not allowed to be used within an update");
    }

    /// Returns the document that the stages of an update make of a document.
    pub(crate) fn transform(&self, document: Document<'_>, context: &Context) -> Result<DocumentBuf> {
        let mut current = document.to_owned();
        let mut growth = Growth::default();
        let mut arena = Arena::new();
        for step in &self.steps {
            context.interrupt.check()?;
            let Some(stage) = transformation(&*step.operator) else {
                debug_assert!(false, "an update runs {}", step.definition.name);
                continue;
            };
            current = stage.transform(current.view().into(), context, &arena)?;
            arena.reset();
            if growth.note(step.growth) {
                check_depth(current.view())?;
            }
        }
        Ok(current)
    }
}

fn transformation(operator: &dyn Operator) -> Option<&dyn Transformation> {
    match operator.kind() {
        Kind::Transformation(stage) => Some(stage),
        _ => None,
    }
}

//! Updates by a pipeline, limited to the stages that map one document to one document.

use super::replacement::replace;
use crate::{Context, Metadata, Pipeline};
use base::Result;
use base::bson::{Array, Document, DocumentBuf};

/// The parsed stages.
#[derive(Debug)]
pub(super) struct UpdatePipeline(Pipeline);

impl UpdatePipeline {
    /// Parses the stages.
    ///
    /// Errors: as [`Pipeline::parse`]; InvalidOptions for stages that updates do not support; 40218 for `$meta`, since
    /// the documents of an update have no metadata.
    pub(super) fn parse(stages: Array<'_>, context: &Context) -> Result<UpdatePipeline> {
        let mut context = context.with_variables(context.variables.clone());
        context.metadata = Metadata::default();
        // Parsing evaluates no constants; that happens once a document exists.
        context.defers_constants = true;
        let pipeline = Pipeline::parse(stages, &context)?;
        pipeline.check_update()?;
        context.metadata.refuse_required()?;
        Ok(UpdatePipeline(pipeline))
    }

    /// Returns the document that the pipeline produces, with its `_id` kept.
    ///
    /// Errors: ImmutableField; 40228 if `$replaceRoot` does not yield a document; errors of expressions.
    pub(super) fn apply(&self, document: Document<'_>, context: &Context) -> Result<DocumentBuf> {
        replace(document, self.0.transform(document, context)?.view(), None)
    }
}

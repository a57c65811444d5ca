//! Updates: operators, replacements and pipelines, parsed once and applied to raw documents.
//!
//! An update of operators becomes a [`tree`] of paths, so that one walk ([`apply`]) over the
//! document's bytes applies them all, copying what no path touches. Whatever the kind, the result
//! passes the same checks here: `_id` stays and stands first, the document keeps to its limits,
//! and bytes that come out as they went in are no change (but for arrays written anew and
//! replacements that leave out the `_id`, which MongoDB counts as modifications always).

mod apply;
mod array_filters;
mod diff;
mod finish;
pub mod operators;
mod oplog;
mod pipeline;
mod replacement;
mod tree;
mod upsert;

use crate::{Context, Matcher};
use apply::Walk;
use array_filters::ArrayFilter;
use base::bson::{Document, DocumentBuf, MAX_STORED_DEPTH, Value};
use base::{Result, err};
use finish::Updated;
use oplog::OplogDiff;
use pipeline::UpdatePipeline;
use replacement::Replacement;
use tree::Fields;

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Operators { tree: Fields, filters: Vec<ArrayFilter> },
    Replacement(Replacement),
    Pipeline(UpdatePipeline),
    Diff(OplogDiff),
}

impl Update {
    /// Parses an update: a document of operators, a replacement, or a pipeline. `$$NOW`, `let`
    /// and the constants `c` of a pipeline are the context's.
    ///
    /// Errors: FailedToParse for what is neither document nor array, for unknown operators and
    /// unused array filters; ConflictingUpdateOperators; those of operators and stages.
    pub fn parse(update: Value<'_>, array_filters: &[Document<'_>], context: &Context) -> Result<Update> {
        let kind = match update {
            Value::Document(update) if is_operators(update) => {
                let tree = operators::parse(update, context)?;
                let filters = array_filters::parse(array_filters, context)?;
                check_filters(&tree, &filters, update)?;
                Kind::Operators { tree, filters }
            }
            Value::Document(replacement) => {
                let filters = array_filters::parse(array_filters, context)?;
                check_filters(&Fields::default(), &filters, replacement)?;
                Kind::Replacement(Replacement::new(replacement))
            }
            Value::Array(_) if !array_filters.is_empty() => {
                return Err(err!(
                    FailedToParse,
                    "arrayFilters may not be specified for pipeline-syle updates"
                ));
            }
            Value::Array(stages) => Kind::Pipeline(UpdatePipeline::parse(stages, context)?),
            _ => return Err(err!(FailedToParse, "Update argument must be either an object or an array")),
        };
        Ok(Update { kind })
    }

    /// Whether the whole document is replaced (multi-document updates refuse that).
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// Whether the positional `$` is used, so that the filter must say where it matched.
    pub fn needs_position(&self) -> bool {
        match &self.kind {
            Kind::Operators { tree, .. } => tree.needs_position(),
            Kind::Replacement(_) | Kind::Pipeline(_) | Kind::Diff(_) => false,
        }
    }

    /// The document that an upsert inserts where the filter matched none: what the filter says
    /// fields equal, and this update on top. It has an `_id` (first) only if these give one.
    ///
    /// Errors: NotSingleValueField where the filter contradicts itself; those of
    /// [`apply`](Update::apply).
    pub fn upsert(&self, matcher: &Matcher, context: &Context) -> Result<DocumentBuf> {
        let seed = upsert::seed(matcher, self.is_replacement(), context)?;
        Ok(self.apply(seed.view(), None, true, context)?.unwrap_or(seed))
    }

    /// The updated document, or `None` where nothing changes, as MongoDB counts `nModified`: some
    /// updates count although the bytes come out the same. `position` is where the filter
    /// matched an array; `is_insert` says that an upsert is about to insert the document.
    ///
    /// Errors: ImmutableField for a changed `_id`; DollarPrefixedFieldName; 17419 above 16 MiB;
    /// Overflow for nesting too deep; those of the operators.
    pub fn apply(
        &self,
        document: Document<'_>,
        position: Option<usize>,
        is_insert: bool,
        context: &Context,
    ) -> Result<Option<DocumentBuf>> {
        let updated = match &self.kind {
            Kind::Operators { tree, filters } => {
                let walk = Walk::new(context, document, position, is_insert, filters);
                let result = walk.apply(tree)?;
                finish::check_operators(tree, document, result.view(), is_insert)?;
                let may_deepen = tree.depth().is_none_or(|depth| depth > MAX_STORED_DEPTH);
                Updated { document: result, may_deepen, counts: walk.rewritten.get() }
            }
            Kind::Replacement(replacement) => Updated {
                document: replacement.apply(document, is_insert, context)?,
                may_deepen: true,
                counts: !replacement.is(document),
            },
            Kind::Pipeline(pipeline) => {
                Updated { document: pipeline.apply(document, context)?, may_deepen: true, counts: false }
            }
            Kind::Diff(diff) => Updated { document: diff.apply(document)?, may_deepen: true, counts: false },
        };
        finish::finish(document, updated, is_insert)
    }
}

/// Whether an update document holds operators; an empty one is a replacement.
fn is_operators(update: Document<'_>) -> bool {
    update.first().is_some_and(|first| first.name().starts_with('$'))
}

/// Checks that every identifier has its filter and every filter is used.
fn check_filters(tree: &Fields, filters: &[ArrayFilter], update: Document<'_>) -> Result<()> {
    let used = apply::identifiers(tree);
    for (name, path) in &used {
        if !filters.iter().any(|filter| filter.identifier == *name) {
            return Err(err!(BadValue, "No array filter found for identifier '{name}' in path '{path}'"));
        }
    }
    for filter in filters {
        if !used.iter().any(|(name, _)| *name == filter.identifier) {
            return Err(err!(
                FailedToParse,
                "The array filter for identifier '{}' was not used in the update {update}",
                filter.identifier
            ));
        }
    }
    Ok(())
}

/// The operation's time as a timestamp: the cluster's, or the clock's where there is none.
fn timestamp(context: &Context) -> u64 {
    context.cluster_time.unwrap_or_else(|| {
        let seconds = u64::try_from(context.now_millis / 1000).unwrap_or(0);
        seconds << 32 | 1
    })
}

#[cfg(test)]
mod tests;

//! Updates: operators, replacements and pipelines, parsed once and applied to raw documents.
//!
//! An update by operators becomes a [`tree`] of paths. One walk ([`apply`]) over the document's bytes applies all
//! operators and copies untouched elements. Every kind of update passes equal checks at the end: `_id` is unchanged and
//! first, and the document is within its limits. Equal bytes are no change. The exceptions are rewritten arrays and
//! replacements without `_id`, which MongoDB always counts as modifications.

mod apply;
mod array_filters;
mod diff;
mod finish;
pub mod operators;
mod oplog;
mod pipeline;
mod replacement;
mod sources;
mod tree;

use crate::{Context, Matcher};
use apply::Walk;
use array_filters::ArrayFilter;
use base::bson::{Builder, Document, DocumentBuf, MAX_STORED_DEPTH, Value};
use base::{Result, bail};
use finish::Updated;
use oplog::OplogDiff;
use pipeline::UpdatePipeline;
use replacement::Replacement;
use tree::{Fields, check_components};

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    kind: Kind,
}

/// The kinds of updates. A diff occurs only in entries of the oplog.
#[derive(Debug)]
enum Kind {
    Operators { tree: Fields, filters: Vec<ArrayFilter> },
    Replacement(Replacement),
    Pipeline(UpdatePipeline),
    Diff(OplogDiff),
}

impl Update {
    /// Parses an update: a document of operators, a replacement, or a pipeline. The context provides `$$NOW`, `let` and
    /// a pipeline's constants `c`.
    ///
    /// Errors: FailedToParse for a value that is neither document nor array, for unknown operators and unused array
    /// filters; ConflictingUpdateOperators; errors of operators and stages.
    pub fn parse(update: Value<'_>, array_filters: &[Document<'_>], context: &Context) -> Result<Update> {
        let kind = match update {
            Value::Document(update) if is_operators(update) => {
                let tree = operators::parse(update, context)?;
                let filters = array_filters::parse(array_filters, context)?;
                check_filters(&tree, &filters, update)?;
                Kind::Operators { tree, filters }
            }
            Value::Document(replacement) => {
                // A replacement uses no filter. MongoDB only parses them.
                array_filters::parse(array_filters, context)?;
                Kind::Replacement(Replacement::new(replacement))
            }
            Value::Array(_) if !array_filters.is_empty() => {
                bail!(FailedToParse, "arrayFilters may not be specified for pipeline-syle updates");
            }
            Value::Array(stages) => Kind::Pipeline(UpdatePipeline::parse(stages, context)?),
            _ => bail!(FailedToParse, "Update argument must be either an object or an array"),
        };
        Ok(Update { kind })
    }

    /// Returns the replacement by a document, whose first field may have a dollar sign. Such a replacement fails if it
    /// is applied to a document.
    pub(crate) fn replacement(document: Document<'_>) -> Update {
        Update { kind: Kind::Replacement(Replacement::new(document)) }
    }

    /// Whether the update replaces the whole document, which multi-document updates refuse.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// Whether the update uses the positional `$`, which needs the match position of the filter.
    pub fn needs_position(&self) -> bool {
        match &self.kind {
            Kind::Operators { tree, .. } => tree.needs_position(),
            Kind::Replacement(_) | Kind::Pipeline(_) | Kind::Diff(_) => false,
        }
    }

    /// Returns the document that an upsert inserts if the filter matched none: the filter's equalities with this update
    /// applied. It has an `_id` (first) only if these set one.
    ///
    /// Errors: NotSingleValueField if the filter contradicts itself, NotExactValueField if a replacement's filter has a
    /// path below `_id`; InvalidIdField, InvalidDBRef and DollarPrefixedFieldName for an `_id` that cannot be stored;
    /// the errors of [`apply`](Update::apply).
    pub fn upsert(&self, matcher: &Matcher, context: &Context) -> Result<DocumentBuf> {
        let seed = seed(matcher, self.is_replacement(), context)?;
        let described = self.apply(seed.view(), None, true, context)?.unwrap_or(seed);
        described.view().find("_id").map_or(Ok(()), |id| finish::check_new_id(&id))?;
        Ok(described)
    }

    /// Returns the updated document; `None` if nothing changes, as MongoDB counts `nModified`. Some updates count
    /// although the bytes are equal. `position` is the array position of the filter's match. `is_insert` means that an
    /// upsert is about to insert the document.
    ///
    /// Errors: ImmutableField for a changed `_id`, and for one that cannot be stored the errors of
    /// [`upsert`](Update::upsert); DollarPrefixedFieldName; 17419 above 16 MiB; Overflow for excessive nesting; errors
    /// of the operators.
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
        finish::finish(document, updated, is_insert, context)
    }
}

/// Returns the document of the filter's equalities, `_id` first. For a replacement only the `_id` counts.
///
/// Errors: NotSingleValueField for two values of one path, or of a path and a path below it; for a replacement also
/// NotExactValueField for a path below `_id`.
fn seed(matcher: &Matcher, only_id: bool, context: &Context) -> Result<DocumentBuf> {
    if only_id {
        let mut out = Builder::new();
        out.append_optional(c"_id", matcher.id_equality()?);
        return Ok(out.finish());
    }
    let mut tree = Fields::default();
    for (path, value) in matcher.equalities()? {
        check_components(path.as_str())?;
        tree.add(path.as_str(), operators::set_to(value))?;
    }
    let walk = Walk::new(context, Document::EMPTY, None, true, &[]);
    Ok(finish::id_first(walk.apply(&tree)?))
}

/// Whether an update document contains operators; an empty document is a replacement.
fn is_operators(update: Document<'_>) -> bool {
    update.first().is_some_and(|first| first.name().starts_with('$'))
}

/// Checks that every identifier has a filter and every filter is used.
fn check_filters(tree: &Fields, filters: &[ArrayFilter], update: Document<'_>) -> Result<()> {
    let used = apply::identifiers(tree);
    for (name, path) in &used {
        if !filters.iter().any(|filter| filter.identifier == *name) {
            bail!(BadValue, "No array filter found for identifier '{name}' in path '{path}'");
        }
    }
    for filter in filters {
        if !used.iter().any(|(name, _)| *name == filter.identifier) {
            bail!(
                FailedToParse,
                "The array filter for identifier '{}' was not used in the update {update}",
                filter.identifier
            );
        }
    }
    Ok(())
}

/// The operation's time as a timestamp: the cluster time, or the clock's time without one.
fn timestamp(context: &Context) -> u64 {
    context.cluster_time.unwrap_or_else(|| {
        let seconds = u64::try_from(context.now_millis / 1000).unwrap_or(0);
        seconds << 32 | 1
    })
}

#[cfg(test)]
mod tests;

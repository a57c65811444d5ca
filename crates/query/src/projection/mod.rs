//! Projections: which fields of a document go out, and what is computed on the way.
//!
//! Find's projections, `$project`, `$addFields` and `$unset` are one implementation: a [`tree`]
//! of named fields and a [`Kind`] that says what happens to fields not named. [`apply`] walks the
//! document's bytes once and copies what goes out undecoded.

mod apply;
mod parse;
mod positional;
mod tree;

#[cfg(test)]
mod tests;

use crate::pipeline::depth;
use crate::{Arena, Context};
use base::Result;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Path, Value, check_depth};
use parse::Flavour;
use tree::{Node, Tree};

/// A parsed projection.
#[derive(Debug, Clone)]
pub struct Projection {
    kind: Kind,
    tree: Tree,
    /// The array of find's positional `$`.
    positional: Option<Path>,
    /// The fields that find's `{$meta: "sortKey"}` fills.
    sort_keys: Vec<Box<str>>,
    /// Whether what it makes may nest too deep for a client, and nobody else looks.
    may_deepen: bool,
}

/// What happens to the fields that are not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They stay behind.
    Include,
    /// They go out, the named ones don't.
    Exclude,
    /// They go out, and so do the named ones, computed.
    Add,
}

impl Projection {
    /// Parses the `projection` of a find: also `$slice`, `$elemMatch` and the positional `$`. An
    /// empty one lets everything through.
    ///
    /// Errors: MongoDB's: 31249 and 31250 for colliding paths, 31252 to 31254 for mixing, 31325
    /// for unknown operators, those of field paths and expressions.
    pub fn parse_find(spec: Document<'_>, context: &Context) -> Result<Projection> {
        let mut projection = parse::parse(spec, Flavour::Find, context)?;
        projection.may_deepen = depth::growth(Value::Document(spec)) > depth::ROOM;
        Ok(projection)
    }

    /// Parses the specification of a `$project`.
    ///
    /// Errors: those of [`parse_find`](Self::parse_find), 51272 where empty, all behind
    /// `Invalid $project`.
    pub fn parse_aggregate(spec: Document<'_>, context: &Context) -> Result<Projection> {
        let parsed = if spec.is_empty() {
            Err(base::err!(51272, "projection specification must have at least one field"))
        } else {
            parse::parse(spec, Flavour::Aggregate, context)
        };
        parsed.map_err(|error| invalid("Invalid $project", error))
    }

    /// Parses the specification of an `$addFields` or `$set`.
    ///
    /// Errors: 40176 for conflicting paths, 40181 for two operators in one place, those of
    /// expressions, all behind `Invalid $addFields` or what else `stage` is.
    pub fn add_fields(stage: &str, spec: Document<'_>, context: &Context) -> Result<Projection> {
        parse::add_fields(spec, context).map_err(|error| invalid(&format!("Invalid {stage}"), error))
    }

    /// A projection without these fields: the paths of an `$unset`.
    ///
    /// Errors: those of field paths; 31249 and 31250 for colliding ones.
    pub fn unset(paths: &[&str]) -> Result<Projection> {
        parse::unset(paths).map_err(|error| invalid("Invalid $unset", error))
    }

    /// The projected document. `position` is where the filter matched, for the positional `$`;
    /// what expressions compute lives in `arena` meanwhile.
    ///
    /// Errors: those of expressions; 51246 where the positional `$` has no match.
    pub fn apply(
        &self,
        document: Document<'_>,
        position: Option<usize>,
        context: &Context,
        arena: &Arena,
    ) -> Result<DocumentBuf> {
        let mut out = Builder::with_buffer(Vec::with_capacity(document.bytes().len()));
        let walk = apply::Walk { kind: self.kind, root: document, context, arena };
        walk.document(&self.tree, document, &mut out)?;
        let projected = out.finish();
        if self.may_deepen {
            check_depth(projected.view())?;
        }
        match &self.positional {
            None => Ok(projected),
            Some(path) => positional::apply(projected.view(), path.components(), position),
        }
    }

    /// The paths read, where these fields are all that goes out unchanged, so that an index over
    /// them could stand for the document; `None` for anything else.
    pub fn fields(&self) -> Option<Vec<Path>> {
        if self.kind != Kind::Include || self.positional.is_some() {
            return None;
        }
        let mut paths = Vec::new();
        listed(&self.tree, "", &mut paths).then_some(paths)
    }

    /// Whether it leaves fields out rather than picking them.
    pub(crate) fn is_exclusion(&self) -> bool {
        self.kind == Kind::Exclude
    }

    /// Whether everything goes out as it is.
    pub fn is_identity(&self) -> bool {
        self.kind != Kind::Include && self.tree.children.is_empty()
    }

    /// The fields that are to hold the sort key: all that `returnKey` leaves of a projection.
    pub fn sort_keys(&self) -> &[Box<str>] {
        &self.sort_keys
    }

    /// Whether the positional `$` is used, so that the filter must say where it matched.
    pub fn needs_position(&self) -> bool {
        self.positional.is_some()
    }
}

/// Collects the paths of a tree; false where it does more than include.
fn listed(tree: &Tree, prefix: &str, paths: &mut Vec<Path>) -> bool {
    tree.children.iter().all(|(name, node)| {
        let path = join(prefix, name);
        match node {
            Node::Listed => {
                paths.push(Path::new(FieldName::known(&path)));
                true
            }
            Node::Below(inner) => listed(inner, &path, paths),
            _ => false,
        }
    })
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Says which stage an error is of; errors of constant parts say already where they arose.
fn invalid(stage: &str, error: base::Error) -> base::Error {
    let unavailable_metadata = error.code().number() == 40218;
    if unavailable_metadata || error.message().starts_with("Failed to optimize") {
        error
    } else {
        error.context(stage)
    }
}

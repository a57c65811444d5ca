//! Projections: selection and computation of a document's fields.
//!
//! One implementation serves find's projections, `$project`, `$addFields` and `$unset`: a [`tree`] of named fields and
//! a [`Kind`] for all other fields. [`apply`] walks the document's bytes once and copies included fields undecoded.

mod apply;
mod parse;
mod tree;

#[cfg(test)]
mod tests;

use crate::expression::Dependencies;
use crate::pipeline::depth;
use crate::pipeline::operator::Effect;
use crate::{Arena, Context, RowView};
use base::Result;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Path, Value, check_depth};
use parse::Policy;
use tree::{Node, Tree};

/// A parsed projection.
#[derive(Debug, Clone)]
pub struct Projection {
    kind: Kind,
    tree: Tree,
    /// The array path of find's positional `$`.
    positional: Option<Path>,
    /// The fields of find's `{$meta: "sortKey"}`.
    sort_keys: Vec<Path>,
    /// Whether results may exceed the nesting limit of replies and no later step checks it.
    may_deepen: bool,
}

/// Treatment of fields that are not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They are excluded.
    Include,
    /// They are included, and named fields are excluded.
    Exclude,
    /// They are included, and named fields are computed.
    Add,
}

impl Projection {
    /// Parses the `projection` of a find, with `$slice`, `$elemMatch` and the positional `$`. An empty projection
    /// includes everything.
    ///
    /// Errors, as in MongoDB: 31249 and 31250 for colliding paths, 31252 to 31254 for mixing inclusion and exclusion,
    /// 31325 for unknown operators, errors of field paths and expressions.
    pub fn parse_find(spec: Document<'_>, context: &Context) -> Result<Projection> {
        let mut projection = parse::parse(spec, Policy::Find, context)?;
        projection.may_deepen = depth::growth(Value::Document(spec)) > depth::ROOM;
        Ok(projection)
    }

    /// Parses the specification of a `$project`.
    ///
    /// Errors: as [`parse_find`](Self::parse_find), 51272 if empty, all prefixed with `Invalid $project`.
    pub fn parse_aggregate(spec: Document<'_>, context: &Context) -> Result<Projection> {
        let parsed = if spec.is_empty() {
            Err(base::err!(51272, "projection specification must have at least one field"))
        } else {
            parse::parse(spec, Policy::Aggregate, context)
        };
        parsed.map_err(|error| invalid("Invalid $project", error))
    }

    /// Parses the specification of an `$addFields` or `$set`.
    ///
    /// Errors: 40176 for conflicting paths, 40181 for two operators in one object, errors of expressions. All are
    /// prefixed with `Invalid $addFields` or the name of `stage`.
    pub fn add_fields(stage: &str, spec: Document<'_>, context: &Context) -> Result<Projection> {
        parse::add_fields(spec, context).map_err(|error| invalid(&format!("Invalid {stage}"), error))
    }

    /// Returns a projection that removes the paths of an `$unset`.
    ///
    /// Errors: errors of field paths; 31249 and 31250 for colliding paths.
    pub fn unset(paths: &[&str]) -> Result<Projection> {
        parse::unset(paths).map_err(|error| invalid("Invalid $unset", error))
    }

    /// Returns the projected document. `position` is the array position of the filter's match, for the positional `$`.
    /// Computed values live in `arena`.
    ///
    /// Errors: errors of expressions; 51246 if the positional `$` has no match.
    pub fn apply<'r>(
        &self,
        row: impl Into<RowView<'r>>,
        position: Option<usize>,
        context: &Context,
        arena: &Arena,
    ) -> Result<DocumentBuf> {
        let root = row.into();
        let mut out = Builder::with_buffer(Vec::with_capacity(root.document.bytes().len()));
        let walk = apply::Walk { kind: self.kind, slices: true, root, context, arena };
        walk.document(&self.tree, root.document, &mut out)?;
        let projected = out.finish();
        if self.may_deepen {
            check_depth(projected.view())?;
        }
        match &self.positional {
            None => Ok(projected),
            Some(path) => apply::apply(projected.view(), path.components(), position),
        }
    }

    /// Returns the included paths of a projection that only includes fields, which an index could cover; `None` for all
    /// other projections.
    pub fn fields(&self) -> Option<Vec<Path>> {
        if self.kind != Kind::Include || self.positional.is_some() {
            return None;
        }
        let mut paths = Vec::new();
        listed(&self.tree, "", &mut paths).then_some(paths)
    }

    /// Whether the output depends only on the paths read.
    pub(crate) fn includes(&self) -> bool {
        self.kind == Kind::Include
    }

    /// The effect of a stage with this projection.
    pub(crate) fn effect(&self) -> Effect {
        let names = |is_meant: fn(&Node) -> bool| {
            let fields = self.tree.children.iter().filter(|(_, node)| is_meant(node));
            fields.map(|(name, _)| name.to_string()).collect()
        };
        match self.kind {
            Kind::Include => Effect::Keeps(names(|node| matches!(node, Node::Listed))),
            Kind::Exclude | Kind::Add => Effect::Changes(names(|_| true)),
        }
    }

    /// Returns the paths that the projection reads; `None` for the whole document.
    pub(crate) fn reads(&self) -> Option<Vec<Path>> {
        let mut paths = Vec::new();
        self.add_reads(&self.tree, "", &mut paths).then_some(paths)
    }

    /// Collects the paths that a tree reads; false for the whole document.
    fn add_reads(&self, tree: &Tree, prefix: &str, paths: &mut Vec<Path>) -> bool {
        if tree.computes && !prefix.is_empty() {
            // The array or document around computed fields determines their shape.
            paths.push(Path::new(FieldName::trusted(prefix)));
        }
        tree.children.iter().all(|(name, node)| {
            let path = join(prefix, name);
            match node {
                Node::Below(inner) => return self.add_reads(inner, &path, paths),
                Node::Computed(expression) => match expression.dependencies() {
                    Dependencies::Paths(read) => paths.extend(read),
                    Dependencies::Whole => return false,
                },
                Node::Listed if self.kind == Kind::Exclude => {}
                _ => paths.push(Path::new(FieldName::trusted(&path))),
            }
            true
        })
    }

    /// The fields for the sort key. `returnKey` keeps only these of a projection.
    pub fn sort_keys(&self) -> &[Path] {
        &self.sort_keys
    }

    /// Whether the projection uses the positional `$`, which needs the match position of the filter.
    pub fn needs_position(&self) -> bool {
        self.positional.is_some()
    }
}

/// Collects the paths of a tree; false if it does more than include fields.
fn listed(tree: &Tree, prefix: &str, paths: &mut Vec<Path>) -> bool {
    tree.children.iter().all(|(name, node)| {
        let path = join(prefix, name);
        match node {
            Node::Listed => {
                paths.push(Path::new(FieldName::trusted(&path)));
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

/// Prefixes an error with its stage. Errors of constant parts have their location already.
fn invalid(stage: &str, error: base::Error) -> base::Error {
    let unavailable_metadata = error.code().number() == 40218;
    if unavailable_metadata || error.message().starts_with("Failed to optimize") {
        error
    } else {
        error.context(stage)
    }
}

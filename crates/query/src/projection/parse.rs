//! Parser of projections of find, `$project` and `$addFields`, with MongoDB's errors.
//!
//! The result is a [`Tree`], which [`apply`](super::apply) runs. A new operator of find's projections is a case in
//! [`Parser::document`] and a [`Node`].

use super::tree::{Node, Slice, Tree};
use super::{Kind, Projection};
use crate::Matcher;
use crate::expression::ErrorPrefix;
use crate::field_path::checked_path;
use crate::{Context, Expression};
use base::bson::{Builder, Document, Element, FieldName, Path, Value};
use base::{Error, ErrorCode, Result, bail, err};
use std::sync::Arc;

/// The rules of a projection: find's, or those of `$project` (MongoDB's ProjectionPolicies).
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Policy {
    Find,
    Aggregate,
}

/// State of the parser.
struct Parser<'c> {
    context: &'c Context,
    policy: Policy,
    tree: Tree,
    /// Inclusion or exclusion, once a field has decided.
    kind: Option<Kind>,
    /// Whether `_id` is included, if the projection names it. It decides the kind only if no other field does.
    id: Option<bool>,
    positional: Option<Path>,
    has_elem_match: bool,
    has_meta: bool,
    /// The paths of `{$meta: "sortKey"}`.
    sort_keys: Vec<Path>,
}

/// Parses a find's projection or a `$project`.
pub(super) fn parse(spec: Document<'_>, policy: Policy, context: &Context) -> Result<Projection> {
    let mut parser = Parser {
        context,
        policy,
        tree: Tree::default(),
        kind: None,
        id: None,
        positional: None,
        has_elem_match: false,
        has_meta: false,
        sort_keys: Vec::new(),
    };
    for element in spec {
        parser.field("", &element)?;
    }
    parser.finish()
}

impl Parser<'_> {
    /// Parses one field of the specification. Positional `$` is allowed only in find, at the end of a path.
    fn field(&mut self, prefix: &str, element: &Element<'_>) -> Result<()> {
        self.context.interrupt.check()?;
        let path = super::join(prefix, element.name());
        if self.policy == Policy::Find && path.contains(".$.") {
            bail!(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional \
                 projection may only be used at the end, for example: a.b.$. If the query previously used a \
                 form like a.b.$.d, remove the parts following the '$' and the results will be equivalent."
            );
        }
        match path.strip_suffix(".$") {
            Some(array) if self.policy == Policy::Find => return self.positional(array, element),
            Some(_) => {
                bail!(31324, "Cannot use positional projection in aggregation projection");
            }
            None => checked_path(&path)?,
        };
        match element.value() {
            Value::Document(inner) => self.document(&path, inner),
            value if value.as_number().is_some() || value.as_bool().is_some() => {
                self.listed(&path, value.is_truthy())
            }
            value => self.computed(&path, value),
        }
    }

    /// Parses a document at a path: nested fields, an operator of find, or an expression.
    fn document(&mut self, path: &str, inner: Document<'_>) -> Result<()> {
        let Some(first) = inner.first() else {
            bail!(51270, "An empty sub-projection is not a valid value. Found empty object at path");
        };
        if !first.name().starts_with('$') {
            for element in inner {
                self.field(path, &element)?;
            }
            return Ok(());
        }
        match (self.policy, first.name()) {
            (Policy::Find, "$elemMatch") => self.elem_match(path, &first),
            (Policy::Find, "$slice") => match slice(first.value())? {
                Some(slice) => self.tree.add(path, Node::Slice(slice)),
                None => self.computed(path, Value::Document(inner)).map_err(|error| no_slice(error, inner)),
            },
            (_, "$meta") if inner.iter().count() == 1 => self.meta(path, inner, &first),
            _ => self.computed(path, Value::Document(inner)),
        }
    }

    /// Adds an included or excluded field. `_id` may differ from all other fields.
    fn listed(&mut self, path: &str, included: bool) -> Result<()> {
        if path == "_id" {
            if self.id.is_some() {
                bail!(31250, "Path collision at _id");
            }
            self.id = Some(included);
            return Ok(());
        }
        if included {
            if self.kind == Some(Kind::Exclude) {
                bail!(31253, "Cannot do inclusion on field {path} in exclusion projection");
            }
        } else if self.kind == Some(Kind::Include) {
            bail!(31254, "Cannot do exclusion on field {path} in inclusion projection");
        }
        self.kind = Some(if included { Kind::Include } else { Kind::Exclude });
        self.tree.add(path, Node::Listed)
    }

    /// Records a computed field, which only inclusion allows.
    fn include_for_computed(&mut self) -> Result<()> {
        if self.kind == Some(Kind::Exclude) {
            bail!(31252, "Cannot use expression other than $meta in exclusion projection");
        }
        self.kind = Some(Kind::Include);
        Ok(())
    }

    fn computed(&mut self, path: &str, value: Value<'_>) -> Result<()> {
        self.include_for_computed()?;
        let prefix = if self.policy == Policy::Find { ErrorPrefix::Plain } else { ErrorPrefix::Pipeline };
        let expression = expression(value, self.context, prefix)?;
        self.tree.add(path, Node::Computed(expression))
    }

    /// Parses `$meta`, which alone neither includes nor excludes.
    fn meta(&mut self, path: &str, call: Document<'_>, operator: &Element<'_>) -> Result<()> {
        let expression = Expression::parse_at(Value::Document(call), self.context, ErrorPrefix::Plain)?;
        self.has_meta = true;
        if operator.value().as_str() == Some("sortKey") {
            self.sort_keys.push(checked_path(path)?);
        }
        self.tree.add(path, Node::Computed(expression))
    }

    /// Parses find's `$elemMatch` on a top-level field. Errors: 31274, 31275, 31255.
    fn elem_match(&mut self, path: &str, operator: &Element<'_>) -> Result<()> {
        if operator.value().as_document().is_none() {
            bail!(31274, "elemMatch: Invalid argument, object required, but got {}", operator.kind().alias());
        }
        if path.contains('.') {
            bail!(31275, "Cannot use $elemMatch projection on a nested field");
        }
        if self.positional.is_some() {
            bail!(31255, "Cannot specify positional operator and $elemMatch");
        }
        self.has_elem_match = true;
        let mut filter = Builder::new();
        filter.begin_document(FieldName::new(path)?).append_element(operator).end();
        let filter = Matcher::parse(filter.finish().view(), self.context)?;
        self.tree.add(path, Node::ElemMatch(Arc::new(filter)))
    }

    /// Parses find's positional `$`, which means inclusion. Errors: 31276, 31256, 31271, 31308, 31395.
    fn positional(&mut self, array: &str, element: &Element<'_>) -> Result<()> {
        if self.positional.is_some() {
            bail!(31276, "Cannot specify more than one positional projection per query.");
        }
        if self.has_elem_match {
            bail!(31256, "Cannot specify positional operator and $elemMatch");
        }
        if array.is_empty() {
            bail!(5392900, "Projection on field {} is invalid", element.name());
        }
        let path = checked_path(array)?;
        let value = element.value();
        if value.as_number().is_none() && value.as_bool().is_none() {
            let code = if value.as_document().is_some() { 31271 } else { 31308 };
            let message = "positional projection cannot be used with a literal";
            return Err(Error::new(ErrorCode::Location(code), message));
        }
        if self.kind == Some(Kind::Exclude) || !value.is_truthy() {
            bail!(31395, "positional projection cannot be used with exclusion");
        }
        self.kind = Some(Kind::Include);
        self.positional = Some(path);
        self.tree.add(array, Node::Listed)
    }

    fn finish(mut self) -> Result<Projection> {
        let kind = self.kind.unwrap_or(match self.id {
            Some(true) => Kind::Include,
            // A lone `$elemMatch` means inclusion; with excluded fields it keeps its position.
            _ if self.has_elem_match => Kind::Include,
            // A lone `$meta` includes all other fields in find, but not in `$project`.
            _ if self.has_meta && self.policy == Policy::Aggregate => Kind::Include,
            _ => Kind::Exclude,
        });
        let listed = match kind {
            Kind::Include => self.id != Some(false) && self.tree.find(b"_id").is_none(),
            Kind::Exclude | Kind::Add => self.id == Some(false),
        };
        if self.id.is_some() && self.tree.find(b"_id").is_some() {
            bail!(31250, "Path collision at _id");
        }
        if listed {
            self.tree.push_front(FieldName::ID, Node::Listed);
        }
        let Parser { tree, positional, sort_keys, .. } = self;
        Ok(Projection { kind, tree, positional, sort_keys, may_deepen: false })
    }
}

/// Returns the error for a `$slice` that is neither find's nor an expression: the error of find's form.
fn no_slice(error: base::Error, given: Document<'_>) -> base::Error {
    if error.code().number() != 28667 {
        return error;
    }
    error.context(&format!(
        "Invalid $slice syntax. The given syntax {given} did not match the find() syntax because :: \
         Location31273: $slice only supports numbers and [skip, limit] arrays :: The given syntax did not match \
         the expression $slice syntax."
    ))
}

/// Parses the bounds of find's `$slice`; `None` for arguments of the expression `$slice`.
fn slice(value: Value<'_>) -> Result<Option<Slice>> {
    if let Some(limit) = value.as_number() {
        let limit = limit.to_i64_clamped();
        return Ok(Some(if limit < 0 {
            Slice { skip: limit, limit: limit.saturating_neg() }
        } else {
            Slice { skip: 0, limit }
        }));
    }
    let bounds: Vec<_> = value.as_array().map(|array| array.iter().take(3).collect()).unwrap_or_default();
    let [skip, limit] = bounds.as_slice() else { return Ok(None) };
    let (Some(skip), Some(limit)) = (skip.as_number(), limit.as_number()) else { return Ok(None) };
    let (skip, limit) = (skip.to_i64_clamped(), limit.to_i64_clamped());
    if limit <= 0 {
        bail!(28724, "First argument to $slice must be an array, but is of type: int");
    }
    Ok(Some(Slice { skip, limit }))
}

/// Parses a computed field. An unknown operator has a special code here.
fn expression(value: Value<'_>, context: &Context, prefix: ErrorPrefix) -> Result<Expression> {
    Expression::parse_at(value, context, prefix).map_err(|error| {
        let unknown = error.code().number() == 168;
        match value.as_document().and_then(|document| document.first()).filter(|_| unknown) {
            Some(first) if error.message().contains(&format!("'{}'", first.name())) => {
                err!(31325, "Unknown expression {}", first.name())
            }
            _ => error,
        }
    })
}

/// Parses the specification of an `$addFields`; every leaf is an expression.
///
/// Errors: 40176 for conflicting paths, 40181 for two operators in one object, 40183 for dots in nested names.
pub(super) fn add_fields(spec: Document<'_>, context: &Context) -> Result<Projection> {
    let mut tree = Tree::default();
    for element in spec {
        added(&mut tree, element.name(), &element, context)?;
    }
    Ok(Projection { kind: Kind::Add, tree, positional: None, sort_keys: Vec::new(), may_deepen: false })
}

/// Adds one field of an `$addFields`, recursively for nested documents without operators.
fn added(tree: &mut Tree, path: &str, element: &Element<'_>, context: &Context) -> Result<()> {
    context.interrupt.check()?;
    checked_path(path)?;
    // An empty document is a value.
    if let Value::Document(inner) = element.value()
        && let Some(first) = inner.first()
    {
        let count = inner.iter().count();
        if first.name().starts_with('$') && count > 1 {
            bail!(
                40181,
                "an expression specification must contain exactly one field, the name of the expression. Found \
                 {count} fields in {inner}"
            );
        }
        if !first.name().starts_with('$') {
            for field in inner {
                if field.name().contains('.') {
                    bail!(40183, "cannot use dotted field name '{}' in a sub object: {inner}", field.name());
                }
                added(tree, &super::join(path, field.name()), &field, context)?;
            }
            return Ok(());
        }
    }
    let expression = Expression::parse(element.value(), context)?;
    tree.add(path, Node::Computed(expression)).map_err(|_| {
        err!(40176, "specification contains two conflicting paths. Cannot specify '{path}': {element}")
    })
}

/// The tree of an `$unset`.
pub(super) fn unset(paths: &[&str]) -> Result<Projection> {
    let mut tree = Tree::default();
    for path in paths {
        checked_path(path)?;
        tree.add(path, Node::Listed)?;
    }
    Ok(Projection { kind: Kind::Exclude, tree, positional: None, sort_keys: Vec::new(), may_deepen: false })
}

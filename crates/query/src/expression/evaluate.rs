//! Evaluation: an operator's access to the document, the variables and its operands.
//!
//! An operator's function takes a [`Call`] and returns [`Computed`]. Results larger than a number live in the arena of
//! the [`Scope`], whose memory is limited. Operators are in [`table`](super::table); a new kind of [`Node`] needs a
//! case in [`Node::evaluate`].

use super::node::{CallNode, Node};
use super::table::Operator;
use super::{literal, reference};
use crate::{Arena, Collation, Context, RowView};
use base::bson::{Array, Builder, Document, Number, Value, ValueBuf};
use base::{Result, bail};

/// Result of an evaluation: a value, `None` for missing, or MongoDB's error.
pub(crate) type Computed<'a> = Result<Option<Value<'a>>>;

/// Values from this size in bytes are copied with interruption checks.
const LARGE: usize = 64 << 10;

/// Environment of an evaluation. A copy copies a few pointers.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'e, 'a> {
    /// The document, `$$CURRENT` and `$$ROOT`.
    pub(crate) root: RowView<'a>,
    pub(crate) context: &'a Context,
    pub(crate) arena: &'a Arena,
    pub(crate) frame: Option<&'e Frame<'e, 'a>>,
}

/// Values of the variables that one call binds. Frames form a list, innermost first.
pub(crate) struct Frame<'e, 'a> {
    /// The slot of the first value. Slots are numbered over all frames.
    pub(crate) first: usize,
    pub(crate) values: &'e [Option<Value<'a>>],
    pub(crate) parent: Option<&'e Frame<'e, 'a>>,
}

impl<'e, 'a> Scope<'e, 'a> {
    /// Creates a scope without variables.
    pub(crate) fn new(root: impl Into<RowView<'a>>, context: &'a Context, arena: &'a Arena) -> Self {
        Scope { root: root.into(), context, arena, frame: None }
    }

    /// Returns the value of a variable by its slot.
    pub(crate) fn slot(&self, slot: usize) -> Option<Value<'a>> {
        let mut frame = self.frame;
        while let Some(inner) = frame {
            if slot >= inner.first {
                return inner.values.get(slot - inner.first).copied().flatten();
            }
            frame = inner.parent;
        }
        None
    }

    /// Refuses a value under construction that exceeds the memory limit of expressions.
    ///
    /// Errors: 146.
    pub(crate) fn check_memory(&self, bytes: usize) -> Result<()> {
        let limit = self.context.limits.expression;
        if bytes > limit {
            bail!(ExceededMemoryLimit, "an expression used over {limit} bytes of memory, which is the limit");
        }
        Ok(())
    }

    /// Copies a string into the arena.
    pub(crate) fn text(&self, text: &str) -> Computed<'a> {
        self.charge_memory(text.len())?;
        Ok(Some(Value::String(self.arena.text(text))))
    }

    /// Returns an array of the elements pushed to `builder`.
    pub(crate) fn array(&self, builder: Builder) -> Computed<'a> {
        Ok(Some(Value::Array(Array::from_valid(self.bytes(&builder.into_buffer())?))))
    }

    /// Returns a document of the fields appended to `builder`.
    pub(crate) fn document(&self, builder: Builder) -> Computed<'a> {
        Ok(Some(Value::Document(Document::from_valid(self.bytes(&builder.into_buffer())?))))
    }

    /// Copies a value into the arena.
    pub(crate) fn copy_value(&self, value: Value<'_>) -> Result<Value<'a>> {
        let mut bytes = Vec::new();
        value.write_to(&mut bytes);
        Ok(Value::decode(value.kind(), self.bytes(&bytes)?))
    }

    /// Copies bytes into the arena.
    ///
    /// Errors: the errors of [`charge_memory`](Self::charge_memory).
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<&'a [u8]> {
        self.charge_memory(bytes.len())?;
        Ok(self.arena.bytes(bytes))
    }

    /// Accounts for the growth of a value under construction. Large values need an own check, because a copy of one
    /// takes as long as many small values.
    ///
    /// Errors: the errors of [`charge_memory`](Self::charge_memory).
    #[inline]
    pub(crate) fn charge_growth(&self, before: usize, builder: &Builder) -> Result<()> {
        match builder.len() - before >= LARGE {
            true => self.charge_memory(builder.len()),
            false => Ok(()),
        }
    }

    /// Accounts for bytes before they are copied into the arena.
    ///
    /// Errors: 146 beyond the memory limit; interruption.
    pub(crate) fn charge_memory(&self, bytes: usize) -> Result<()> {
        self.context.steps(bytes / 1024)?;
        self.check_memory(self.arena.allocated() + bytes)
    }
}

/// A call of an operator under evaluation.
pub(crate) struct Call<'e, 'a> {
    node: &'a CallNode,
    pub(crate) scope: &'e Scope<'e, 'a>,
}

impl<'e, 'a> Call<'e, 'a> {
    /// Creates a call in this scope.
    pub(crate) fn new(node: &'a CallNode, scope: &'e Scope<'e, 'a>) -> Call<'e, 'a> {
        Call { node, scope }
    }

    /// The collation of string comparisons.
    pub(crate) fn collation(&self) -> &'a Collation {
        &self.scope.context.collation
    }

    /// Whether an operand is constant or absent.
    pub(crate) fn is_constant(&self, position: usize) -> bool {
        self.node.operands.get(position).is_none_or(Node::is_constant)
    }

    /// Whether all operands are constant or absent.
    pub(crate) fn is_all_constant(&self) -> bool {
        (0..self.len()).all(|position| self.is_constant(position))
    }

    /// The operator's name with its dollar sign, for messages.
    pub(crate) fn name(&self) -> &'static str {
        self.operator().name
    }

    /// The operator.
    pub(crate) fn operator(&self) -> &'static Operator {
        self.node.operator
    }

    /// The number of operands.
    pub(crate) fn len(&self) -> usize {
        self.node.operands.len()
    }

    /// Whether the second operand, a constant array, contains a value; `None` if it must be scanned.
    pub(crate) fn has_member(&self, value: Value<'_>) -> Option<bool> {
        self.node.members.as_ref()?.contains(value, self.collation())
    }

    /// Returns the range of a field's value in a `$switch` over ranges, `Some(None)` if it is outside; `None` if each
    /// case must be tested.
    pub(crate) fn range(&self) -> Result<Option<Option<usize>>> {
        let Some(boundaries) = &self.node.members else { return Ok(None) };
        let first = |node: &'a Node| if let Node::Call(call) = node { call.operands.first() } else { None };
        let Some(field) = self.operand(0).and_then(first).and_then(first) else { return Ok(None) };
        Ok(boundaries.range_of(field.evaluate(self.scope)?, self.collation()))
    }

    /// Whether a named argument was given.
    pub(crate) fn has_argument(&self, position: usize) -> bool {
        !matches!(self.node.operands.get(position), None | Some(Node::Absent))
    }

    /// Evaluates an operand. An absent operand is missing.
    pub(crate) fn get(&self, position: usize) -> Computed<'a> {
        self.node.operands.get(position).map_or(Ok(None), |node| node.evaluate(self.scope))
    }

    /// Evaluates an operand; `None` if it is missing, null or undefined.
    pub(crate) fn get_non_null(&self, position: usize) -> Computed<'a> {
        Ok(self.get(position)?.filter(|value| !value.is_nullish()))
    }

    /// Evaluates an operand with the variables of this call bound to `values`.
    pub(crate) fn get_with<'b>(
        &self,
        position: usize,
        values: &[Option<Value<'b>>],
        arena: &'b Arena,
    ) -> Computed<'b>
    where
        'a: 'b,
    {
        let Some(node) = self.node.operands.get(position) else { return Ok(None) };
        self.with(values, arena, |scope| node.evaluate(scope))
    }

    /// Calls `evaluate` with a scope in which the variables of this call are bound to `values`.
    pub(crate) fn with<'b, T>(
        &self,
        values: &[Option<Value<'b>>],
        arena: &'b Arena,
        evaluate: impl FnOnce(&Scope<'_, 'b>) -> T,
    ) -> T
    where
        'a: 'b,
    {
        let frame = Frame { first: self.node.bindings.first, values, parent: self.scope.frame };
        evaluate(&Scope { root: self.scope.root, context: self.scope.context, arena, frame: Some(&frame) })
    }

    /// The slot of the last variable that the call binds.
    pub(crate) fn last_slot(&self) -> usize {
        (self.node.bindings.first + self.node.bindings.names.len()).saturating_sub(1)
    }

    /// The operand at a position.
    pub(crate) fn operand(&self, position: usize) -> Option<&'a Node> {
        self.node.operands.get(position)
    }

    /// Evaluates all operands in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = Computed<'a>> + '_ {
        self.node.operands.iter().map(|node| node.evaluate(self.scope))
    }

    /// The number of variables that the call binds.
    pub(crate) fn bindings(&self) -> usize {
        self.node.bindings.names.len()
    }
}

impl Node {
    /// Evaluates the node.
    pub(crate) fn evaluate<'a>(&'a self, scope: &Scope<'_, 'a>) -> Computed<'a> {
        match self {
            Node::Absent => Ok(None),
            Node::Constant(value) => Ok(value.as_ref().map(ValueBuf::view)),
            Node::Field(field) => reference::evaluate(field, scope),
            Node::Object(fields) => literal::document(fields, scope),
            Node::Array(nodes) => literal::array(nodes, scope),
            Node::Call(call) => {
                scope.context.steps(1)?;
                (call.operator.evaluate)(&Call::new(call, scope))
            }
        }
    }
}

/// Returns a number from an operator.
pub(crate) fn number<'a>(number: Number) -> Computed<'a> {
    Ok(Some(Value::from(number)))
}

/// Returns a value from an operator.
pub(crate) fn value<'a>(value: impl Into<Value<'a>>) -> Computed<'a> {
    Ok(Some(value.into()))
}

/// Returns null from an operator.
pub(crate) fn null<'a>() -> Computed<'a> {
    Ok(Some(Value::Null))
}

/// MongoDB's type name of an optional value.
pub(crate) fn type_name(value: Option<Value<'_>>) -> &'static str {
    value.map_or("missing", |value| value.kind().alias())
}

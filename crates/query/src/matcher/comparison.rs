//! `$eq $lt $lte $gt $gte $ne`: comparison of a value with a constant.
//!
//! Comparison uses type bracketing: a constant matches only values of its own bracket. All numbers share a bracket.
//! MinKey and MaxKey compare with everything, and null equals missing. NaN equals NaN and is neither less nor greater
//! than any number.

use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::Parser;
use super::walk::LeafArrays;
use crate::Collation;
use base::bson::{Decimal128, Element, Number, Path, Type, Value, ValueBuf};
use base::{Result, bail};
use std::cmp::Ordering;

/// A comparison, with the value on the left and the constant on the right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ComparisonOp {
    Eq,
    Lte,
    Lt,
    Gt,
    Gte,
}

impl ComparisonOp {
    /// The operator's name, `$eq` and so on.
    pub fn name(self) -> &'static str {
        match self {
            ComparisonOp::Eq => "$eq",
            ComparisonOp::Lte => "$lte",
            ComparisonOp::Lt => "$lt",
            ComparisonOp::Gt => "$gt",
            ComparisonOp::Gte => "$gte",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            ComparisonOp::Eq => order == Ordering::Equal,
            ComparisonOp::Lte => order != Ordering::Greater,
            ComparisonOp::Lt => order == Ordering::Less,
            ComparisonOp::Gt => order == Ordering::Greater,
            ComparisonOp::Gte => order != Ordering::Less,
        }
    }

    fn includes_equal(self) -> bool {
        self.holds(Ordering::Equal)
    }
}

/// A comparison with a constant.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The comparison operator.
    pub op: ComparisonOp,
    /// The constant. It is never undefined. It is a regex only with [`ComparisonOp::Eq`], which compares the regex as a
    /// value.
    pub operand: ValueBuf,
    /// The type bracket of the constant.
    rank: u8,
    /// The constant, if it is a number.
    number: Option<Number>,
    /// Values that the comparison finds in arrays.
    pub(super) arrays: LeafArrays,
}

impl Comparison {
    /// Builds a comparison.
    ///
    /// Errors: BadValue for undefined, and for a regex with an operator other than `$eq`.
    pub(super) fn new(op: ComparisonOp, operand: Value<'_>, path: &Path) -> Result<Comparison> {
        match operand.kind() {
            Type::Undefined => bail!(BadValue, "cannot compare to undefined"),
            Type::Regex if op != ComparisonOp::Eq => {
                let message = "Can't have RegEx as arg to non-equality predicate over field";
                bail!(BadValue, "{message} '{path}'.");
            }
            _ => {}
        }
        let rank = operand.kind().canonical_rank();
        let (number, arrays) = (operand.as_number(), LeafArrays::Traverse);
        Ok(Comparison { op, operand: operand.to_owned(), rank, number, arrays })
    }

    /// Whether one value satisfies the comparison.
    // Every filter of a scan calls this. Without the attribute, a second caller makes the scan 3 % slower.
    #[inline(always)]
    pub(super) fn test(&self, element: Option<&Element<'_>>, collation: &Collation) -> bool {
        let Some(element) = element else { return self.matches_missing() };
        if let Some(constant) = self.number {
            return number(element).is_some_and(|number| self.test_number(number, constant));
        }
        if self.op == ComparisonOp::Eq && same_bytes(element, &self.operand) {
            return true;
        }
        if element.kind().canonical_rank() != self.rank {
            return self.matches_other_bracket();
        }
        self.op.holds(order(element, &self.operand, collation))
    }

    fn test_number(&self, number: Number, constant: Number) -> bool {
        match (number.is_nan(), constant.is_nan()) {
            (false, false) => self.op.holds(number.compare(constant)),
            (one, other) => one && other && self.op.includes_equal(),
        }
    }

    /// Whether null matches a gap in an array on the path: a value that is no document.
    pub fn finds_gaps(&self) -> bool {
        self.arrays == LeafArrays::TraverseGaps
    }

    /// Whether a missing value matches: null equals missing (but, since 8.0, not undefined).
    pub(super) fn matches_missing(&self) -> bool {
        match self.operand.kind() {
            Type::Null => self.op.includes_equal(),
            _ => self.matches_other_bracket(),
        }
    }

    /// Whether values of other brackets match, which only MinKey and MaxKey allow.
    fn matches_other_bracket(&self) -> bool {
        match self.operand.kind() {
            Type::MaxKey => matches!(self.op, ComparisonOp::Lt | ComparisonOp::Lte),
            Type::MinKey => matches!(self.op, ComparisonOp::Gt | ComparisonOp::Gte),
            _ => false,
        }
    }
}

/// Returns the number in an element, or `None` for other types, without decoding them.
#[inline]
pub(super) fn number(element: &Element<'_>) -> Option<Number> {
    let bytes = element.value_bytes();
    Some(match element.kind() {
        Type::Int32 => Number::Int32(i32::from_le_bytes(*bytes.first_chunk()?)),
        Type::Double => Number::Double(f64::from_le_bytes(*bytes.first_chunk()?)),
        Type::Int64 => Number::Int64(i64::from_le_bytes(*bytes.first_chunk()?)),
        Type::Decimal128 => Number::Decimal128(Decimal128::from_bytes(*bytes.first_chunk()?)),
        _ => return None,
    })
}

/// Whether a stored value and a constant have equal types and bytes, which implies equality.
fn same_bytes(element: &Element<'_>, constant: &ValueBuf) -> bool {
    element.kind() == constant.kind() && element.value_bytes() == constant.bytes()
}

/// Compares a stored value with a constant. All comparisons of the matcher come through this function.
#[inline]
pub(super) fn order(element: &Element<'_>, constant: &ValueBuf, collation: &Collation) -> Ordering {
    match (element.kind(), constant.kind()) {
        (Type::String, Type::String) if collation.is_simple() => {
            text(element.value_bytes()).cmp(text(constant.bytes()))
        }
        (Type::ObjectId, Type::ObjectId) => element.value_bytes().cmp(constant.bytes()),
        _ => collation.compare(element.value(), constant.view()),
    }
}

/// The characters of an undecoded string.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or(&[])
}

/// Builds a comparison of a path's value with a constant.
pub(super) fn field(path: &Path, op: ComparisonOp, operand: Value<'_>) -> Result<Node> {
    let comparison = Comparison::new(op, operand, path)?;
    Ok(Node::Field { path: path.clone(), predicate: Predicate::Compare(comparison) })
}

macro_rules! parse_functions {
    ($($name:ident => $op:ident),*) => {
        $(pub(super) fn $name(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
            field(argument.path, ComparisonOp::$op, argument.value()).map(Some)
        })*
    };
}

parse_functions!(parse_eq => Eq, parse_lte => Lte, parse_lt => Lt, parse_gt => Gt, parse_gte => Gte);

/// `$ne`: no value equals the constant.
pub(super) fn parse_ne(_: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Option<Node>> {
    if argument.value().kind() == Type::Regex {
        bail!(BadValue, "Can't have regex as arg to $ne.");
    }
    let equal = field(argument.path, ComparisonOp::Eq, argument.value())?;
    Ok(Some(Node::Not(Box::new(equal))))
}

//! `$in` and `$nin`: equality with one of several constants, or a match of one of several patterns.

use super::comparison::{number, order};
use super::node::{Node, Predicate};
use super::operators::FieldArgument;
use super::parse::{Parser, is_operator_document};
use super::regex_match::{RegexMatch, text_bytes};
use super::walk::LeafArrays;
use crate::interrupt_check::sort_in_runs;
use crate::regex::{Literals, check_before};
use crate::{Collation, Context, Interrupt};
use base::bson::{Element, Number, Type, Value, ValueBuf};
use base::{Result, bail};
use std::sync::Arc;

/// The constants and patterns of an `$in`.
#[derive(Clone, Debug)]
pub struct In {
    /// The constants, sorted by the filter's collation, without duplicates.
    pub values: Vec<ValueBuf>,
    /// The patterns in the given order.
    pub regexes: Vec<RegexMatch>,
    /// The decoded numbers among the constants. Most lists have one type, and decoding at every step of a binary search
    /// would be most of its cost.
    numbers: Vec<Number>,
    has_null: bool,
    /// Values that the list finds in arrays.
    pub(super) arrays: LeafArrays,
    /// The texts of all patterns, if every pattern is a plain text.
    literals: Option<Arc<Literals>>,
}

impl In {
    /// Sorts the constants and removes duplicates.
    ///
    /// Errors: interruption.
    pub(super) fn new(mut values: Vec<ValueBuf>, regexes: Vec<RegexMatch>, context: &Context) -> Result<In> {
        let (collation, interrupt) = (&context.collation, &*context.interrupt);
        sort_in_runs(&mut values, interrupt, |a, b| collation.compare(a.view(), b.view()))?;
        values.dedup_by(|a, b| collation.equal(a.view(), b.view()));
        let has_null = values.iter().any(|value| value.kind() == Type::Null);
        let numbers = values.iter().filter_map(|value| value.view().as_number()).collect();
        let literals = match regexes.len() {
            0 | 1 => None,
            _ => Literals::union(regexes.iter().map(RegexMatch::literals)).map(Arc::new),
        };
        interrupt.check()?;
        Ok(In { values, regexes, numbers, has_null, arrays: LeafArrays::Traverse, literals })
    }

    /// Whether null is among the constants; null matches missing values too.
    pub fn has_null(&self) -> bool {
        self.has_null
    }

    /// As [`Comparison::finds_gaps`](super::comparison::Comparison::finds_gaps).
    pub fn finds_gaps(&self) -> bool {
        self.arrays == LeafArrays::TraverseGaps
    }

    /// Whether a value equals a constant or matches a pattern. Plain texts are searched first, because they need no
    /// PCRE.
    pub(super) fn test(
        &self,
        element: Option<&Element<'_>>,
        collation: &Collation,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        let Some(element) = element else { return Ok(self.has_null) };
        if self.contains(element, collation) {
            return Ok(true);
        }
        if let (Some(literals), Some(text)) = (&self.literals, text_bytes(element)) {
            check_before(text.len(), interrupt)?;
            if let Some(matched) = literals.is_match(text) {
                return Ok(matched);
            }
        }
        for regex in &self.regexes {
            if regex.test(Some(element), interrupt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn contains(&self, element: &Element<'_>, collation: &Collation) -> bool {
        if let Some(number) = number(element) {
            return self.numbers.binary_search_by(|constant| constant.compare(number)).is_ok();
        }
        self.values.binary_search_by(|constant| order(element, constant, collation).reverse()).is_ok()
    }
}

/// Parses the array of constants and patterns. Errors: BadValue for undefined and for operators.
pub(super) fn parse(parser: &Parser<'_>, argument: &FieldArgument<'_>) -> Result<Node> {
    let Value::Array(array) = argument.value() else {
        bail!(BadValue, "{} needs an array", argument.name());
    };
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for (position, value) in array.iter().enumerate() {
        parser.check_at_intervals(position)?;
        match value {
            Value::Regex { pattern, options } => regexes.push(RegexMatch::new(&pattern, &options)?),
            Value::Undefined => {
                bail!(BadValue, "InMatchExpression equality cannot be undefined");
            }
            Value::Document(inner) if is_operator_document(inner) => {
                bail!(BadValue, "cannot nest $ under $in");
            }
            _ => values.push(value.to_owned()),
        }
    }
    Ok(Node::Field {
        path: argument.path.clone(),
        predicate: Predicate::In(In::new(values, regexes, parser.context)?),
    })
}

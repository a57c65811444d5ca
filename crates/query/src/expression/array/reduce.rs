//! Evaluation of `$reduce`. [`iterate`](super::iterate) parses it.

use super::super::evaluate::{Call, Computed, Scope, null};
use super::super::logic::truthy;
use super::super::node::{CallNode, FieldNode, Node, Source};
use super::super::table::{Composition, Operator};
use super::array_or_null;
use super::iterate::with_positions;
use crate::Arena;
use base::bson::{Array, Document, MAX_DEPTH, Type, Value, ValueBuffer, ValueContent, nests_deeper};
use base::{Result, bail, err};

/// Evaluates `$reduce`. The accumulated value alternates between two buffers, so memory does not grow with the
/// iterations. Operators that join operands to the value take linear time: see [`Step::Join`].
///
/// Errors: 40080 for a value that is not an array, Overflow if the value nests too deeply.
pub(in super::super) fn reduce<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let input = array_or_null(call, 0, |found| {
        err!(40080, "$reduce requires that 'input' be an array, found: {found}")
    })?;
    let Some(input) = input else { return null() };
    let mut accumulated = Accumulated::default();
    accumulated.value.set(call.get(1)?);
    let (mut next, mut arena) = (ValueBuffer::default(), Arena::new());
    let Some(body) = call.operand(2) else { return Ok(None) };
    let slot = call.last_slot();
    let reads = reads_value(body, slot);
    for (position, element) in with_positions(input) {
        call.scope.context.steps(1)?;
        let rules = Rules { slot, reads, kind: accumulated.value.kind(), waiting: accumulated.operator };
        let value = if reads { accumulated.value.get() } else { None };
        let step = call.with(&[position, Some(element), value], &arena, |scope| step(body, rules, scope))?;
        let (mut joined, mut replaced) = (None, false);
        match step {
            Step::Keep => {}
            Step::Join(operator, operands) => {
                check_operands(call, &operands)?;
                joined = Some((operator, accumulated.target(operator).encode(&operands)));
            }
            Step::Replace(value) => {
                next.set(value);
                replaced = true;
            }
            Step::Evaluate(body) => {
                accumulated.join(call)?;
                let variables = [position, Some(element), accumulated.value.get()];
                next.set(call.with(&variables, &arena, |scope| body.evaluate(scope))?);
                replaced = true;
            }
        }
        if let Some((operator, operands)) = joined {
            accumulated.add(call, operator, &operands)?;
        }
        if replaced {
            check_depth(next.get())?;
            std::mem::swap(&mut accumulated.value, &mut next);
        }
        arena.reset();
    }
    accumulated.join(call)?;
    accumulated.value.get().map(|value| call.scope.copy_value(value)).transpose()
}

/// The change of the accumulated value by one iteration of `$reduce`.
enum Step<'n, 'b> {
    Keep,
    /// The operator joins these operands to the accumulated value.
    Join(&'static Operator, Vec<Value<'b>>),
    Replace(Option<Value<'b>>),
    /// The new value is the value of this expression, which may read the accumulated value.
    Evaluate(&'n Node),
}

/// What [`step`] may do.
#[derive(Clone, Copy)]
struct Rules {
    /// The slot of `$$value`.
    slot: usize,
    /// Whether `$$value` is set.
    reads: bool,
    /// The type of the accumulated value.
    kind: Option<Type>,
    /// The operator whose operands wait.
    waiting: Option<&'static Operator>,
}

impl Rules {
    /// Whether an operator may join operands to the accumulated value.
    fn allow(&self, operator: &Operator) -> bool {
        let may_wait = extends(operator) || !self.reads;
        let fits = self.waiting.is_none_or(|waiting| std::ptr::eq(waiting, operator));
        self.kind.is_some() && joined_type(operator) == self.kind && may_wait && fits
    }
}

/// Evaluates the body of `$reduce`. `$$value`, an operator that joins operands to it, and a `$cond` of them do not copy
/// the accumulated value.
fn step<'n: 'b, 'b>(body: &'n Node, rules: Rules, scope: &Scope<'_, 'b>) -> Result<Step<'n, 'b>> {
    if is_value(body, rules.slot) {
        return Ok(Step::Keep);
    }
    let evaluated = || match rules.reads {
        true => body.evaluate(scope).map(Step::Replace),
        false => Ok(Step::Evaluate(body)),
    };
    let Node::Call(call) = body else { return evaluated() };
    if let Some((condition, then, otherwise)) = choice(call) {
        scope.context.steps(1)?;
        let chosen = if truthy(condition.evaluate(scope)?) { then } else { otherwise };
        return step(chosen, rules, scope);
    }
    match call.operands.as_slice() {
        [first, rest @ ..]
            if !rest.is_empty() && is_value(first, rules.slot) && rules.allow(call.operator) =>
        {
            scope.context.steps(1)?;
            let mut operands = Vec::new();
            for operand in rest {
                match operand.evaluate(scope)? {
                    Some(value) if Some(value.kind()) == rules.kind => operands.push(value),
                    // Null, and the error of another type.
                    _ => return evaluated(),
                }
            }
            Ok(Step::Join(call.operator, operands))
        }
        _ => evaluated(),
    }
}

/// Returns the type of the operands that an operator joins.
fn joined_type(operator: &Operator) -> Option<Type> {
    match operator.composition {
        Composition::Concatenation(kind) | Composition::Join(kind) => Some(kind),
        Composition::Choice | Composition::Opaque => None,
    }
}

/// Whether an operator adds its operands at the end of the first one.
fn extends(operator: &Operator) -> bool {
    matches!(operator.composition, Composition::Concatenation(_))
}

/// Returns the condition and the operands of a call that has the value of one of two operands.
fn choice(call: &CallNode) -> Option<(&Node, &Node, &Node)> {
    match (call.operator.composition, call.operands.as_slice()) {
        (Composition::Choice, [condition, then, otherwise]) => Some((condition, then, otherwise)),
        _ => None,
    }
}

fn is_value(node: &Node, slot: usize) -> bool {
    matches!(node, Node::Field(FieldNode { source: Source::Slot(at), path: None, .. }) if *at == slot)
}

/// Whether the body needs the whole `$$value`. An operator that joins its other operands to `$$value` does not.
fn reads_value(body: &Node, slot: usize) -> bool {
    let reads = |node: &Node| mentions(node, slot);
    let Node::Call(call) = body else { return reads(body) && !is_value(body, slot) };
    if let Some((condition, then, otherwise)) = choice(call) {
        return reads(condition) || reads_value(then, slot) || reads_value(otherwise, slot);
    }
    match call.operands.as_slice() {
        [first, rest @ ..] if joined_type(call.operator).is_some() && is_value(first, slot) => {
            rest.is_empty() || rest.iter().any(reads)
        }
        operands => operands.iter().any(reads),
    }
}

fn mentions(node: &Node, slot: usize) -> bool {
    matches!(node, Node::Field(FieldNode { source: Source::Slot(at), .. }) if *at == slot)
        || node.children().any(|child| mentions(child, slot))
}

/// The accumulated value of `$reduce`.
#[derive(Default)]
struct Accumulated {
    value: ValueBuffer,
    /// An operator, and one operand that stands for the operands of several iterations. It joins them to the value when
    /// they are as large as the value. So all copies of the value together take linear time.
    operator: Option<&'static Operator>,
    waiting: ValueBuffer,
}

/// Size in bytes up to which operands wait.
const WAITING: usize = 4 << 10;

impl Accumulated {
    /// The buffer that gets the operands of an operator.
    fn target(&self, operator: &Operator) -> &ValueBuffer {
        if extends(operator) { &self.value } else { &self.waiting }
    }

    /// Adds encoded operands of an operator. Errors: memory limit, and errors of [`join`](Self::join).
    fn add(
        &mut self,
        call: &Call<'_, '_>,
        operator: &'static Operator,
        operands: &ValueContent,
    ) -> Result<()> {
        if extends(operator) {
            self.value.extend(operands);
            return call.scope.check_memory(self.value.size());
        }
        if self.operator.replace(operator).is_none() {
            self.waiting.set(Some(match self.value.kind() {
                Some(Type::Array) => Value::Array(Array::EMPTY),
                _ => Value::Document(Document::EMPTY),
            }));
        }
        self.waiting.extend(operands);
        match self.waiting.size() > self.value.size().max(WAITING) {
            true => self.join(call),
            false => Ok(()),
        }
    }

    /// Joins the waiting operands to the value. Errors: errors of the operator, Overflow.
    fn join(&mut self, call: &Call<'_, '_>) -> Result<()> {
        let Some(operator) = self.operator.take() else { return Ok(()) };
        let operand = |buffer: &ValueBuffer| Node::Constant(buffer.get().map(|value| value.to_owned()));
        let node = Node::call(operator, vec![operand(&self.value), operand(&self.waiting)]);
        self.waiting = ValueBuffer::default();
        let arena = Arena::new();
        let value = call.with(&[], &arena, |scope| node.evaluate(scope))?;
        check_depth(value)?;
        self.value.set(value);
        Ok(())
    }
}

/// Checks operands before they are encoded. Errors: Overflow if one nests too deeply, interruption.
fn check_operands(call: &Call<'_, '_>, operands: &[Value<'_>]) -> Result<()> {
    operands.iter().try_for_each(|operand| {
        check_depth(Some(*operand))?;
        call.scope.context.steps(match operand {
            Value::Array(array) => array.len(),
            Value::Document(document) => document.iter().count(),
            _ => 0,
        })
    })
}

/// Refuses values that nest too deeply, because a reduction can add a level per iteration.
fn check_depth(value: Option<Value<'_>>) -> Result<()> {
    let nested = match value {
        Some(Value::Document(document)) => document,
        Some(Value::Array(array)) => array.as_document(),
        _ => return Ok(()),
    };
    if nests_deeper(nested, MAX_DEPTH) {
        bail!(Overflow, "$reduce: the value exceeds the limit of {MAX_DEPTH} levels of nesting");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error, check_parse_error};

    #[test]
    fn reduce() {
        check(
            "{$reduce: {input: '$a', initialValue: 1, in: {$multiply: ['$$value', '$$this']}}}",
            "{a: [2, 3, 4]}",
            "24",
        );
        check(
            "{$reduce: {input: '$a', initialValue: [], in: {$concatArrays: ['$$value', '$$this']}}}",
            "{a: [[1], [2, 3]]}",
            "[1, 2, 3]",
        );
        check("{$reduce: {input: [], initialValue: 5, in: 1}}", "{}", "5");
        for (append, expected) in [
            ("{$concatArrays: ['$$value', '$$value', ['$$this']]}", "[0, 0, 1, 0, 0, 1, 2]"),
            ("{$concatArrays: ['$$value']}", "[0]"),
            ("{$concatArrays: ['$$value', null]}", "null"),
            (
                "{$concatArrays: ['$$value', [{$size: '$$value'}], ['$$this', [9]]]}",
                "[0, 1, 1, [9], 4, 2, [9]]",
            ),
            (
                "{$cond: [{$in: ['$$this', '$$value']}, '$$value', {$concatArrays: ['$$value', ['$$this']]}]}",
                "[0, 1, 2]",
            ),
            ("{$cond: [{$eq: ['$$this', 1]}, {$concatArrays: ['$$value', [7]]}, {$size: '$$value'}]}", "2"),
            ("{$cond: [{$eq: ['$$this', 1]}, [5], {$concatArrays: ['$$value', ['$$this']]}]}", "[5, 2]"),
        ] {
            check(
                &format!("{{$reduce: {{input: '$a', initialValue: [0], in: {append}}}}}"),
                "{a: [1, 2]}",
                expected,
            );
        }
        check_error(
            "{$reduce: {input: [1], initialValue: [], in: {$concatArrays: ['$$value', 1]}}}",
            "{}",
            28664,
        );
        check_error(
            "{$reduce: {input: [1], initialValue: 1, in: {$concatArrays: ['$$value', []]}}}",
            "{}",
            28664,
        );
        check("{$reduce: {input: null, initialValue: 5, in: 1}}", "{}", "null");
        check_error("{$reduce: {input: 'x', initialValue: 5, in: 1}}", "{}", 40080);
        check_error("{$reduce: {input: {$range: [0, 5000]}, initialValue: 1, in: ['$$value']}}", "{}", 15);
        check_parse_error("{$reduce: {input: '$$this', initialValue: 0, in: 0}}", 17276);
    }

    #[test]
    fn reduce_joins_operands_to_the_value() {
        let reduce = |initial: &str, body: &str| {
            format!("{{$reduce: {{input: '$a', initialValue: {initial}, in: {body}}}}}")
        };
        for (initial, body, expected) in [
            ("''", "{$concat: ['$$value', '$$this', ',']}", "'b,a,b,'"),
            ("'x'", "{$concat: ['$$value', '$$value', '$$this']}", "'xxbxxbaxxbxxbab'"),
            ("'x'", "{$concat: ['$$value', {$cond: [{$eq: ['$$this', 'a']}, null, '$$this']}]}", "null"),
            ("null", "{$concat: ['$$value', '$$this']}", "null"),
            (
                "''",
                "{$cond: [{$eq: ['$$value', '']}, '$$this', {$concat: ['$$value', '-', '$$this']}]}",
                "'b-a-b'",
            ),
            ("['c', 'c']", "{$setUnion: ['$$value', ['$$this']]}", "['a', 'b', 'c']"),
            ("['c']", "{$setUnion: ['$$value', '$missing']}", "null"),
            ("['c']", "{$setUnion: ['$$value', [{$size: '$$value'}]]}", "[1, 2, 3, 'c']"),
            (
                "['c']",
                "{$cond: [{$eq: ['$$this', 'a']}, ['z'], {$setUnion: ['$$value', ['$$this']]}]}",
                "['b', 'z']",
            ),
            (
                "['c']",
                "{$cond: [{$eq: ['$$this', 'a']}, {$concatArrays: ['$$value', ['a']]}, {$setUnion: ['$$value', ['$$this']]}]}",
                "['a', 'b', 'c']",
            ),
            ("{c: 1}", "{$mergeObjects: ['$$value', {x: '$$this'}, {c: '$$IDX'}]}", "{c: 2, x: 'b'}"),
            (
                "{c: 1}",
                "{$mergeObjects: ['$$value', {$arrayToObject: [[['$$this', '$$IDX']]]}]}",
                "{c: 1, b: 2, a: 1}",
            ),
            (
                "{c: 1}",
                "{$mergeObjects: ['$$value', {$cond: [{$eq: ['$$this', 'a']}, null, {d: 1}]}]}",
                "{c: 1, d: 1}",
            ),
            ("null", "{$mergeObjects: ['$$value', {d: '$$IDX'}]}", "{d: 2}"),
            ("{c: 1}", "{$mergeObjects: ['$$value', {c: {$add: ['$$value.c', 1]}}]}", "{c: 4}"),
        ] {
            check(&reduce(initial, body), "{a: ['b', 'a', 'b']}", expected);
        }
        check_error(&reduce("''", "{$concat: ['$$value', 1]}"), "{a: ['b']}", 16702);
        check_error(&reduce("''", "{$mergeObjects: ['$$value', {}]}"), "{a: ['b']}", 40400);
        check_error(&reduce("[]", "{$setUnion: ['$$value', '$$this']}"), "{a: [[1], 2]}", 17043);
        check_error(&reduce("{}", "{$mergeObjects: ['$$value', '$$this']}"), "{a: [{b: 1}, 2]}", 40400);
    }

    #[test]
    fn many_operands_are_joined_at_several_sizes() {
        let keys = "{$map: {input: {$range: [0, 3000]}, in: {$mod: [{$multiply: ['$$this', 7]}, 1000]}}}";
        for (initial, body, expected) in [
            ("[]", "{$setUnion: ['$$value', ['$$this']]}", "{$range: [0, 1000]}"),
            (
                "{}",
                "{$mergeObjects: ['$$value', {$arrayToObject: [[[{$toString: '$$this'}, '$$IDX']]]}]}",
                "{$arrayToObject: {$map: {input: {$range: [0, 1000]}, in: [{$toString: {$mod: [{$multiply: ['$$this', 7]}, 1000]}}, {$add: ['$$this', 2000]}]}}}",
            ),
        ] {
            let reduced = format!("{{$reduce: {{input: {keys}, initialValue: {initial}, in: {body}}}}}");
            check(&format!("{{$eq: [{reduced}, {expected}]}}"), "{}", "true");
        }
    }

    #[test]
    fn long_reductions_stay_small() {
        let text = "{$reduce: {input: {$range: [0, 20000]}, initialValue: 0, in: {$add: ['$$value', {$size: [{$range: [0, 100]}]}]}}}";
        check(text, "{}", "2000000");
    }
}

//! Rewrites a pipeline into a cheaper one with an equal result.
//!
//! Filters move towards the source past stages that do not change the fields they read, so a plan may execute them.
//! Limits follow, and join a sort on their way. Adjacent stages of one kind are merged. Each rule examines the
//! stages from a position on. The rules are applied until none matches. A new rule is a function in `RULES`.
//!
//! MongoDB's own tests insert stages without effect. `$_internalInhibitOptimization` prevents stages from moving past
//! it. `$_internalSplitPipeline` marks where a sharded cluster would split a pipeline.

use super::r#match::{Condition, Match};
use super::operator::{Effect, Kind, Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Pipeline, Step, Stream, limit};
use crate::Context;
use base::bson::{Element, Value};
use base::{Result, err};
use std::sync::Arc;

/// Maximum number of stages that a rule examines. Adjacent `$match` count as one stage: they are joined at once.
const RULE_STEPS_MAX: usize = 3;

/// The replacement of a rule, and the number of steps that it replaces.
type Rewrite = Option<(usize, Vec<Step>)>;

impl Pipeline {
    /// Rewrites the stages into cheaper ones with an equal result.
    ///
    /// Errors: the errors of the interrupt.
    pub fn optimize(&mut self, context: &Context) -> Result<()> {
        // Every rule shortens the pipeline or moves a step towards the front, so rewriting terminates. The bound
        // protects against a mistake in a rule.
        let mut rounds = self.steps.len() * self.steps.len() + self.steps.len();
        let mut from = 0;
        while rounds > 0
            && let Some(at) = self.rewrite_once(from)
        {
            context.interrupt.check()?;
            rounds -= 1;
            // The replacement may match a rule with the steps before it; later steps have been examined.
            from = at.saturating_sub(RULE_STEPS_MAX);
        }
        Ok(())
    }

    /// Applies the first matching rule from a position on; returns its position.
    fn rewrite_once(&mut self, from: usize) -> Option<usize> {
        for at in from..self.steps.len() {
            let steps = self.steps.get(at..).unwrap_or_default();
            if let Some((taken, made)) = RULES.iter().find_map(|rule| rule(steps)) {
                self.steps.splice(at..at + taken, made);
                return Some(at);
            }
        }
        None
    }
}

/// The rules, in the order in which they are tried.
const RULES: [fn(&[Step]) -> Rewrite; 8] = [
    drop_empty_match,
    join_matches,
    pull_match,
    join_limits,
    join_skips,
    join_sort_limit,
    join_unwind,
    pull_limit,
];

fn kind(steps: &[Step], at: usize) -> Kind<'_> {
    steps.get(at).map_or(Kind::Other, |step| step.operator.kind())
}

fn drop_empty_match(steps: &[Step]) -> Rewrite {
    match kind(steps, 0) {
        Kind::Match(stage) if stage.filter().view().is_empty() => Some((1, Vec::new())),
        _ => None,
    }
}

/// Joins adjacent `$match` into one. Joining pairs would copy the first conditions for each of them.
fn join_matches(steps: &[Step]) -> Rewrite {
    let adjacent = (0..steps.len()).map_while(|at| match kind(steps, at) {
        Kind::Match(stage) => Some(stage.conditions()),
        _ => None,
    });
    let conditions: Vec<&[Condition]> = adjacent.collect();
    if conditions.len() < 2 {
        return None;
    }
    let joined = Match::of(steps.first()?.definition, conditions.concat());
    Some((conditions.len(), joined.into_iter().collect()))
}

/// Moves the conditions of a `$match` that a stage does not affect before the stage. Adjacent `$match` are joined
/// first.
fn pull_match(steps: &[Step]) -> Rewrite {
    let ([before, after, ..], Kind::Match(stage)) = (steps, kind(steps, 1)) else { return None };
    let effect = before.operator.effect();
    if matches!(effect, Effect::Opaque | Effect::Filters) || matches!(kind(steps, 2), Kind::Match(_)) {
        return None;
    }
    let (free, bound): (Vec<_>, Vec<_>) =
        stage.conditions().iter().cloned().partition(|condition| is_untouched(condition, &effect));
    let first = Match::of(after.definition, free)?;
    let rest = Match::of(after.definition, bound);
    Some((2, [first, before.clone()].into_iter().chain(rest).collect()))
}

/// Whether a condition has equal results before and after a stage with this effect.
fn is_untouched(condition: &Condition, effect: &Effect) -> bool {
    let Some(paths) = condition.paths() else { return false };
    let mut first = paths.iter().map(|path| path.first());
    match effect {
        Effect::Reorders => true,
        Effect::Changes(names) | Effect::Multiplies(names) => {
            first.all(|path| !names.iter().any(|name| name == path))
        }
        Effect::Keeps(names) => first.all(|path| names.iter().any(|name| name == path)),
        Effect::Filters | Effect::Opaque => false,
    }
}

fn join_limits(steps: &[Step]) -> Rewrite {
    let (Kind::Limit(first), Kind::Limit(second)) = (kind(steps, 0), kind(steps, 1)) else { return None };
    Some((2, vec![limit::limit_step(steps.first()?, first.min(second))]))
}

fn join_skips(steps: &[Step]) -> Rewrite {
    let (Kind::Skip(first), Kind::Skip(second)) = (kind(steps, 0), kind(steps, 1)) else { return None };
    Some((2, vec![limit::skip_step(steps.first()?, sum(first, second)?)]))
}

/// Joins `$sort` `$limit`, or `$sort` `$skip` `$limit`, into a sort with a limit.
fn join_sort_limit(steps: &[Step]) -> Rewrite {
    let ([step, next, ..], Kind::Sort(sort)) = (steps, kind(steps, 0)) else { return None };
    match (kind(steps, 1), kind(steps, 2)) {
        (Kind::Limit(count), _) => Some((2, vec![sort.limited(step, count)])),
        (Kind::Skip(skipped), Kind::Limit(count)) => {
            Some((3, vec![sort.limited(step, sum(skipped, count)?), limit::skip_step(next, skipped)]))
        }
        _ => None,
    }
}

/// Returns the sum, if it is within the int64 range of the language.
fn sum(a: u64, b: u64) -> Option<u64> {
    a.checked_add(b).filter(|sum| i64::try_from(*sum).is_ok())
}

/// Joins `$lookup` and an `$unwind` of its output.
fn join_unwind(steps: &[Step]) -> Rewrite {
    let (first, Kind::Unwind(unwind)) = (steps.first()?, kind(steps, 1)) else { return None };
    let (spec, operator) = first.operator.unwinding(unwind)?;
    Some((2, vec![Step::new(first.definition, spec, operator)]))
}

/// Moves a `$limit` or `$skip` before a stage that maps each document to one.
fn pull_limit(steps: &[Step]) -> Rewrite {
    let [first, second, ..] = steps else { return None };
    let one_for_one = matches!(first.operator.effect(), Effect::Changes(_) | Effect::Keeps(_));
    let counts = matches!(second.operator.kind(), Kind::Limit(_) | Kind::Skip(_));
    (one_for_one && counts).then(|| (2, vec![second.clone(), first.clone()]))
}

/// A stage without effect, which no rule of the optimiser moves or joins.
struct Barrier;

/// Parses both stages. Errors: TypeMismatch unless the specification is a document.
pub(crate) fn parse_barrier(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let name = spec.name();
    match spec.value() {
        Value::Document(_) => Ok(Parsed::one(Barrier)),
        other => {
            Err(err!(TypeMismatch, "{name} must take a nested object but found: {}", other.kind().alias()))
        }
    }
}

impl Operator for Barrier {
    fn reads(&self) -> Reads {
        Reads::Also(Vec::new())
    }

    fn start(self: Arc<Self>, input: Stream, _environment: &Environment) -> Result<Stream> {
        Ok(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::testing::{Run, fails, gives, pipeline};

    #[track_caller]
    fn becomes(before: &str, after: &str) {
        let mut optimised = pipeline(before).unwrap();
        optimised.optimize(&Context::for_tests()).unwrap();
        let shown: Vec<String> = optimised.describe().map(|step| step.view().to_string()).collect();
        assert_eq!(format!("[{}]", shown.join(", ")), after, "{before}");
    }

    #[test]
    fn filters_go_to_the_front() {
        becomes("[{$sort: {a: 1}}, {$match: {b: 1}}]", "[{ $match: { b: 1 } }, { $sort: { a: 1 } }]");
        becomes(
            "[{$addFields: {x: 1}}, {$match: {b: 1, 'x.y': 2}}]",
            "[{ $match: { b: 1 } }, { $addFields: { x: 1 } }, { $match: { x.y: 2 } }]",
        );
        becomes("[{$project: {a: 1}}, {$match: {a: 1}}]", "[{ $match: { a: 1 } }, { $project: { a: 1 } }]");
        becomes("[{$project: {a: 1}}, {$match: {b: 1}}]", "[{ $project: { a: 1 } }, { $match: { b: 1 } }]");
        becomes("[{$unwind: '$a'}, {$match: {b: 1}}]", "[{ $match: { b: 1 } }, { $unwind: \"$a\" }]");
        becomes("[{$limit: 1}, {$match: {b: 1}}]", "[{ $limit: 1 }, { $match: { b: 1 } }]");
        becomes(
            "[{$sort: {a: 1}}, {$match: {$expr: {$eq: ['$a', 1]}}}]",
            "[{ $sort: { a: 1 } }, { $match: { $expr: { $eq: [ \"$a\", 1 ] } } }]",
        );
    }

    #[test]
    fn neighbours_join() {
        becomes("[{$match: {a: 1}}, {$match: {b: 1}}]", "[{ $match: { $and: [ { a: 1 }, { b: 1 } ] } }]");
        becomes(
            "[{$addFields: {x: 1}}, {$match: {a: 1}}, {$match: {}}, {$match: {b: 1, c: 2}}]",
            "[{ $match: { $and: [ { a: 1 }, { b: 1 }, { c: 2 } ] } }, { $addFields: { x: 1 } }]",
        );
        becomes("[{$limit: 3}, {$limit: 2}, {$skip: 1}, {$skip: 1}]", "[{ $limit: 2 }, { $skip: 2 }]");
        becomes("[{$sort: {a: 1}}, {$limit: 2}]", "[{ $sort: { sortKey: { a: 1 }, limit: 2 } }]");
        becomes(
            "[{$sort: {a: 1}}, {$addFields: {b: 1}}, {$skip: 3}, {$limit: 2}]",
            "[{ $sort: { sortKey: { a: 1 }, limit: 5 } }, { $skip: 3 }, { $addFields: { b: 1 } }]",
        );
        becomes("[{$match: {}}]", "[]");
    }

    /// Random pipelines over random documents; `Run::result` compares unoptimised and optimised results.
    #[test]
    fn results_stay_the_same() {
        const STAGES: &[&str] = &[
            "{$match: {a: 1}}",
            "{$match: {a: {$gt: 0}, b: {$lt: 3}}}",
            "{$match: {$or: [{a: 2}, {'c.d': 1}]}}",
            "{$match: {c: null}}",
            "{$match: {'c.d': {$exists: false}}}",
            "{$match: {$expr: {$gt: ['$a', '$b']}}}",
            "{$sort: {a: 1}}",
            "{$sort: {b: -1, _id: 1}}",
            "{$limit: 7}",
            "{$limit: 3}",
            "{$skip: 2}",
            "{$skip: 1}",
            "{$project: {a: 1, 'c.d': 1}}",
            "{$project: {b: 0}}",
            "{$project: {a: '$b', b: 1}}",
            "{$unset: 'c'}",
            "{$addFields: {a: {$add: ['$b', 1]}}}",
            "{$addFields: {'c.d': '$a'}}",
            "{$unwind: '$c'}",
            "{$unwind: {path: '$c', preserveNullAndEmptyArrays: true, includeArrayIndex: 'b'}}",
            "{$group: {_id: '$a', b: {$sum: '$b'}, c: {$push: '$c'}}}",
        ];
        let context = Context::for_tests();
        let pick = |from: usize| (context.random() % from as u64) as usize;
        const VALUES: &[&str] = &["1", "[1, {d: 1}]", "{d: 1}", "null", "[]", "{d: [1, 2]}", "[{d: 2}, {}]"];
        for _ in 0..400 {
            let documents: String = (0..12)
                .map(|id| {
                    format!(
                        "{{_id: {id}, a: {}, b: {}, c: {}}},",
                        pick(4),
                        pick(5),
                        VALUES[pick(VALUES.len())]
                    )
                })
                .collect();
            let stages: Vec<_> = (0..1 + pick(6)).map(|_| STAGES[pick(STAGES.len())]).collect();
            let run = Run::new(&format!("[{documents}]"), &format!("[{}]", stages.join(", ")));
            run.result().ok();
        }
    }

    #[test]
    fn documents_pass() {
        gives(
            "[{a: 2}, {a: 1}]",
            "[{$_internalInhibitOptimization: {}}, {$sort: {a: 1}}]",
            "[{a: 1}, {a: 2}]",
        );
        fails("[{$_internalInhibitOptimization: 1}]", 14, "must take a nested object but found: int");
    }
}

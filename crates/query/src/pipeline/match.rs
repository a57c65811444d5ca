//! `$match`: passes on the documents that match a filter.

use super::definition::StageDefinition;
use super::operator::{Effect, Kind, Operator, Reads};
use super::parse::{Parsed, Scope, SubPipelineStage};
use super::{Environment, Split, Stage, Step, Stream, registry};
use crate::interrupt_check::InterruptCheck;
use crate::matcher::unparsed::{ForbiddenOperators, check_filter, has_text, paths};
use crate::{Context, Matcher, Row};
use base::bson::{Builder, Document, DocumentBuf, Element, Path, Value};
use base::{Result, bail};
use std::sync::Arc;

/// A parsed `$match`.
pub(crate) struct Match {
    /// The filter as written.
    filter: DocumentBuf,
    /// The conditions that must all match, for the optimiser.
    conditions: Vec<Condition>,
    /// The conjunction of the conditions.
    matcher: Arc<Matcher>,
}

/// One condition of a filter, as written and parsed.
#[derive(Clone)]
pub(crate) struct Condition {
    written: DocumentBuf,
    matcher: Arc<Matcher>,
}

/// Parses `$match`. Errors: 15959 unless the filter is a document; the errors of filters; BadValue for `$where` and
/// `$near`, which MongoDB refuses here.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(filter) = spec.value() else {
        bail!(15959, "the match filter must be an expression in an object");
    };
    check_filter(filter, &ForbiddenOperators::of_match(scope.position()))?;
    if scope.is_inside(SubPipelineStage::Facet) && has_text(filter) {
        bail!(40600, "$match is not allowed to be used within a $facet stage");
    }
    Ok(Parsed::one(Match::new(filter, scope.context)?))
}

impl Match {
    fn new(filter: Document<'_>, context: &Context) -> Result<Match> {
        let mut conditions = Vec::new();
        for written in conjuncts(filter) {
            context.steps(1)?;
            let matcher = Arc::new(Matcher::parse_query(written.view(), context)?);
            conditions.push(Condition { written, matcher });
        }
        let matcher = match Matcher::all(conditions.iter().map(|condition| &condition.matcher)) {
            Some(all) => all,
            None => Arc::new(Matcher::parse_query(filter, context)?),
        };
        Ok(Match { filter: filter.to_owned(), conditions, matcher })
    }

    /// The conditions that must all match, as written.
    pub(super) fn written(&self) -> impl Iterator<Item = Document<'_>> {
        self.conditions.iter().map(|condition| condition.written.view())
    }

    /// Returns a step for another stage.
    pub(crate) fn step(filter: Document<'_>, context: &Context) -> Result<Step> {
        Ok(Match::new(filter, context)?.into_step(registry::find("$match")?))
    }

    /// Returns a step of moved conditions; `None` if there are none.
    pub(crate) fn of(definition: &'static StageDefinition, conditions: Vec<Condition>) -> Option<Step> {
        let matcher = Matcher::all(conditions.iter().map(|condition| &condition.matcher))?;
        let filter = match conditions.as_slice() {
            [only] => only.written.clone(),
            several => {
                let mut all = Builder::new();
                all.begin_array(c"$and");
                for condition in several {
                    all.push(&condition.written);
                }
                all.finish()
            }
        };
        Some(Match { filter, conditions, matcher }.into_step(definition))
    }

    fn into_step(self, definition: &'static StageDefinition) -> Step {
        let mut spec = Builder::new();
        spec.append(c"$match", &self.filter);
        Step::new(definition, spec.finish(), Arc::new(self))
    }

    /// The filter as written.
    pub(crate) fn filter(&self) -> &DocumentBuf {
        &self.filter
    }

    /// The conditions that must all match.
    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The filter, parsed.
    pub(crate) fn matcher(&self) -> &Arc<Matcher> {
        &self.matcher
    }
}

impl Condition {
    /// The paths that the condition reads; `None` if it may read the whole document.
    pub(crate) fn paths(&self) -> Option<Vec<Path>> {
        paths(self.written.view())
    }
}

/// Returns the conjuncts of a filter.
fn conjuncts(filter: Document<'_>) -> Vec<DocumentBuf> {
    let mut parts = Vec::new();
    for element in filter {
        match (element.name(), element.value()) {
            ("$and", Value::Array(branches))
                if !branches.is_empty() && branches.iter().all(|branch| branch.as_document().is_some()) =>
            {
                let branches = branches.iter().filter_map(|branch| branch.as_document());
                parts.extend(branches.flat_map(conjuncts));
            }
            _ => {
                let mut builder = Builder::new();
                builder.append_element(&element);
                parts.push(builder.finish());
            }
        }
    }
    parts
}

impl Operator for Match {
    fn kind(&self) -> Kind<'_> {
        Kind::Match(self)
    }

    fn effect(&self) -> Effect {
        Effect::Filters
    }

    fn reads(&self) -> Reads {
        match paths(self.filter.view()) {
            Some(paths) => Reads::Also(paths),
            None => Reads::Everything,
        }
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let context = Arc::clone(&environment.context);
        Ok(matching(input, self.matcher.clone(), context))
    }
}

/// Returns the rows of a stream that match a filter.
pub fn matching(input: Stream, matcher: Arc<Matcher>, context: Arc<Context>) -> Stream {
    Box::new(Running { interrupts: InterruptCheck::new(&context), matcher, input, context })
}

/// Filters one row at a time.
struct Running {
    matcher: Arc<Matcher>,
    input: Stream,
    context: Arc<Context>,
    interrupts: InterruptCheck,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        while let Some(row) = self.input.next()? {
            self.interrupts.check()?;
            if self.matcher.matches(row.document.view(), &self.context)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn begin_section(&mut self) -> bool {
        self.input.begin_section()
    }

    fn split(&mut self) -> Option<Split> {
        let later = self.input.split()?;
        let matching = |rows, interrupt: &_| {
            matching(rows, self.matcher.clone(), Arc::new(self.context.for_helper(interrupt)))
        };
        Some(later.through(matching))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn passes_matching_documents() {
        gives("[{a: 1}, {a: 2}, {b: 1}]", "[{$match: {a: 1}}]", "[{a: 1}]");
        gives("[{a: 1}, {a: 2}]", "[{$match: {}}]", "[{a: 1}, {a: 2}]");
    }

    #[test]
    fn refuses_operators_of_other_places() {
        fails("[{$match: 1}]", 15959, "the match filter must be an expression in an object");
        fails("[{$match: {$where: 'true'}}]", 2, "$where is not allowed in this context");
        fails("[{$match: {$and: [{a: {$near: [0, 0]}}]}}]", 5626500, "$near");
        fails(
            "[{$limit: 1}, {$match: {$text: {$search: 'a'}}}]",
            17313,
            "only allowed as the first pipeline stage",
        );
    }
}

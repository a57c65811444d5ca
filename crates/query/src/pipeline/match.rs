//! `$match`: passes on the documents that match a filter.

use super::filter_paths::{Refusals, check_filter, has_text};
use super::operator::{Effect, Kind, Operator, Reads};
use super::parse::{Outer, Parsed, Scope};
use super::{Environment, Stage, Step, Stream, registry};
use crate::tick::Tick;
use crate::{Context, Matcher, Row};
use base::bson::{Builder, Document, DocumentBuf, Element, Value};
use base::{Result, err};
use std::sync::Arc;

/// A parsed `$match`.
pub(crate) struct Match {
    filter: DocumentBuf,
    matcher: Matcher,
}

/// Parses `$match`. Errors: 15959 unless the filter is a document; the errors of filters; BadValue for `$where` and
/// `$near`, which MongoDB refuses here.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(filter) = spec.value() else {
        return Err(err!(15959, "the match filter must be an expression in an object"));
    };
    check_filter(filter, &Refusals::of_match(scope.position()))?;
    if scope.is_inside(Outer::Facet) && has_text(filter) {
        return Err(err!(40600, "$match is not allowed to be used within a $facet stage"));
    }
    Ok(Parsed::one(Match::new(filter, scope.context)?))
}

impl Match {
    fn new(filter: Document<'_>, context: &Context) -> Result<Match> {
        Ok(Match { filter: filter.to_owned(), matcher: Matcher::parse_query(filter, context)? })
    }

    /// Returns a step for the optimiser or for another stage.
    pub(crate) fn step(filter: Document<'_>, context: &Context) -> Result<Step> {
        let mut builder = Builder::new();
        builder.append(c"$match", filter);
        let definition = registry::find("$match")?;
        Ok(Step::new(definition, builder.finish(), Arc::new(Match::new(filter, context)?)))
    }
}

impl Operator for Match {
    fn kind(&self) -> Kind<'_> {
        Kind::Match(&self.filter)
    }

    fn effect(&self) -> Effect {
        Effect::Filters
    }

    fn reads(&self) -> Reads {
        match super::filter_paths::paths(self.filter.view()) {
            Some(paths) => Reads::Also(paths),
            None => Reads::Everything,
        }
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let context = Arc::clone(&environment.context);
        Ok(Box::new(Running { tick: Tick::new(&context), stage: self, input, context }))
    }
}

/// Filters one document at a time.
struct Running {
    stage: Arc<Match>,
    input: Stream,
    context: Arc<Context>,
    tick: Tick,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        while let Some(row) = self.input.next()? {
            self.tick.check()?;
            if self.stage.matcher.matches(row.document.view(), &self.context)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn passes_what_matches() {
        gives("[{a: 1}, {a: 2}, {b: 1}]", "[{$match: {a: 1}}]", "[{a: 1}]");
        gives("[{a: 1}, {a: 2}]", "[{$match: {}}]", "[{a: 1}, {a: 2}]");
    }

    #[test]
    fn refuses_what_belongs_elsewhere() {
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

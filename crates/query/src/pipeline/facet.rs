//! `$facet`: several pipelines over the same documents, each result an array of one document.

use super::operator::{Operator, Reads};
use super::parse::{Parsed, Scope};
use super::{Environment, Pipeline, Stage, Stream, from_iter};
use crate::tick::Tick;
use base::bson::{Builder, DocumentCow, Element, Value};
use base::{Result, err};
use std::sync::Arc;

/// Bytes that the result may take, as MongoDB's.
const RESULT_MAX: usize = 100 * 1024 * 1024;

struct Facet(Vec<(String, Pipeline)>);

/// Errors: 40169, 40170 and those of pipelines and of field names.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Some(facets) = spec.value().as_document().filter(|facets| !facets.is_empty()) else {
        return Err(err!(40169, "the $facet specification must be a non-empty object"));
    };
    let mut parsed = Vec::new();
    for facet in facets {
        let name = facet.name();
        let Value::Array(stages) = facet.value() else {
            let found = facet.kind().alias();
            return Err(err!(40170, "arguments to $facet must be arrays, {name} is type {found}"));
        };
        if name.contains('.') || name.starts_with('$') {
            return Err(err!(16412, "FieldPath field names may not contain '.' or start with '$': {name}"));
        }
        let mut pipeline = scope.within("$facet", scope.context)?.pipeline(stages)?;
        pipeline.optimize(scope.context)?;
        parsed.push((name.to_string(), pipeline));
    }
    Ok(Parsed::one(Facet(parsed)))
}

impl Operator for Facet {
    fn name(&self) -> &'static str {
        "$facet"
    }

    fn reads(&self) -> Reads {
        let mut paths = Vec::new();
        for (_, pipeline) in &self.0 {
            match pipeline.dependencies() {
                Some(read) => paths.extend(read),
                None => return Reads::Everything,
            }
        }
        Reads::Only(paths)
    }

    fn start(self: Arc<Self>, input: Stream, environment: &Environment) -> Result<Stream> {
        let tick = Tick::new(&environment.context);
        Ok(Box::new(Running { stage: self, input: Some(input), environment: environment.clone(), tick }))
    }
}

struct Running {
    stage: Arc<Facet>,
    input: Option<Stream>,
    environment: Environment,
    tick: Tick,
}

impl Running {
    /// The input, which every facet reads from its start.
    ///
    /// Errors: ExceededMemoryLimit beyond the memory.
    fn gather(&mut self, mut input: Stream) -> Result<Arc<Vec<DocumentCow>>> {
        let (mut documents, mut held) = (Vec::new(), 0);
        while let Some(document) = input.next()? {
            self.tick.check()?;
            held += document.view().bytes().len();
            if held > self.environment.memory_limit {
                return Err(err!(
                    ExceededMemoryLimit,
                    "$facet holds its input in memory, which exceeds the limit of {} bytes",
                    self.environment.memory_limit
                ));
            }
            documents.push(document);
        }
        Ok(Arc::new(documents))
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<DocumentCow>> {
        let Some(input) = self.input.take() else { return Ok(None) };
        let documents = self.gather(input)?;
        let mut builder = Builder::new();
        for (name, pipeline) in &self.stage.0 {
            let shared = Arc::clone(&documents);
            let mut at = 0;
            let source = from_iter(std::iter::from_fn(move || {
                at += 1;
                shared.get(at - 1).cloned().map(Ok)
            }));
            let mut results = pipeline.run(source, &self.environment)?;
            builder.begin_array(name);
            while let Some(document) = results.next()? {
                self.tick.check()?;
                builder.push(document.view());
                if builder.len() > RESULT_MAX {
                    return Err(err!(
                        4031700,
                        "document constructed by $facet is {} bytes, which exceeds the limit of {RESULT_MAX} bytes",
                        builder.len()
                    ));
                }
            }
            builder.end();
        }
        Ok(Some(builder.finish().into()))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn each_facet_sees_all_documents() {
        gives(
            "[{a: 1}, {a: 2}, {a: 3}]",
            "[{$facet: {n: [{$count: 'n'}], big: [{$match: {a: {$gt: 1}}}, {$limit: 1}], none: [{$match: {a: 9}}]}}]",
            "[{n: [{n: 3}], big: [{a: 2}], none: []}]",
        );
        gives("[]", "[{$facet: {a: []}}]", "[{a: []}]");
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$facet: {}}]", 40169, "the $facet specification must be a non-empty object");
        fails("[{$facet: {a: 1}}]", 40170, "arguments to $facet must be arrays, a is type int");
        fails(
            "[{$facet: {a: [{$facet: {b: []}}]}}]",
            40600,
            "$facet is not allowed to be used within a $facet stage",
        );
        fails(
            "[{$facet: {a: [{$out: 'x'}]}}]",
            40600,
            "$out is not allowed to be used within a $facet stage",
        );
    }
}

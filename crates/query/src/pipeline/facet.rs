//! `$facet`: several pipelines over one input; each result is an array in one document.
//!
//! ```text
//! {$facet: {<field>: [<stage>, …], …}}
//! ```

use super::definition::Inputs;
use super::operator::{Operator, Reads};
use super::parse::{Parsed, Scope, SubPipelineStage};
use super::{Environment, Pipeline, Stage, Stream, from_iter};
use crate::Row;
use crate::field_path::check_field_name;
use crate::interrupt_check::InterruptCheck;
use crate::row::RowCodec;
use crate::spill::{Run, RunWriter, SpillFile};
use base::bson::{Builder, Document, DocumentCow, Element, FieldNameBuf, Value};
use base::{CompatibleWith, Result, bail, err};
use parking_lot::Mutex;
use std::sync::Arc;

/// A parsed `$facet`: its pipelines by output field.
struct Facet(Vec<(FieldNameBuf, Pipeline)>);

/// Parses `$facet`. Errors: 40169, 40170 and the errors of pipelines and field names.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Some(facets) = spec.value().as_document().filter(|facets| !facets.is_empty()) else {
        bail!(40169, "the $facet specification must be a non-empty object");
    };
    let mut parsed = Vec::new();
    for facet in facets {
        let name = facet.name();
        let Value::Array(stages) = facet.value() else {
            bail!(40170, "arguments to $facet must be arrays, {name} is type {}", facet.kind());
        };
        check_field_name(name)?;
        let mut pipeline = scope.within(SubPipelineStage::Facet, scope.context)?.pipeline(stages)?;
        pipeline.optimize(scope.context)?;
        parsed.push((facet.field_name().to_owned(), pipeline));
    }
    Ok(Parsed::one(Facet(parsed)))
}

pub(crate) fn inputs(specification: Value<'_>) -> Inputs<'_> {
    let facets = specification.as_document().unwrap_or(Document::EMPTY);
    let pipelines = facets.iter().filter_map(|facet| facet.value().as_array());
    Inputs { collections: Vec::new(), pipelines: pipelines.collect() }
}

impl Operator for Facet {
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
        let interrupts = InterruptCheck::new(&environment.context);
        Ok(Box::new(Running {
            stage: self,
            input: Some(input),
            environment: environment.clone(),
            interrupts,
        }))
    }
}

/// A blocking stage, which returns a single document.
struct Running {
    stage: Arc<Facet>,
    input: Option<Stream>,
    environment: Environment,
    interrupts: InterruptCheck,
}

/// The input, which every facet reads from its start: the first documents in memory, the remaining ones in a file.
struct BufferedInput {
    documents: Vec<DocumentCow>,
    rest: Option<Mutex<Run>>,
    codec: RowCodec,
}

impl BufferedInput {
    /// Returns a source of the whole input; only one may be read at a time.
    fn source(self: &Arc<BufferedInput>) -> Result<Stream> {
        if let Some(rest) = &self.rest {
            rest.lock().restart();
        }
        let buffer = Arc::clone(self);
        let mut at = 0;
        Ok(from_iter(std::iter::from_fn(move || {
            at += 1;
            let document = match (buffer.documents.get(at - 1), &buffer.rest) {
                (Some(document), _) => Some(Ok(document.clone())),
                (None, None) => None,
                (None, Some(rest)) => {
                    rest.lock().next().map(|record| record.map(|record| record.document)).transpose()
                }
            };
            document.map(|document| document.map(|document| buffer.codec.decode(document)))
        })))
    }
}

impl Running {
    /// Reads the input. Errors: 292 beyond the memory limit if spilling is not allowed; the errors of temporary files.
    fn gather(&mut self, mut input: Stream) -> Result<Arc<BufferedInput>> {
        let codec = RowCodec::new(&self.environment.context);
        let (mut documents, mut bytes) = (Vec::new(), 0);
        let mut file = SpillFile::within(&self.environment.context.spills);
        let mut writer: Option<RunWriter> = None;
        while let Some(row) = input.next()? {
            self.interrupts.check_bytes(row.document.view().bytes().len())?;
            let document = codec.encode(row);
            if let Some(writer) = &mut writer {
                writer.write(&[], 0, document.view().bytes())?;
                continue;
            }
            bytes += document.view().bytes().len();
            documents.push(document);
            if bytes > self.environment.context.limits.facet_buffer {
                if !self.environment.allow_disk_use {
                    bail!(
                        QueryExceededMemoryLimitNoDiskUseAllowed,
                        "Exceeded memory limit for $facet, but didn't allow external spilling. Pass \
                         allowDiskUse:true to opt in."
                    );
                }
                writer = Some(file.begin()?);
            }
        }
        let rest = writer.map(|writer| file.end(writer)).transpose()?.map(Mutex::new);
        Ok(Arc::new(BufferedInput { documents, rest, codec }))
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(input) = self.input.take() else { return Ok(None) };
        let buffer = self.gather(input)?;
        let limit = self.environment.context.limits.facet_output;
        let mut builder = Builder::new();
        for (name, pipeline) in &self.stage.0 {
            let mut results = pipeline.run(buffer.source()?, &self.environment)?;
            builder.begin_array(name);
            while let Some(row) = results.next()? {
                let document = row.document;
                self.interrupts.check_bytes(document.view().bytes().len())?;
                builder.push(document.view());
                if builder.len() > limit {
                    let size = builder.len();
                    let message = format!(
                        "document constructed by $facet is {size} bytes, which exceeds the limit of {limit} bytes"
                    );
                    let is_newer = self.environment.context.compatible_with >= CompatibleWith::V9_0;
                    return Err(match is_newer {
                        true => err!(ExceededMemoryLimit, "{message}"),
                        false => err!(4031700, "{message}"),
                    });
                }
            }
            builder.end();
        }
        Ok(Some(builder.finish().into()))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails, gives};

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
    fn an_input_beyond_the_memory_is_read_from_disk() {
        let documents: String = (0..100).map(|i| format!("{{a: {i}}},")).collect();
        let pipeline = "[{$facet: {n: [{$count: 'n'}], last: [{$skip: 99}], first: [{$limit: 1}]}}]";
        let run = Run::new(&format!("[{documents}]"), pipeline).memory(100);
        run.gives("[{n: [{n: 100}], last: [{a: 99}], first: [{a: 0}]}]");
        run.no_disk().fails(292, "Exceeded memory limit for $facet");
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

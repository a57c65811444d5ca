//! Test helpers: pipelines over documents in the shell's notation, with collections in memory.

use super::{
    Collections, Environment, External, Namespace, Pipeline, Sink, Stream, UniqueIndex, from_documents,
};
use crate::{Collation, Context, Matcher};
use base::bson::{Array, Document, DocumentBuf, DocumentCow, Path, extended_json};
use base::{Error, Result, bail};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(crate) fn parse(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn with_array<T>(text: &str, then: impl FnOnce(Array<'_>) -> T) -> T {
    let wrapped = parse(&format!("{{v: {text}}}"));
    then(wrapped.view().get("v").and_then(|value| value.as_array()).unwrap())
}

pub(crate) fn documents(text: &str) -> Vec<DocumentBuf> {
    with_array(text, |array| array.iter().map(|value| value.as_document().unwrap().to_owned()).collect())
}

pub(crate) fn pipeline(text: &str) -> Result<Pipeline> {
    with_array(text, |array| Pipeline::parse(array, &Context::for_tests()))
}

/// Collections in memory that record all calls.
#[derive(Default)]
pub(crate) struct Memory {
    collections: Arc<Mutex<BTreeMap<String, Vec<DocumentBuf>>>>,
    pub(crate) log: Mutex<Vec<String>>,
    unique: Mutex<Vec<Vec<String>>>,
    /// Whether collections can be scanned for a join.
    scans: AtomicBool,
}

impl Memory {
    pub(crate) fn allow_scans(&self) {
        self.scans.store(true, Relaxed);
    }

    fn all(&self, from: &Namespace) -> Vec<DocumentBuf> {
        self.collections.lock().get(&from.collection).cloned().unwrap_or_default()
    }

    fn position(&self, into: &Namespace, filter: Document<'_>, context: &Context) -> Result<Option<usize>> {
        let matcher = Matcher::parse(filter, context)?;
        for (at, document) in self.all(into).iter().enumerate() {
            if matcher.matches(document.view(), context)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

/// A new content that becomes visible at the end.
struct Replacement {
    collections: Arc<Mutex<BTreeMap<String, Vec<DocumentBuf>>>>,
    name: String,
    documents: Vec<DocumentBuf>,
}

impl Sink for Replacement {
    fn write(&mut self, document: Document<'_>) -> Result<()> {
        self.documents.push(document.to_owned());
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.collections.lock().insert(self.name.clone(), std::mem::take(&mut self.documents));
        Ok(())
    }
}

impl Collections for Memory {
    fn find(&self, from: &Namespace, matcher: Arc<Matcher>, environment: &Environment) -> Result<Stream> {
        let context = &*environment.context;
        self.log.lock().push(format!("find {} {}", from.collection, matcher.describe().view()));
        let mut documents = Vec::new();
        for document in self.all(from) {
            if matcher.matches(document.view(), context)? {
                documents.push(document);
            }
        }
        Ok(from_documents(documents))
    }

    fn scan(&self, from: &Namespace, _paths: &[Path], _environment: &Environment) -> Result<Option<Stream>> {
        if !self.scans.load(Relaxed) {
            return Ok(None);
        }
        self.log.lock().push(format!("scan {}", from.collection));
        Ok(Some(from_documents(self.all(from))))
    }

    fn aggregate(&self, from: &Namespace, pipeline: &Pipeline, environment: &Environment) -> Result<Stream> {
        self.log.lock().push(format!("aggregate {}", from.collection));
        pipeline.run(from_documents(self.all(from)), environment)
    }

    fn source(&self, source: &External, _context: &Arc<Context>) -> Result<Stream> {
        let mut builder = base::bson::Builder::new();
        builder.append(c"source", format!("{source:?}").as_str());
        Ok(from_documents(vec![builder.finish()]))
    }

    fn namespace(&self) -> (&str, &str) {
        ("d", "$cmd.aggregate")
    }

    fn list(&self, database: Option<&str>) -> Vec<(String, DocumentBuf)> {
        let database = database.unwrap_or("d");
        let names = self.collections.lock().keys().cloned().collect::<Vec<_>>();
        names.into_iter().map(|name| (database.to_string(), parse(&format!("{{name: '{name}'}}")))).collect()
    }

    fn unique_index(
        &self,
        _on: &Namespace,
        fields: &[String],
        _collation: &crate::Collation,
    ) -> Result<Option<UniqueIndex>> {
        let found = self.unique.lock().iter().any(|unique| unique == fields);
        Ok(found.then_some(UniqueIndex { is_sparse: false }))
    }

    fn out(&self, into: &Namespace, _context: &Arc<Context>) -> Result<Box<dyn Sink>> {
        let collections = Arc::clone(&self.collections);
        Ok(Box::new(Replacement { collections, name: into.collection.clone(), documents: Vec::new() }))
    }

    fn insert(&self, into: &Namespace, document: Document<'_>, context: &Arc<Context>) -> Result<()> {
        let id = document.find("_id").map(|id| {
            let mut builder = base::bson::Builder::new();
            builder.append_element(&id);
            builder.finish()
        });
        if let Some(id) = id
            && self.position(into, id.view(), context)?.is_some()
        {
            bail!(DuplicateKey, "E11000 duplicate key error");
        }
        self.collections.lock().entry(into.collection.clone()).or_default().push(document.to_owned());
        Ok(())
    }

    fn update(
        &self,
        into: &Namespace,
        filter: Document<'_>,
        update: Arc<crate::Update>,
        insert: Option<Document<'_>>,
        context: &Arc<Context>,
    ) -> Result<bool> {
        let found = self.position(into, filter, context)?;
        let mut collections = self.collections.lock();
        let documents = collections.entry(into.collection.clone()).or_default();
        match found {
            Some(at) => {
                if let Some(changed) = update.apply(documents[at].view(), None, false, context)? {
                    documents[at] = changed;
                }
            }
            None => documents.extend(insert.map(|document| document.to_owned())),
        }
        Ok(found.is_some())
    }
}

/// A pipeline to run.
#[derive(Clone)]
pub(crate) struct Run {
    input: Vec<DocumentBuf>,
    pipeline: String,
    memory: usize,
    computed: usize,
    disk: bool,
    joined: usize,
    collation: Collation,
    pub(crate) collections: Arc<Memory>,
}

impl Run {
    pub(crate) fn new(input: &str, pipeline: &str) -> Run {
        Run {
            input: documents(input),
            pipeline: pipeline.to_string(),
            memory: crate::limits::DEFAULT_BYTES,
            computed: crate::limits::DEFAULT_BYTES,
            disk: true,
            joined: crate::limits::DEFAULT_BYTES,
            collation: Collation::SIMPLE,
            collections: Arc::default(),
        }
    }

    pub(crate) fn memory(self, memory: usize) -> Run {
        Run { memory, ..self }
    }

    /// Limits the size of computed values.
    pub(crate) fn computed(self, computed: usize) -> Run {
        Run { computed, ..self }
    }

    /// Limits the table of a `$lookup`, and sets the collation.
    pub(crate) fn joined(self, joined: usize, collation: Collation) -> Run {
        Run { joined, collation, ..self }
    }

    pub(crate) fn no_disk(self) -> Run {
        Run { disk: false, ..self }
    }

    pub(crate) fn with(self, collection: &str, content: &str) -> Run {
        self.collections.collections.lock().insert(collection.to_string(), documents(content));
        self
    }

    /// Declares a unique index on one field in all collections.
    pub(crate) fn unique(self, field: &str) -> Run {
        self.collections.unique.lock().push(vec![field.to_string()]);
        self
    }

    /// Checks the documents of a collection.
    #[track_caller]
    pub(crate) fn holds(&self, collection: &str, expected: &str) {
        let held = self.collections.collections.lock().get(collection).cloned().unwrap_or_default();
        assert_eq!(held, documents(expected), "{collection} after {}", self.pipeline);
    }

    fn context(&self) -> Context {
        let mut context = Context::for_tests();
        context.limits = crate::Limits::all(self.memory);
        context.limits.hash_lookup = self.joined;
        context.limits.expression = self.computed;
        context.collation = self.collation.clone();
        context.limits.document = self.computed;
        context
    }

    fn run(&self, pipeline: &Pipeline) -> Result<Vec<DocumentBuf>> {
        let context = Arc::new(self.context());
        // Parsing registers the requested metadata in the context.
        with_array(&self.pipeline, |array| Pipeline::parse(array, &context))?;
        let collections = Arc::clone(&self.collections) as Arc<dyn Collections>;
        let mut environment = Environment::new(collections, context);
        environment.allow_disk_use = self.disk;
        let source = super::metadata::numbered(self.input.clone());
        collect(pipeline.run(source, &environment)?)
    }

    /// Returns the unoptimised result.
    pub(crate) fn unoptimised_result(&self) -> Result<Vec<DocumentBuf>> {
        self.run(&with_array(&self.pipeline, |array| Pipeline::parse(array, &self.context()))?)
    }

    /// Returns the result, after checking that the optimised and unoptimised results are equal.
    pub(crate) fn result(&self) -> Result<Vec<DocumentBuf>> {
        let mut pipeline = with_array(&self.pipeline, |array| Pipeline::parse(array, &self.context()))?;
        if pipeline.writes() {
            return self.run(&pipeline);
        }
        let plain = self.run(&pipeline);
        pipeline.optimize(&self.context())?;
        let optimised = self.run(&pipeline);
        // A filter moved forward may avoid an error, but not cause one.
        if let Ok(plain) = &plain {
            let changed = format!("optimising changed {}", self.pipeline);
            assert_eq!(plain, optimised.as_ref().expect(&changed), "{changed}");
        }
        plain
    }

    #[track_caller]
    pub(crate) fn gives(&self, expected: &str) {
        let result = self.result().unwrap_or_else(|error| panic!("{}: {error}", self.pipeline));
        let shown = |documents: &[DocumentBuf]| {
            documents.iter().map(|document| format!("{}\n", document.view())).collect::<String>()
        };
        let expected = documents(expected);
        assert!(result == expected, "{}\ngave\n{}not\n{}", self.pipeline, shown(&result), shown(&expected));
    }

    #[track_caller]
    pub(crate) fn fails(&self, code: i32, message: &str) {
        check(self.result().err(), code, message, &self.pipeline);
    }
}

pub(crate) fn collect(mut stream: Stream) -> Result<Vec<DocumentBuf>> {
    let mut documents = Vec::new();
    while let Some(row) = stream.next()? {
        documents.push(match row.document {
            DocumentCow::Owned(document) => document,
            shared => shared.view().to_owned(),
        });
    }
    assert!(stream.next()?.is_none(), "a stage goes on after its end");
    Ok(documents)
}

#[track_caller]
pub(crate) fn check(error: Option<Error>, code: i32, message: &str, pipeline: &str) {
    let error = error.unwrap_or_else(|| panic!("{pipeline} was taken"));
    assert!(error.code().number() == code && error.message().contains(message), "{pipeline}: {error}");
}

/// Checks the result of a pipeline, with and without optimisation.
#[track_caller]
pub(crate) fn gives(input: &str, pipeline: &str, expected: &str) {
    Run::new(input, pipeline).gives(expected);
}

/// Checks that the parser refuses the pipeline.
#[track_caller]
pub(crate) fn fails(text: &str, code: i32, message: &str) {
    check(pipeline(text).err(), code, message, text);
}

/// Checks that the pipeline fails over these documents.
#[track_caller]
pub(crate) fn running_fails(input: &str, pipeline: &str, code: i32, message: &str) {
    Run::new(input, pipeline).fails(code, message);
}

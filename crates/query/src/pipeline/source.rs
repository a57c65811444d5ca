//! Sources that yield documents from memory: literal documents, and the list of collections.
//!
//! ```text
//! {$documents: <expression>}                  yields an array of documents
//! {$listClusterCatalog: {shards: <boolean>, tracked: <boolean>, balancingConfiguration: <boolean>}}
//! ```
//!
//! `$listClusterCatalog` lists the collections and views of a database, or of all databases if it runs on `admin`.
//! Collections are never sharded: shard keys are absent, and the lists of shards are empty.

use super::definition::{Requester, Resource, Right};
use super::external::check_flags;
use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::replace_root::not_a_root;
use super::{Environment, Stage, Stream};
use crate::expression::Expression;
use crate::{Arena, Row};
use base::bson::{Array, Builder, Document, DocumentBuf, Element, Value};
use base::{Result, bail, err};
use std::sync::Arc;

/// A source over an iterator.
struct Iter<I>(I);

impl<R: Into<Row>, I: Iterator<Item = Result<R>> + Send> Stage for Iter<I> {
    fn next(&mut self) -> Result<Option<Row>> {
        Ok(self.0.next().transpose()?.map(Into::into))
    }
}

/// A stage whose state is the captures of a closure.
struct FromFn<F>(F);

impl<F: FnMut() -> Result<Option<Row>> + Send> Stage for FromFn<F> {
    fn next(&mut self) -> Result<Option<Row>> {
        (self.0)()
    }
}

/// Returns a stage that calls a closure for each row. It is called again after `None`.
pub fn from_fn(next: impl FnMut() -> Result<Option<Row>> + Send + 'static) -> Stream {
    Box::new(FromFn(next))
}

/// Returns a source of an iterator's rows or documents.
pub fn from_iter<R: Into<Row>>(rows: impl Iterator<Item = Result<R>> + Send + 'static) -> Stream {
    Box::new(Iter(rows.fuse()))
}

/// Returns a source of the given documents.
pub fn from_documents(documents: Vec<DocumentBuf>) -> Stream {
    from_iter(documents.into_iter().map(Ok))
}

/// A parsed `$documents`.
struct Documents(Expression);

/// Parses `$documents`. Errors: the errors of expressions; 5858203 for a constant that is not an array.
pub(crate) fn parse_documents(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let expression = Expression::parse(spec.value(), scope.context)?;
    if expression.is_constant() {
        array(expression.constant())?;
    }
    Ok(Parsed::one(Documents(expression)))
}

fn array(value: Option<Value<'_>>) -> Result<Array<'_>> {
    let array = value.and_then(|value| value.as_array());
    array.ok_or_else(|| err!(5858203, "an array is expected: $documents takes an array of objects"))
}

/// Returns an element as a document. MongoDB builds `$documents` from `$unwind` and `$replaceRoot`. Errors: 40228.
fn document(element: Value<'_>) -> Result<DocumentBuf> {
    let not_a_document = || {
        let mut input = Builder::new();
        input.append(c"_tempDocumentsField", element);
        not_a_root("'newRoot' expression ", Some(element), input.finish().view())
    };
    element.as_document().map(|document| document.to_owned()).ok_or_else(not_a_document)
}

impl Operator for Documents {
    fn kind(&self) -> Kind<'_> {
        Kind::Source
    }

    fn start(self: Arc<Self>, _input: Stream, environment: &Environment) -> Result<Stream> {
        let arena = Arena::new();
        let value = self.0.evaluate(Document::EMPTY, &environment.context, &arena)?;
        let documents: Vec<_> = array(value)?.iter().map(document).collect();
        Ok(from_iter(documents.into_iter()))
    }
}

/// A parsed `$listClusterCatalog`: which optional fields to return.
struct ListClusterCatalog {
    shards: bool,
    tracked: bool,
}

/// Parses the stage. Errors: 9621302 unless the options are a document; the errors of flags.
pub(crate) fn parse_list_cluster_catalog(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(9621302, "$listClusterCatalog must take an object but found: {spec}");
    };
    // The balancer has settings only for sharded collections.
    check_flags(spec.name(), options, &["shards", "tracked", "balancingConfiguration"])?;
    let is_set = |name: &str| options.get(name).and_then(|flag| flag.as_bool()) == Some(true);
    Ok(Parsed::one(ListClusterCatalog { shards: is_set("shards"), tracked: is_set("tracked") }))
}

/// Returns the required rights. A collection is refused later, with a specific error.
pub(crate) fn list_cluster_catalog_rights<'v>(
    _specification: Value<'v>,
    requester: &Requester<'_>,
) -> Vec<Right<'v>> {
    match (requester.database, requester.collection) {
        ("admin", _) => vec![Right { on: Resource::Cluster, actions: &["listDatabases"] }],
        (_, None) => vec![Right { on: Resource::Database, actions: &["listCollections"] }],
        (_, Some(_)) => Vec::new(),
    }
}

impl ListClusterCatalog {
    /// Returns the collection's document, with `ns` and `db` for its name.
    fn document(&self, database: &str, listed: &DocumentBuf) -> DocumentBuf {
        let mut out = Builder::new();
        for field in listed.view() {
            match (field.name(), field.value()) {
                ("name", Value::String(name)) => {
                    out.append(c"ns", format!("{database}.{name}").as_str()).append(c"db", database)
                }
                _ => out.append_element(&field),
            };
        }
        out.append(c"sharded", false);
        if self.shards {
            out.begin_array(c"shards").end();
        }
        if self.tracked {
            out.append(c"tracked", false);
        }
        out.finish()
    }
}

impl Operator for ListClusterCatalog {
    fn kind(&self) -> Kind<'_> {
        Kind::Source
    }

    /// Starts the stage. Errors: 9621301 for a pipeline over a collection.
    fn start(self: Arc<Self>, _input: Stream, environment: &Environment) -> Result<Stream> {
        let (database, collection) = environment.collections.namespace();
        if collection != "$cmd.aggregate" {
            bail!(9621301, "The $listClusterCatalog stage must run on a database, not a collection.");
        }
        let listed = environment.collections.list(Some(database).filter(|database| *database != "admin"));
        Ok(from_documents(listed.iter().map(|(database, listed)| self.document(database, listed)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, fails, gives, running_fails};

    #[test]
    fn gives_its_documents() {
        gives("[{x: 1}]", "[{$documents: [{a: 1}, {a: {$add: [1, 1]}}]}]", "[{a: 1}, {a: 2}]");
    }

    #[test]
    fn refuses_values_other_than_arrays_of_documents() {
        fails("[{$documents: {}}]", 5858203, "an array is expected");
        running_fails("[]", "[{$documents: [1]}]", 40228, "but resulting value was: 1. Type");
        fails(
            "[{$limit: 1}, {$documents: []}]",
            40602,
            "$documents is only valid as the first stage in a pipeline.",
        );
    }

    #[test]
    fn collections_have_their_namespaces() {
        let run = |stage: &str| Run::new("[]", stage).with("c", "[]");
        run("[{$listClusterCatalog: {}}]").gives("[{ns: 'd.c', db: 'd', sharded: false}]");
        run("[{$listClusterCatalog: {shards: true, tracked: true}}]")
            .gives("[{ns: 'd.c', db: 'd', sharded: false, shards: [], tracked: false}]");
        fails("[{$listClusterCatalog: 1}]", 9621302, "must take an object but found");
        fails("[{$listClusterCatalog: {x: true}}]", 40415, "'$listClusterCatalog.x' is an unknown field");
        fails(
            "[{$listClusterCatalog: {shards: 1}}]",
            14,
            "'$listClusterCatalog.shards' is the wrong type 'int'",
        );
    }
}

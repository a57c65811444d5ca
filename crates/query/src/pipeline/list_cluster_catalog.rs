//! `$listClusterCatalog`: the collections and views of a database, or of all databases if it runs on `admin`.
//!
//! Collections are never sharded: shard keys are absent, and the lists of shards are empty.

use super::definition::{Requester, Resource, Right};
use super::external::check_flags;
use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::source::from_documents;
use super::{Environment, Stream};
use base::bson::{Builder, DocumentBuf, Element, Value};
use base::{Result, bail};
use std::sync::Arc;

/// A parsed `$listClusterCatalog`: which optional fields to return.
struct ListClusterCatalog {
    shards: bool,
    tracked: bool,
}

/// Parses the stage. Errors: 9621302 unless the options are a document; the errors of flags.
pub(crate) fn parse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(9621302, "$listClusterCatalog must take an object but found: {spec}");
    };
    // The balancer has settings only for sharded collections.
    check_flags(spec.name(), options, &["shards", "tracked", "balancingConfiguration"])?;
    let is_set = |name: &str| options.get(name).and_then(|flag| flag.as_bool()) == Some(true);
    Ok(Parsed::one(ListClusterCatalog { shards: is_set("shards"), tracked: is_set("tracked") }))
}

/// Returns the required rights. A collection is refused later, with a specific error.
pub(crate) fn rights<'v>(_specification: Value<'v>, requester: &Requester<'_>) -> Vec<Right<'v>> {
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
    use crate::pipeline::testing::{Run, fails};

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

//! Resources: the patterns in roles, and the concrete resources of commands.

use crate::protocol::fields::Fields;
use base::bson::{Builder, Document};
use base::{Result, bail, err};

/// Name prefix of a bucket collection. The name of the time series follows.
const BUCKETS: &str = "system.buckets.";

/// A resource that a command uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resource<'a> {
    /// The server and every collection. Only privileges on any resource cover it.
    Any,
    /// The server as a whole.
    Cluster,
    /// Every collection of every database, except system collections.
    AnyNormal,
    /// A database as a whole.
    Database(&'a str),
    /// A collection or view.
    Collection(&'a str, &'a str),
}

impl<'a> Resource<'a> {
    /// Returns the named collection, or the database without a name.
    pub(crate) fn named(database: &'a str, collection: Option<&'a str>) -> Resource<'a> {
        match collection {
            Some(name) if !name.is_empty() => Resource::Collection(database, name),
            _ => Resource::Database(database),
        }
    }

    /// Returns an owned copy, which outlives the request.
    pub(crate) fn to_owned(self) -> OwnedResource {
        match self {
            Resource::Any => OwnedResource::Any,
            Resource::Cluster => OwnedResource::Cluster,
            Resource::AnyNormal => OwnedResource::AnyNormal,
            Resource::Database(database) => OwnedResource::Database(database.into()),
            Resource::Collection(database, name) => OwnedResource::Collection(database.into(), name.into()),
        }
    }
}

/// A [`Resource`] that owns its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OwnedResource {
    Any,
    Cluster,
    AnyNormal,
    Database(Box<str>),
    Collection(Box<str>, Box<str>),
}

impl OwnedResource {
    /// Returns the borrowed resource.
    pub(crate) fn view(&self) -> Resource<'_> {
        match self {
            OwnedResource::Any => Resource::Any,
            OwnedResource::Cluster => Resource::Cluster,
            OwnedResource::AnyNormal => Resource::AnyNormal,
            OwnedResource::Database(database) => Resource::Database(database),
            OwnedResource::Collection(database, name) => Resource::Collection(database, name),
        }
    }
}

/// Returns true for databases with internal data. Privileges on all normal collections exclude
/// them.
pub(crate) fn is_internal(database: &str) -> bool {
    matches!(database, "config" | "local")
}

/// Returns true if a collection is not a system collection.
pub(crate) fn is_normal(database: &str, collection: &str) -> bool {
    let of_replication = database == "local" && collection.starts_with("replset.");
    !collection.starts_with("system.") && !of_replication
}

/// Returns the time series of a bucket collection.
pub(crate) fn series_of(collection: &str) -> Option<&str> {
    collection.strip_prefix(BUCKETS)
}

/// Returns true if a pattern may name the collection. MongoDB accepts one name with `$`.
fn is_collection_name(database: &str, name: &str) -> bool {
    let is_valid = !name.starts_with('.') && !name.contains(['$', '\0']);
    is_valid || (database, name) == ("local", "oplog.$main")
}

fn conflict(resource: &str, other: &str) -> base::Error {
    err!(BadValue, "resource: {{{resource}}} conflicts with resource type '{other}'")
}

/// A resource pattern of a privilege.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Pattern {
    /// `{anyResource: true}`.
    Any,
    /// `{cluster: true}`.
    Cluster,
    /// `{db: "", collection: ""}`: any normal collection outside of `config` and `local`.
    AnyNormal,
    /// `{db: "d", collection: ""}`: the database and its normal collections.
    Database(String),
    /// `{db: "", collection: "c"}`: the collections of this name in all databases.
    Named(String),
    /// `{db: "d", collection: "c"}`.
    Collection(String, String),
    /// `{system_buckets: "c"}` with or without `db`. An empty name matches any.
    Buckets(String, String),
}

impl Pattern {
    /// Parses a resource document. `path` is its path in the command.
    ///
    /// Errors: MongoDB's errors for unknown fields, wrong types and invalid combinations.
    pub(crate) fn parse(path: &str, document: Document<'_>) -> Result<Pattern> {
        let mut fields = Fields::of_document(path, document);
        let cluster = fields.flag("cluster")?;
        let any = fields.flag("anyResource")?;
        let database = fields.string("db")?;
        let collection = fields.string("collection")?;
        let buckets = fields.string("system_buckets")?;
        fields.finish()?;
        let given = [
            ("anyResource", any.is_some()),
            ("db", database.is_some()),
            ("collection", collection.is_some()),
            ("system_buckets", buckets.is_some()),
        ];
        for (name, flag, pattern) in
            [("cluster", cluster, Pattern::Cluster), ("anyResource", any, Pattern::Any)]
        {
            let Some(is_true) = flag else { continue };
            if !is_true {
                bail!(BadValue, "resource: {{{name}: false}} must be true");
            }
            return match given.iter().find(|other| other.0 != name && other.1) {
                Some((other, _)) => Err(conflict(&format!("{name}: true"), other)),
                None => Ok(pattern),
            };
        }
        match (database, collection, buckets) {
            (_, Some(_), Some(_)) => Err(conflict("collection: '...'", "system_buckets")),
            (None, Some(_), None) => {
                Err(err!(BadValue, "resource {{collection: '...'}} must include 'db' field as well"))
            }
            (Some(database), Some(name), None) if !is_collection_name(database, name) => {
                Err(err!(BadValue, "'{name}' is not a valid collection name"))
            }
            (Some(""), Some(""), None) => Ok(Pattern::AnyNormal),
            (Some(""), Some(name), None) => Ok(Pattern::Named(name.into())),
            (Some(database), Some(""), None) => Ok(Pattern::Database(database.into())),
            (Some(database), Some(name), None) => Ok(Pattern::Collection(database.into(), name.into())),
            (database, None, Some(series)) => {
                Ok(Pattern::Buckets(database.unwrap_or_default().into(), series.into()))
            }
            (_, None, None) => {
                Err(err!(BadValue, "resource pattern must contain 'collection' or 'systemBuckets' specifier"))
            }
        }
    }

    /// Returns true if a role of the database may have the privilege. As in MongoDB, bucket collections are excluded.
    pub(crate) fn is_within(&self, database: &str) -> bool {
        match self {
            Pattern::Database(own) | Pattern::Collection(own, _) => own == database,
            _ => false,
        }
    }

    /// Appends the fields of the resource document.
    pub(crate) fn append(&self, out: &mut Builder) {
        match self {
            Pattern::Any => out.append(c"anyResource", true),
            Pattern::Cluster => out.append(c"cluster", true),
            Pattern::AnyNormal => out.append(c"db", "").append(c"collection", ""),
            Pattern::Database(database) => out.append(c"db", database).append(c"collection", ""),
            Pattern::Named(name) => out.append(c"db", "").append(c"collection", name),
            Pattern::Collection(database, name) => out.append(c"db", database).append(c"collection", name),
            Pattern::Buckets(database, series) => match database.as_str() {
                "" => out.append(c"system_buckets", series),
                database => out.append(c"db", database).append(c"system_buckets", series),
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(build: impl FnOnce(&mut Builder)) -> Result<Pattern> {
        let mut builder = Builder::new();
        build(&mut builder);
        Pattern::parse("resource", builder.finish().view())
    }

    #[test]
    fn resources_are_read_and_written() {
        let patterns = [
            Pattern::Any,
            Pattern::Cluster,
            Pattern::AnyNormal,
            Pattern::Database("d".into()),
            Pattern::Named("c".into()),
            Pattern::Collection("d".into(), "c".into()),
            Pattern::Buckets("".into(), "".into()),
            Pattern::Buckets("d".into(), "c".into()),
        ];
        for pattern in patterns {
            assert_eq!(parse(|out| pattern.append(out)).unwrap(), pattern);
        }
    }

    #[test]
    fn conflicting_fields_are_refused() {
        let refused = |build: fn(&mut Builder), code: i32, message: &str| {
            let error = parse(build).unwrap_err();
            assert_eq!((error.code().number(), error.message()), (code, message));
        };
        let conflict = |resource: &str, other: &str| {
            format!("resource: {{{resource}}} conflicts with resource type '{other}'")
        };
        refused(|b| _ = b.append(c"cluster", true).append(c"db", "d"), 2, &conflict("cluster: true", "db"));
        let both = conflict("cluster: true", "anyResource");
        refused(|b| _ = b.append(c"anyResource", true).append(c"cluster", 1), 2, &both);
        refused(|b| _ = b.append(c"cluster", false), 2, "resource: {cluster: false} must be true");
        let specifier = "resource pattern must contain 'collection' or 'systemBuckets' specifier";
        refused(|b| _ = b.append(c"db", "d"), 2, specifier);
        refused(|_| (), 2, specifier);
        let no_database = "resource {collection: '...'} must include 'db' field as well";
        refused(|b| _ = b.append(c"collection", "c"), 2, no_database);
        refused(
            |b| _ = b.append(c"db", "d").append(c"collection", "$cmd"),
            2,
            "'$cmd' is not a valid collection name",
        );
        let mismatch = "BSON field 'resource.db' is the wrong type 'int', expected type 'string'";
        refused(|b| _ = b.append(c"db", 1).append(c"collection", ""), 14, mismatch);
        refused(|b| _ = b.append(c"table", "t"), 40_415, "BSON field 'resource.table' is an unknown field.");
        parse(|b| _ = b.append(c"db", "local").append(c"collection", "oplog.$main")).unwrap();
    }

    #[test]
    fn system_collections_are_not_normal() {
        assert!(is_normal("d", "c") && is_normal("d", "replset.c"));
        assert!(!is_normal("d", "system.js") && !is_normal("local", "replset.minvalid"));
        assert_eq!(series_of("system.buckets.t"), Some("t"));
    }
}

//! Names of databases and collections, and their limits.

use crate::{Result, bail, err};
use std::fmt;

/// The longest name of a database, in bytes.
const DATABASE_NAME_MAX: usize = 63;
/// The longest full namespace of a collection, in bytes, since MongoDB 4.4.
pub const NAMESPACE_MAX: usize = 255;
/// The longest full namespace of a collection of an internal database, in bytes.
pub const INTERNAL_NAMESPACE_MAX: usize = 512;

/// A database and a collection in it, both checked.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace {
    text: Box<str>,
    dot: usize,
}

impl Namespace {
    /// Checks both names and joins them.
    ///
    /// Errors: InvalidNamespace with MongoDB's message.
    pub fn new(database: &str, collection: &str) -> Result<Namespace> {
        check_database_name(database)?;
        check_collection_name(database, collection)?;
        let mut text = String::with_capacity(database.len() + 1 + collection.len());
        text.push_str(database);
        text.push('.');
        text.push_str(collection);
        Ok(Namespace { text: text.into(), dot: database.len() })
    }

    /// Splits `database.collection` at the first dot and checks both names.
    pub fn parse(text: &str) -> Result<Namespace> {
        let (database, collection) = text
            .split_once('.')
            .ok_or_else(|| err!(InvalidNamespace, "Invalid namespace specified '{text}'"))?;
        Namespace::new(database, collection)
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.text[..self.dot]
    }

    /// The collection's name.
    pub fn collection(&self) -> &str {
        &self.text[self.dot + 1..]
    }

    /// `database.collection`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Checks the length of the name of a new collection. Longer names are valid, and no collection has one.
    ///
    /// Errors: InvalidNamespace.
    pub fn check_length(&self) -> Result<()> {
        let max = if is_internal_database(self.database()) { INTERNAL_NAMESPACE_MAX } else { NAMESPACE_MAX };
        if self.text.len() > max {
            bail!(InvalidNamespace, "Fully qualified namespace is too long. Namespace: {self} Max: {max}");
        }
        Ok(())
    }

    /// Whether the collection is internal: in an internal database, or a system collection.
    pub fn is_internal(&self) -> bool {
        is_internal_database(self.database()) || self.collection().starts_with("system.")
    }
}

/// Whether a database is internal: `admin`, `config` or `local`.
pub fn is_internal_database(name: &str) -> bool {
    matches!(name, "admin" | "config" | "local")
}

/// Checks the name of a database. Errors: InvalidNamespace.
pub fn check_database_name(name: &str) -> Result<()> {
    if name.len() > DATABASE_NAME_MAX {
        let length = name.len();
        bail!(InvalidNamespace, "db name must be at most {DATABASE_NAME_MAX} characters, found: {length}");
    }
    let bad = name.is_empty()
        || name.bytes().any(|byte| matches!(byte, b'\0' | b'/' | b'\\' | b'.' | b' ' | b'"' | b'$'));
    if bad {
        bail!(InvalidNamespace, "Invalid namespace specified '{name}'");
    }
    Ok(())
}

/// Checks the name of a collection in a database. MongoDB also accepts two kinds of names with a `$`, but no collection
/// has one.
///
/// Errors: InvalidNamespace.
pub fn check_collection_name(database: &str, name: &str) -> Result<()> {
    if name.is_empty() || (name.contains('$') && !(name.starts_with("$cmd") || name == "oplog.$main")) {
        bail!(InvalidNamespace, "Invalid namespace specified '{database}.{name}'");
    }
    if name.starts_with('.') {
        bail!(InvalidNamespace, "Collection names cannot start with '.': {name}");
    }
    if name.contains('\0') {
        bail!(InvalidNamespace, "namespaces cannot have embedded null characters");
    }
    Ok(())
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let namespace = Namespace::parse("db.a.b").unwrap();
        assert_eq!((namespace.database(), namespace.collection()), ("db", "a.b"));
        for bad in ["db", "db.", ".c", "d b.c", "d$.c", "db.a$b", "db..a", "db.a\0b"] {
            assert!(Namespace::parse(bad).is_err(), "{bad}");
        }
        let checked =
            |database, length| Namespace::new(database, &"x".repeat(length)).unwrap().check_length();
        assert!(checked("d", 253).is_ok());
        assert!(checked("d", 254).is_err());
        assert!(checked("admin", 506).is_ok());
        assert!(checked("admin", 507).is_err());
    }
}

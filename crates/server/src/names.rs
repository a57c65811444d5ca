//! Names of users and roles: each belongs to a database, and is another one in another database.

use std::fmt;

/// A user's name, and the database that keeps it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserName {
    /// The name.
    pub(crate) name: String,
    /// The database.
    pub(crate) db: String,
}

/// A role's name, and the database that it is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoleName {
    /// The name.
    pub(crate) role: String,
    /// The database.
    pub(crate) db: String,
}

impl UserName {
    /// The user of a name in a database.
    pub(crate) fn new(name: impl Into<String>, db: impl Into<String>) -> UserName {
        UserName { name: name.into(), db: db.into() }
    }

    /// What the user's document has for `_id`.
    pub(crate) fn id(&self) -> String {
        format!("{}.{}", self.db, self.name)
    }
}

impl RoleName {
    /// The role of a name in a database.
    pub(crate) fn new(role: impl Into<String>, db: impl Into<String>) -> RoleName {
        RoleName { role: role.into(), db: db.into() }
    }

    /// What the role's document has for `_id`.
    pub(crate) fn id(&self) -> String {
        format!("{}.{}", self.db, self.role)
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.db)
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.role, self.db)
    }
}

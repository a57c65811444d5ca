//! Names of users and roles. Each name belongs to a database and is unique only there.

use std::fmt;

/// A user's name and database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserName {
    pub(crate) name: String,
    pub(crate) db: String,
}

/// A role's name and database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoleName {
    pub(crate) role: String,
    pub(crate) db: String,
}

impl UserName {
    /// Returns the user name for a database.
    pub(crate) fn new(name: impl Into<String>, db: impl Into<String>) -> UserName {
        UserName { name: name.into(), db: db.into() }
    }

    /// Returns the `_id` of the user's document.
    pub(crate) fn id(&self) -> String {
        format!("{}.{}", self.db, self.name)
    }
}

impl RoleName {
    /// Returns the role name for a database.
    pub(crate) fn new(role: impl Into<String>, db: impl Into<String>) -> RoleName {
        RoleName { role: role.into(), db: db.into() }
    }

    /// Returns the `_id` of the role's document.
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

//! Commands on users and roles, and authentication.

pub(crate) mod accounts;
pub(crate) mod info;
pub(crate) mod login;
pub(crate) mod merge_users;
pub(crate) mod roles;

//! Commands on users and roles, and authentication.

pub(crate) mod accounts;
pub(crate) mod authenticate;
pub(crate) mod login;
pub(crate) mod merge_users;
pub(crate) mod roles;
pub(crate) mod roles_info;
pub(crate) mod users_info;

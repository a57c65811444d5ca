//! Privileges that roles grant and commands need.
//!
//! A role grants privileges. A privilege allows actions on the resources of a pattern. The
//! [`Identity`] of a connection holds the union of the user's privileges ([`Privileges`]). Each row
//! of the command table declares the command's needs ([`Requirements`]). The module `auth` compares both
//! before the handler runs.

pub(crate) mod action;
pub(crate) mod builtin;
pub(crate) mod command;
pub(crate) mod cursor;
mod grants;
pub(crate) mod privilege;
pub(crate) mod requirements;
pub(crate) mod resource;

pub(crate) use action::Action;
pub(crate) use privilege::{Identity, Privileges};
pub(crate) use requirements::Requirements;
pub(crate) use resource::Resource;

//! Identity of an authenticated connection.

use super::Privileges;
use crate::protocol::names::{RoleName, UserName};
use std::sync::Arc;
use std::time::Instant;

/// An authenticated user, as of the last read of its document.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) user: UserName,
    /// Id that distinguishes the user from an earlier user of this name.
    pub(crate) user_id: Option<[u8; 16]>,
    /// Directly granted roles, without inherited roles.
    pub(crate) roles: Vec<RoleName>,
    pub(crate) mechanism: &'static str,
    /// Digest that identifies the user's sessions.
    pub(crate) digest: [u8; 32],
    /// Privileges of the roles, including inherited roles.
    pub(crate) privileges: Arc<Privileges>,
    /// Generation of users and roles at the last read.
    pub(crate) generation: u64,
    /// Time of the last read.
    pub(crate) read: Instant,
}

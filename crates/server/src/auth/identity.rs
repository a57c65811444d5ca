//! Who is on a connection, once somebody has logged in there.

use crate::access::Privileges;
use crate::names::{RoleName, UserName};
use std::sync::Arc;
use std::time::Instant;

/// A user who has logged in, as they were when they were last read.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Who.
    pub(crate) user: UserName,
    /// The number that tells a user from one of the same name who was there before.
    pub(crate) user_id: Option<[u8; 16]>,
    /// The roles that were granted, not those that they inherit.
    pub(crate) roles: Vec<RoleName>,
    /// How they logged in.
    pub(crate) mechanism: &'static str,
    /// What the user's sessions are told apart by.
    pub(crate) digest: [u8; 32],
    /// What the roles allow, inherited ones included.
    pub(crate) privileges: Arc<Privileges>,
    /// The generation of users and roles that this was read at.
    pub(crate) generation: u64,
    /// When.
    pub(crate) read: Instant,
}

//! Who a logical session belongs to, and which of theirs it is.
//!
//! Clients make up the UUIDs of their sessions, so that two users' may be alike: what tells sessions apart is
//! the UUID together with a digest of the user.

/// The digest of the user where there are no users: SHA-256 of nothing, as MongoDB has it.
pub const NOBODY: [u8; 32] = [
    0xE3, 0xB0, 0xC4, 0x42, 0x98, 0xFC, 0x1C, 0x14, 0x9A, 0xFB, 0xF4, 0xC8, 0x99, 0x6F, 0xB9, 0x24, 0x27,
    0xAE, 0x41, 0xE4, 0x64, 0x9B, 0x93, 0x4C, 0xA4, 0x95, 0x99, 0x1B, 0x78, 0x52, 0xB8, 0x55,
];

/// A logical session's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId {
    /// What the client calls it.
    pub uuid: [u8; 16],
    /// The user's digest unless that is [`NOBODY`], which isn't written down with every record.
    user: Option<[u8; 32]>,
}

impl SessionId {
    /// The session of this user.
    pub fn new(uuid: [u8; 16], user: [u8; 32]) -> SessionId {
        SessionId { uuid, user: (user != NOBODY).then_some(user) }
    }

    /// A session where there are no users.
    pub fn of_nobody(uuid: [u8; 16]) -> SessionId {
        SessionId { uuid, user: None }
    }

    /// The digest of the user.
    pub fn user(&self) -> &[u8; 32] {
        self.user.as_ref().unwrap_or(&NOBODY)
    }

    /// The digest of the user, `None` for nobody.
    pub(crate) fn named_user(&self) -> Option<&[u8; 32]> {
        self.user.as_ref()
    }
}

//! State of `setUserWriteBlockMode`.
//!
//! It is stored in `config.user_writes_critical_sections`, as MongoDB keeps it.

use crate::state::system_collections::SettingLocation;
use base::bson::Document;
use base::{Result, bail, err};
use database::Database;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

const LOCATION: SettingLocation =
    SettingLocation { database: "config", collection: "user_writes_critical_sections", id: "" };

/// Reasons of a block. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No reason given.
    Unspecified = 0,
    /// The cluster is being copied to another cluster.
    ClusterToClusterMigrationInProgress = 1,
    /// The disk is full.
    DiskUseThresholdExceeded = 2,
}

const REASONS: [Reason; 3] =
    [Reason::Unspecified, Reason::ClusterToClusterMigrationInProgress, Reason::DiskUseThresholdExceeded];

impl Reason {
    /// Parses the name of a reason.
    ///
    /// Errors: BadValue for an unknown name.
    pub(crate) fn parse(name: &str) -> Result<Reason> {
        let found = REASONS.into_iter().find(|reason| format!("{reason:?}") == name);
        found.ok_or_else(|| {
            err!(
                BadValue,
                "Enumeration value '{name}' for field 'setUserWriteBlockMode.reason' is not a valid value."
            )
        })
    }
}

/// State of the block.
#[derive(Default)]
pub(crate) struct UserWriteBlock {
    /// Zero if writes are allowed, otherwise the number of the reason plus one. Each command reads
    /// it.
    state: AtomicU8,
    /// Held during changes of the state.
    changing: Mutex<()>,
}

impl UserWriteBlock {
    /// Returns the reason of the block, if any.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let before = self.state.load(Relaxed).checked_sub(1)?;
        REASONS.get(usize::from(before)).copied()
    }

    fn set(&self, reason: Option<Reason>) {
        self.state.store(reason.map_or(0, |reason| reason as u8 + 1), Relaxed);
    }

    /// Loads the stored state. An unreadable document is logged and counts as unset.
    pub(crate) fn load(&self, database: &Arc<Database>) {
        match LOCATION.read(database) {
            Ok(stored) => self.set(stored.and_then(|stored| reason_in(stored.view()))),
            Err(error) => log::warn!("reading whether the writes of users are blocked: {error}"),
        }
    }

    /// Blocks user writes for a reason, or allows them.
    ///
    /// Errors: IllegalOperation if another reason blocks them; errors of the write.
    pub(crate) fn change(&self, database: &Arc<Database>, blocks: bool, reason: Reason) -> Result<()> {
        let _changing = self.changing.lock();
        match self.reason() {
            Some(before) if before != reason => {
                let verb = if blocks { "enable" } else { "disable" };
                bail!(
                    IllegalOperation,
                    "Cannot {verb} user write blocking with reason {reason:?}: it is enabled with reason {before:?}"
                );
            }
            before if before.is_some() == blocks => return Ok(()),
            _ => {}
        }
        LOCATION.write(database, |document| {
            document.append(c"blockNewUserShardedDDL", false).append(c"blockUserWrites", blocks);
            document.append(c"blockUserWritesReason", reason as i32);
        })?;
        self.set(blocks.then_some(reason));
        Ok(())
    }
}

fn reason_in(stored: Document<'_>) -> Option<Reason> {
    let number = stored.get("blockUserWritesReason").and_then(|reason| reason.as_i64()).unwrap_or(0);
    let blocks = stored.get("blockUserWrites").and_then(|blocks| blocks.as_bool()) == Some(true);
    let reason = REASONS.into_iter().find(|reason| *reason as i64 == number);
    blocks.then(|| reason.unwrap_or(Reason::Unspecified))
}

//! Settings that all members of a set share: default concerns, write block, feature compatibility version.
//!
//! Commands change them, and the database stores them where MongoDB does. Persistent engines keep them over restarts.
//! Commands read a copy in memory, except for the feature compatibility version.

use crate::protocol::read_concern::ReadConcern;
use crate::protocol::write_concern::{Provenance, WriteConcern};
use crate::state::cluster_parameters::ClusterParameters;
use crate::state::query_settings::AllQuerySettings;
use crate::state::system_collections::SettingLocation;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{CompatibleWith, Error, Result, bail};
use database::Database;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// Stored settings.
#[derive(Default)]
pub(crate) struct SetSettings {
    pub(crate) default_concerns: DefaultConcerns,
    pub(crate) cluster_parameters: ClusterParameters,
    /// Settings of query shapes.
    pub(crate) query_settings: AllQuerySettings,
    pub(crate) user_write_block: UserWriteBlock,
}

impl SetSettings {
    /// Loads the settings that an earlier process stored.
    pub(crate) fn load(&self, database: &Arc<Database>) {
        self.default_concerns.load(database);
        self.cluster_parameters.load(database);
        self.query_settings.load(database);
        self.user_write_block.load(database);
    }
}

/// `_id` of the stored document.
const LOCATION: SettingLocation =
    SettingLocation { database: "config", collection: "settings", id: "ReadWriteConcernDefaults" };

/// Values set by the command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Custom {
    pub(crate) read: Option<ReadConcern>,
    pub(crate) write: Option<WriteConcern>,
    /// Cluster time and wall clock time of the last change.
    pub(crate) updated: Option<(u64, i64)>,
}

/// Defaults of a server.
#[derive(Default)]
pub(crate) struct DefaultConcerns {
    custom: RwLock<Custom>,
}

impl DefaultConcerns {
    /// Returns the values set by the command.
    pub(crate) fn custom(&self) -> Custom {
        self.custom.read().clone()
    }

    /// Returns the default read concern level, if set.
    pub(crate) fn read(&self) -> Option<ReadConcern> {
        self.custom.read().read
    }

    /// Returns the write concern of a write without one.
    pub(crate) fn write(&self, is_replica_set: bool) -> (WriteConcern, Provenance) {
        if !is_replica_set {
            return (WriteConcern::default(), Provenance::ImplicitDefault);
        }
        match &self.custom.read().write {
            Some(custom) => (custom.clone(), Provenance::CustomDefault),
            None => (WriteConcern::majority(), Provenance::ImplicitDefault),
        }
    }
}

impl DefaultConcerns {
    /// Loads the stored defaults. An unreadable document is logged and counts as unset.
    pub(crate) fn load(&self, database: &Arc<Database>) {
        let loaded = LOCATION.read(database).and_then(|stored| match stored {
            Some(stored) => Custom::parse(stored.view()),
            None => Ok(Custom::default()),
        });
        match loaded {
            Ok(custom) => *self.custom.write() = custom,
            Err(error) => log::warn!("reading the default concerns: {error}"),
        }
    }

    /// Stores defaults, then applies them.
    ///
    /// Errors: errors of the write.
    pub(crate) fn set(&self, database: &Arc<Database>, custom: Custom) -> Result<()> {
        LOCATION.write(database, |document| custom.append_to(document))?;
        *self.custom.write() = custom;
        Ok(())
    }
}

impl Custom {
    /// Parses the stored document.
    fn parse(stored: Document<'_>) -> Result<Custom> {
        let document = |name: &str| stored.get(name).and_then(|value| value.as_document());
        let level = document("defaultReadConcern").and_then(|concern| concern.get("level"));
        let updated = match (stored.get("updateOpTime"), stored.get("updateWallClockTime")) {
            (Some(Value::Timestamp(time)), Some(Value::DateTime(millis))) => Some((time, millis)),
            _ => None,
        };
        Ok(Custom {
            read: level.map(ReadConcern::parse).transpose()?,
            write: document("defaultWriteConcern").map(WriteConcern::parse).transpose()?,
            updated,
        })
    }

    /// Appends the values and the time of the last change.
    pub(crate) fn append_to(&self, document: &mut Builder) {
        if let Some(level) = self.read {
            document.begin_document(c"defaultReadConcern").append(c"level", level.name()).end();
        }
        if let Some(concern) = &self.write {
            concern.append_to(document.begin_document(c"defaultWriteConcern"));
            document.end();
        }
        if let Some((time, millis)) = self.updated {
            document.append(c"updateOpTime", Value::Timestamp(time));
            document.append(c"updateWallClockTime", Value::DateTime(millis));
        }
    }

    /// Returns the values after a change. `None` keeps a value, and an empty concern removes it.
    ///
    /// Errors: BadValue for an invalid default, IllegalOperation for a removal of the write
    /// concern.
    pub(crate) fn changed(
        self,
        read: Option<Option<ReadConcern>>,
        write: Option<WriteConcern>,
        now: (u64, i64),
    ) -> Result<Custom> {
        use crate::protocol::write_concern::Acknowledgement::Members;
        if read.is_none() && write.is_none() {
            bail!(
                BadValue,
                "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present"
            );
        }
        if let Some(Some(level @ (ReadConcern::Snapshot | ReadConcern::Linearizable))) = read {
            let level = level.name();
            bail!(BadValue, "level: '{level}' is not suitable for the default read concern");
        }
        if write.as_ref().is_some_and(|concern| concern.w.is_none() && !concern.is_empty()) {
            bail!(BadValue, "The default write concern must have the field 'w'");
        }
        if write.as_ref().is_some_and(|concern| concern.w == Some(Members(0))) {
            bail!(BadValue, "Unacknowledged write concern is not suitable for the default write concern");
        }
        if self.write.is_some() && write.as_ref().is_some_and(WriteConcern::is_empty) {
            bail!(IllegalOperation, "The global default write concern cannot be unset once it is set.");
        }
        Ok(Custom {
            read: read.unwrap_or(self.read),
            write: write.map_or(self.write, |concern| (!concern.is_empty()).then_some(concern)),
            updated: Some(now),
        })
    }
}

const BLOCK_LOCATION: SettingLocation =
    SettingLocation { database: "config", collection: "user_writes_critical_sections", id: "" };

/// Reasons of a block. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockReason {
    /// No reason given.
    Unspecified = 0,
    /// The cluster is being copied to another cluster.
    ClusterToClusterMigrationInProgress = 1,
    /// The disk is full.
    DiskUseThresholdExceeded = 2,
}

const BLOCK_REASONS: [BlockReason; 3] = [
    BlockReason::Unspecified,
    BlockReason::ClusterToClusterMigrationInProgress,
    BlockReason::DiskUseThresholdExceeded,
];

impl BlockReason {
    /// Parses the name of a reason.
    ///
    /// Errors: BadValue for an unknown name.
    pub(crate) fn parse(name: &str) -> Result<BlockReason> {
        let found = BLOCK_REASONS.into_iter().find(|reason| format!("{reason:?}") == name);
        found.ok_or_else(|| Error::unknown_value("setUserWriteBlockMode.reason", name))
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
    pub(crate) fn reason(&self) -> Option<BlockReason> {
        let before = self.state.load(Relaxed).checked_sub(1)?;
        BLOCK_REASONS.get(usize::from(before)).copied()
    }

    fn set(&self, reason: Option<BlockReason>) {
        self.state.store(reason.map_or(0, |reason| reason as u8 + 1), Relaxed);
    }

    /// Loads the stored state. An unreadable document is logged and counts as unset.
    pub(crate) fn load(&self, database: &Arc<Database>) {
        match BLOCK_LOCATION.read(database) {
            Ok(stored) => self.set(stored.and_then(|stored| reason_in(stored.view()))),
            Err(error) => log::warn!("reading whether the writes of users are blocked: {error}"),
        }
    }

    /// Blocks user writes for a reason, or allows them.
    ///
    /// Errors: IllegalOperation if another reason blocks them; errors of the write.
    pub(crate) fn change(&self, database: &Arc<Database>, blocks: bool, reason: BlockReason) -> Result<()> {
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
        BLOCK_LOCATION.write(database, |document| {
            document.append(c"blockNewUserShardedDDL", false).append(c"blockUserWrites", blocks);
            document.append(c"blockUserWritesReason", reason as i32);
        })?;
        self.set(blocks.then_some(reason));
        Ok(())
    }
}

fn reason_in(stored: Document<'_>) -> Option<BlockReason> {
    let number = stored.get("blockUserWritesReason").and_then(|reason| reason.as_i64()).unwrap_or(0);
    let blocks = stored.get("blockUserWrites").and_then(|blocks| blocks.as_bool()) == Some(true);
    let reason = BLOCK_REASONS.into_iter().find(|reason| *reason as i64 == number);
    blocks.then(|| reason.unwrap_or(BlockReason::Unspecified))
}

const VERSION_LOCATION: SettingLocation =
    SettingLocation { database: "admin", collection: "system.version", id: "featureCompatibilityVersion" };

/// Returns the stored feature compatibility version, which clients may also write themselves. An unreadable document is
/// logged and counts as unset.
pub(crate) fn feature_version(database: &Arc<Database>, compatible_with: CompatibleWith) -> &'static str {
    let known = compatible_with.feature_versions();
    let stored = VERSION_LOCATION.read(database).unwrap_or_else(|error| {
        log::warn!("reading the feature compatibility version: {error}");
        None
    });
    let version = stored.as_ref().and_then(|stored| stored.view().get("version")?.as_str());
    let version = version.and_then(|version| known.iter().find(|known| **known == version));
    version.or(known.last()).copied().unwrap_or("8.0")
}

/// Returns the internal command that stores a feature compatibility version.
pub(crate) fn feature_version_update(version: &str) -> DocumentBuf {
    let mut command = Builder::new();
    command.append(c"update", VERSION_LOCATION.collection).begin_array(c"updates").push_document();
    command.begin_document(c"q").append(c"_id", VERSION_LOCATION.id).end();
    command.begin_document(c"u").append(c"version", version).end().append(c"upsert", true).end().end();
    command.begin_document(c"writeConcern").append(c"w", 1).end().append(c"$db", VERSION_LOCATION.database);
    command.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;

    fn concern(text: &str) -> Option<WriteConcern> {
        Some(WriteConcern::parse(extended_json::parse(text).unwrap().view()).unwrap())
    }

    #[test]
    fn changes_keep_other_fields() {
        let first = Custom::default().changed(Some(Some(ReadConcern::Majority)), None, (7, 8)).unwrap();
        let second = first.clone().changed(None, concern("{w: 1}"), (9, 10)).unwrap();
        assert_eq!((second.read, second.updated), (Some(ReadConcern::Majority), Some((9, 10))));
        let mut stored = Builder::new();
        second.append_to(&mut stored);
        assert_eq!(Custom::parse(stored.finish().view()).unwrap().read, second.read);
        let code = |result: Result<Custom>| result.unwrap_err().code().number();
        assert_eq!(code(second.clone().changed(None, concern("{}"), (0, 0))), 20);
        assert_eq!(code(second.clone().changed(None, concern("{w: 0}"), (0, 0))), 2);
        assert_eq!(code(second.clone().changed(None, None, (0, 0))), 2);
        assert_eq!(code(second.clone().changed(Some(Some(ReadConcern::Snapshot)), None, (0, 0))), 2);
        assert_eq!(second.changed(Some(None), None, (0, 0)).unwrap().read, None);
        assert_eq!(first.changed(None, concern("{}"), (0, 0)).unwrap().write, None);
    }
}

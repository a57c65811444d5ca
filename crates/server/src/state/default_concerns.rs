//! Default read and write concerns, as setDefaultRWConcern sets them.
//!
//! The stored form is in `config.settings`, as in MongoDB. Persistent engines keep it over
//! restarts. Commands use a copy in memory, read at the start and changed by the command.

use crate::protocol::read_concern::ReadConcern;
use crate::protocol::write_concern::{Provenance, WriteConcern};
use crate::state::system_collections::SettingLocation;
use base::bson::{Builder, Document, Value};
use base::{Result, bail};
use database::Database;
use parking_lot::RwLock;
use std::sync::Arc;

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

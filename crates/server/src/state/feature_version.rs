//! Feature compatibility version. No stored data depend on it, so the version is only stored and
//! reported.

use crate::protocol::compatible_with::CompatibleWith;
use crate::state::system_collections::SettingLocation;
use base::{Result, bail};
use database::Database;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const LOCATION: SettingLocation =
    SettingLocation { database: "admin", collection: "system.version", id: "featureCompatibilityVersion" };

/// True if the version is lowered to MongoDB 8.0's.
#[derive(Default)]
pub(crate) struct FeatureVersion(AtomicBool);

impl FeatureVersion {
    /// Returns the present version of a server that is compatible with `own`.
    pub(crate) fn of(&self, own: CompatibleWith) -> &'static str {
        match self.0.load(Relaxed) {
            true => CompatibleWith::V8_0.feature_version(),
            false => own.feature_version(),
        }
    }

    /// Loads the stored version. An unreadable document is logged and counts as unset.
    pub(crate) fn load(&self, database: &Arc<Database>) {
        match LOCATION.read(database) {
            Ok(stored) => {
                let version = stored.as_ref().and_then(|stored| stored.view().get("version")?.as_str());
                let lowered = version == Some(CompatibleWith::V8_0.feature_version());
                self.0.store(lowered, Relaxed);
            }
            Err(error) => log::warn!("reading the feature compatibility version: {error}"),
        }
    }

    /// Stores a version, then applies it.
    ///
    /// Errors: 4926900 for a version that is neither the server's own nor the one before; errors of
    /// the write.
    pub(crate) fn set(&self, database: &Arc<Database>, own: CompatibleWith, version: &str) -> Result<()> {
        let own = own.feature_version();
        let lowest = CompatibleWith::V8_0.feature_version();
        if version != own && version != lowest {
            bail!(
                4926900,
                "Invalid feature compatibility version value '{version}'; expected '{lowest}' or '{own}'"
            );
        }
        LOCATION.write(database, |document| _ = document.append(c"version", version))?;
        self.0.store(version == lowest, Relaxed);
        Ok(())
    }
}

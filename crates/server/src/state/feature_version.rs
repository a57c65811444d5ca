//! Feature compatibility version. No stored data depend on it. It gates options of newer versions, and is otherwise
//! only stored and reported.

use crate::state::system_collections::SettingLocation;
use base::{CompatibleWith, Result, bail, err};
use database::Database;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const LOCATION: SettingLocation =
    SettingLocation { database: "admin", collection: "system.version", id: "featureCompatibilityVersion" };

/// Number of steps by which the version is below the server's own, in the order of
/// [`CompatibleWith::feature_versions`].
#[derive(Default)]
pub(crate) struct FeatureVersion(AtomicUsize);

impl FeatureVersion {
    /// Returns the present version.
    pub(crate) fn of(&self, compatible_with: CompatibleWith) -> &'static str {
        let lowered = self.0.load(Relaxed);
        compatible_with.feature_versions().iter().rev().nth(lowered).copied().unwrap_or("8.0")
    }

    /// Refuses the validation level `constraint` below version 9.0.
    ///
    /// Errors: BadValue for an older server, InvalidOptions for an older feature compatibility version.
    pub(crate) fn check_constraint_level(&self, compatible_with: CompatibleWith) -> Result<()> {
        match self.0.load(Relaxed) {
            _ if compatible_with < CompatibleWith::V9_0 => Err(database::unknown_level("constraint")),
            0 => Ok(()),
            _ => Err(err!(InvalidOptions, "Validation level 'constraint' is not supported with current FCV")),
        }
    }

    /// Loads the stored version. An unreadable document is logged and counts as unset.
    pub(crate) fn load(&self, database: &Arc<Database>, compatible_with: CompatibleWith) {
        match LOCATION.read(database) {
            Ok(stored) => {
                let version = stored.as_ref().and_then(|stored| stored.view().get("version")?.as_str());
                let lowered = version.and_then(|version| steps_to(compatible_with, version));
                self.0.store(lowered.unwrap_or(0), Relaxed);
            }
            Err(error) => log::warn!("reading the feature compatibility version: {error}"),
        }
    }

    /// Stores a version, then applies it.
    ///
    /// Errors: 4926900 for a version that the server does not know; CannotDowngrade if a collection has options of a
    /// newer version; errors of the write.
    pub(crate) fn set(
        &self,
        database: &Arc<Database>,
        compatible_with: CompatibleWith,
        version: &str,
    ) -> Result<()> {
        let Some(lowered) = steps_to(compatible_with, version) else {
            let known = compatible_with.feature_versions().join("' or '");
            bail!(4926900, "Invalid feature compatibility version value '{version}'; expected '{known}'");
        };
        if lowered > 0
            && let Some(constrained) = database.constrained_collection()
        {
            bail!(
                CannotDowngrade,
                "Cannot downgrade while a collection has the validation level 'constraint'. First detected collection: \
                 {constrained}."
            );
        }
        LOCATION.write(database, |document| _ = document.append(c"version", version))?;
        self.0.store(lowered, Relaxed);
        Ok(())
    }
}

fn steps_to(compatible_with: CompatibleWith, version: &str) -> Option<usize> {
    compatible_with.feature_versions().iter().rev().position(|known| *known == version)
}

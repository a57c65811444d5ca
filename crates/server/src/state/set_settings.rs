//! Settings that all members of a set share. Commands change them, and the database stores them.

use crate::state::cluster_parameters::ClusterParameters;
use crate::state::default_concerns::DefaultConcerns;
use crate::state::feature_version::FeatureVersion;
use crate::state::query_settings::AllQuerySettings;
use crate::state::user_write_block::UserWriteBlock;
use database::Database;
use std::sync::Arc;

/// Stored settings.
#[derive(Default)]
pub(crate) struct SetSettings {
    pub(crate) default_concerns: DefaultConcerns,
    pub(crate) cluster_parameters: ClusterParameters,
    /// Settings of query shapes.
    pub(crate) query_settings: AllQuerySettings,
    pub(crate) user_write_block: UserWriteBlock,
    pub(crate) feature_version: FeatureVersion,
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

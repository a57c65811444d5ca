//! Commands that read and change settings.

pub(crate) mod cluster_parameters;
pub(crate) mod default_concerns;
pub(crate) mod parameters;
pub(crate) mod query_settings;
pub(crate) mod test_commands;
pub(crate) mod user_write_block;

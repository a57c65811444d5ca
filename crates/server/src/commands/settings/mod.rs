//! Commands that read and change settings.

pub(crate) mod parameters;
pub(crate) mod query_settings;
pub(crate) mod set_settings;
pub(crate) mod test_commands;

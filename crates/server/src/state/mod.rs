//! State of a server and of its connections.

pub(crate) mod auth;
pub(crate) mod cluster_parameters;
pub(crate) mod connection;
pub(crate) mod execution;
pub(crate) mod fail_point;
pub(crate) mod http;
pub(crate) mod parameters;
pub(crate) mod query_knobs;
pub(crate) mod query_settings;
pub(crate) mod replica_set;
pub(crate) mod set_config;
pub(crate) mod set_settings;
pub(crate) mod settings;
pub(crate) mod system_collections;
pub(crate) mod tls;

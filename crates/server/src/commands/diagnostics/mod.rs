//! Commands for operators: state, statistics, maintenance.

pub(crate) mod admin;
pub(crate) mod current_op;
pub(crate) mod maintenance;
pub(crate) mod plan_cache;
pub(crate) mod server_info;
pub(crate) mod server_status;
pub(crate) mod statistics;

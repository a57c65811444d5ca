//! Commands for operators: state, statistics, maintenance.

pub(crate) mod admin;
pub(crate) mod current_op;
pub(crate) mod fsync;
pub(crate) mod maintenance;
pub(crate) mod plan_cache;
pub(crate) mod server_info;
pub(crate) mod server_status;
pub(crate) mod slow_queries;
pub(crate) mod statistics;
pub(crate) mod strict_report;
pub(crate) mod working_set;

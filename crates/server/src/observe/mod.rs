//! Observation of the server: activities, counters, figures, the profiler.

pub(crate) mod activity;
pub(crate) mod counters;
pub(crate) mod operations;
pub(crate) mod profiler;
pub(crate) mod usage;

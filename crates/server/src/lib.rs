//! The MongoDB wire protocol and its commands. No other crate knows either.
//!
//! Path of a request: `net` reads bytes (the only async code). `driver` cuts a frame from them.
//! `request` parses the frame with `wire`. `dispatch` finds the row in the table of `command` and
//! checks the generic arguments (`arguments`). The handler in `commands` takes its declared
//! `fields`, makes one call, and writes its reply behind the header. `net` sends the reply.

mod access;
mod activity;
mod arguments;
mod auth;
mod auth_state;
mod background;
mod blocking;
mod buffers;
mod call;
mod cluster_parameters;
mod command;
mod commands;
mod compatible_with;
mod connection;
mod counter;
mod counters;
#[cfg(unix)]
mod dedicated_threads;
mod default_concerns;
mod dispatch;
mod driver;
mod event;
mod fail_point;
mod fields;
mod figures;
mod finished;
mod heap;
mod http;
mod http_state;
mod local;
pub mod logging;
mod memory;
mod memory_limit;
mod names;
mod net;
mod open;
mod operations;
mod own_address;
mod parameters;
mod places;
mod profiler;
mod progress;
mod read_concern;
mod read_preference;
mod replica_set;
mod reply;
mod request;
mod row;
mod server;
mod session;
mod session_id;
mod set_config;
mod signal;
mod system_collections;
mod tls;
mod transaction_rules;
mod turn;
mod usage;
mod waits;
mod write_concern;

pub use compatible_with::CompatibleWith;
pub use http::request_length;
pub use http_state::HttpOptions;
pub use local::LocalConnection;
pub use memory_limit::MemoryLimit;
pub use net::serve;
pub use server::{MECHANISMS, Server, Settings, seed};
pub use tls::{Tls, TlsMode, TlsOptions};

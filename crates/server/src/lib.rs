//! The MongoDB wire protocol and its commands. No other crate knows either.
//!
//! Path of a request: `listen::net` reads bytes (the only async code). `listen::driver` cuts a frame
//! from them. `dispatch::request` parses the frame with `wire`. `dispatch` finds the row in
//! `commands::table` and checks the generic arguments (`call::arguments`). The handler in `commands`
//! takes its declared fields, makes one call, and writes its reply behind the header. `listen::net`
//! sends the reply. Each folder is a layer. ARCHITECTURE.md lists them from the lowest up.

mod access;
mod auth;
mod call;
mod commands;
mod dispatch;
mod listen;
mod observe;
mod process;
mod protocol;
mod server;
mod session;
mod state;

pub use base::CompatibleWith;
pub use dispatch::local::LocalConnection;
pub use listen::http::request_length;
pub use listen::net::serve;
pub use process::logging;
pub use process::memory::MemoryLimit;
pub use server::{Server, seed};
pub use state::execution::ExecutionLimits;
pub use state::http::HttpOptions;
pub use state::settings::{MECHANISMS, Settings};
pub use state::tls::{Tls, TlsMode, TlsOptions};

#[cfg(any(test, debug_assertions, feature = "testing"))]
pub use listen::simulated::{Advance, SimulatedBackground, SimulatedConnection};

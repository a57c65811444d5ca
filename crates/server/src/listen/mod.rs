//! Sockets, TLS, HTTP, background work, the memory watch.

pub(crate) mod background;
pub(crate) mod driver;
pub(crate) mod http;
pub(crate) mod memory;
pub(crate) mod net;
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) mod simulated;

//! State of the HTTP server: address, counters, samples, sessions of the page.

mod history;
mod sessions;

use crate::observe::operations::LatencyHistogram;
use crate::process::connection_limit::ConnectionLimit;
use crate::process::counter::Counter;
use history::History;
pub(crate) use history::{Counts, INTERVAL};
use sessions::Sessions;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

/// Address and host names of the HTTP server.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpOptions {
    /// Address and port; 0 selects a free port.
    pub address: SocketAddr,
    /// Accepted host names, in addition to addresses and `localhost`.
    pub names: Vec<String>,
}

/// State and counters of HTTP.
#[derive(Default)]
pub(crate) struct Http {
    /// Listening address, set when the server listens.
    pub(crate) address: OnceLock<SocketAddr>,
    /// Address of the MongoDB protocol for local clients.
    pub(crate) server: OnceLock<String>,
    /// Operations over time.
    pub(crate) history: History,
    /// Connection limit.
    pub(crate) connection_limit: ConnectionLimit,
    /// Connections refused by the limit.
    pub(crate) rejected: Counter,
    /// Responses by path, in the order of [`PATHS`], with one entry for other paths.
    pub(crate) requests: [ResponseCounters; PATHS.len() + 1],
    /// Token that authorizes changes while access control is off.
    token: OnceLock<String>,
    /// Sessions of the page's users.
    pub(crate) sessions: Sessions,
}

/// Responses to requests for one path.
#[derive(Default)]
pub(crate) struct ResponseCounters {
    /// Counts by status class, from 2xx.
    pub(crate) by_class: [Counter; 4],
    /// Latencies of the answers.
    pub(crate) times: LatencyHistogram,
}

/// Valid paths.
pub(crate) const PATHS: [&str; 12] = [
    "/",
    "/healthz",
    "/history",
    "/kill",
    "/login",
    "/logout",
    "/metrics",
    "/operations",
    "/readyz",
    "/session",
    "/slow",
    "/working-set",
];

impl Http {
    /// Counts a response.
    pub(crate) fn count(&self, path: &str, status: u16, took: Duration) {
        let at = PATHS.iter().position(|known| *known == path).unwrap_or(PATHS.len());
        let Some(counters) = self.requests.get(at) else { return };
        counters.times.record(took);
        if let Some(count) = counters.by_class.get(usize::from(status / 100).saturating_sub(2)) {
            count.add(1);
        }
    }

    /// Returns the token that permits changes without access control. The token is drawn once. It is
    /// empty if the system has no random numbers.
    pub(crate) fn token(&self) -> &str {
        self.token.get_or_init(|| match sessions::random_text() {
            Ok(token) => token,
            Err(why) => {
                log::warn!("cannot create the HTTP token: {why}");
                String::new()
            }
        })
    }
}

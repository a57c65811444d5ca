//! The server of a connection string that answers: for the verbs that ask one something.

use crate::cli::Asked;
use std::time::{Duration, Instant};
use wire::client::{Client, NO_SERVER};
use wire::uri::ConnectionString;

/// Connects to the server that the options name. Also returns its name.
pub(crate) fn asked(options: &Asked) -> Result<(Client, String), String> {
    connect(&ConnectionString::parse(&options.uri)?, options.timeout)
}

/// Connects to the first server of a connection string that can be reached, and logs in where it has a user. Also
/// returns the server's name.
pub(crate) fn connect(uri: &ConnectionString, timeout: u64) -> Result<(Client, String), String> {
    let deadline = Instant::now() + Duration::from_millis(timeout);
    let mut failures = Vec::new();
    for host in &uri.hosts {
        match Client::connect(host, uri, deadline) {
            Ok(client) => return Ok((client, host.to_string())),
            Err(error) => failures.push(format!("{host}: {error}")),
        }
    }
    Err(unreached(&failures, uri))
}

/// Why none of the servers could be reached, and how to start one where none listens.
pub(crate) fn unreached(failures: &[String], uri: &ConnectionString) -> String {
    let text = failures.join("; ");
    let port = uri.hosts.first().and_then(|host| host.rsplit_once(':')).map_or("27017", |(_, port)| port);
    match (text.contains(NO_SERVER), port) {
        (false, _) => text,
        (true, "27017") => format!("{text}. Start one with: vellum"),
        (true, port) => format!("{text}. Start one with: vellum --port {port}"),
    }
}

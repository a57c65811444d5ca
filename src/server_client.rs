//! Connections to the first reachable server of a connection string, for verbs that query a server.
//!
//! `vellum ping URI` checks that a server replies, without a driver. It serves as a container's
//! health check. A hello needs no user. If the connection string has a user, ping also
//! authenticates.

use crate::cli::{PingOptions, TargetServer};
use crate::failure::Failure;
use base::bson::Builder;
use std::time::{Duration, Instant};
use wire::client::{Client, NO_SERVER};
use wire::uri::ConnectionString;

/// Connects to the server in the options. Also returns its name.
pub(crate) fn connect_to_target(options: &TargetServer) -> Result<(Client, String), Failure> {
    Ok(connect(&parse_uri(&options.uri)?, options.timeout)?)
}

/// Parses a connection string of the command line.
pub(crate) fn parse_uri(text: &str) -> Result<ConnectionString, Failure> {
    ConnectionString::parse(text).map_err(Failure::of_options)
}

/// Connects to the first reachable server of a connection string and authenticates its user, if
/// any. Also returns the server's name.
pub(crate) fn connect(uri: &ConnectionString, timeout: u64) -> Result<(Client, String), String> {
    first_reachable(uri, timeout, |host, deadline| {
        Client::connect(host, uri, deadline).map(|client| (client, host.to_string()))
    })
}

/// Calls `reach` for the servers of a connection string in order, until one is reachable.
fn first_reachable<T>(
    uri: &ConnectionString,
    timeout: u64,
    reach: impl Fn(&str, Instant) -> Result<T, String>,
) -> Result<T, String> {
    let deadline = Instant::now() + Duration::from_millis(timeout);
    let mut failures = Vec::new();
    for host in &uri.hosts {
        match reach(host, deadline) {
            Ok(reached) => return Ok(reached),
            Err(error) => failures.push(format!("{host}: {error}")),
        }
    }
    Err(connection_error(&failures, uri))
}

/// Returns the message if no server is reachable, with a hint for starting one.
fn connection_error(failures: &[String], uri: &ConnectionString) -> String {
    let text = failures.join("; ");
    let port = uri.hosts.first().and_then(|host| host.rsplit_once(':')).map_or("27017", |(_, port)| port);
    match (text.contains(NO_SERVER), port) {
        (false, _) => text,
        (true, "27017") => format!("{text}. Start one with: vellum"),
        (true, port) => format!("{text}. Start one with: vellum --port {port}"),
    }
}

/// Tries the servers of a connection string in order until one replies. Returns the output.
pub(crate) fn ping(options: &PingOptions) -> Result<String, Failure> {
    let uri = parse_uri(&options.target.uri)?;
    let reached = first_reachable(&uri, options.target.timeout, |host, deadline| {
        let start = Instant::now();
        let message = hello(host, &uri, deadline)?;
        Ok(format!("{host}: {message}, {:.1} ms", start.elapsed().as_secs_f64() * 1000.0))
    });
    Ok(reached?)
}

/// Sends a hello and returns a summary of the reply.
fn hello(host: &str, uri: &ConnectionString, deadline: Instant) -> Result<String, String> {
    let mut client = Client::connect(host, uri, deadline)?;
    let mut hello = Builder::new();
    hello.append(c"hello", 1).append(c"$db", "admin");
    let reply = client.command(&hello.finish())?;
    let reply = reply.view();
    let set = reply.get("setName").and_then(|value| value.as_str());
    let primary = reply.get("isWritablePrimary").and_then(|value| value.as_bool()) == Some(true);
    Ok(match (set, primary) {
        (Some(set), true) => format!("primary of {set}"),
        (Some(set), false) => format!("member of {set}"),
        (None, _) => "answers".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::TargetServer;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn failed_and_invalid_replies_are_reported() {
        let options = |uri: String| PingOptions {
            target: TargetServer { uri, timeout: 300 },
            quiet: false,
            help: None,
        };
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        assert!(ping(&options(format!("mongodb://{address}/"))).is_err());
        let web = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = web.local_addr().unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = web.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        let error = ping(&options(address.to_string())).unwrap_err().message;
        assert!(error.contains("MongoDB's protocol"), "{error}");
        answers.join().unwrap();
    }
}

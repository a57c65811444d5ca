//! The server of a connection string that answers: for the verbs that ask one something.
//!
//! `vellum ping URI`: asks a server whether it answers, without a driver: a container's health check.
//!
//! Saying hello needs no user. Where the connection string has one, it is also shown that they can log in.

use crate::cli::{Asked, PingOptions};
use base::bson::Builder;
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

/// Asks the servers of a connection string, one after the other, until one answers. Returns what to
/// print.
pub(crate) fn ping(options: &PingOptions) -> Result<String, String> {
    let uri = ConnectionString::parse(&options.asked.uri)?;
    let deadline = Instant::now() + Duration::from_millis(options.asked.timeout);
    let mut failures = Vec::new();
    for host in &uri.hosts {
        let start = Instant::now();
        match ask(host, &uri, deadline) {
            Ok(what) => {
                return Ok(format!("{host}: {what}, {:.1} ms", start.elapsed().as_secs_f64() * 1000.0));
            }
            Err(error) => failures.push(format!("{host}: {error}")),
        }
    }
    Err(unreached(&failures, &uri))
}

/// One hello, and what it told.
fn ask(host: &str, uri: &ConnectionString, deadline: Instant) -> Result<String, String> {
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
    use crate::cli::Asked;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn what_does_not_answer_or_not_well_is_told() {
        let options =
            |uri: String| PingOptions { asked: Asked { uri, timeout: 300 }, quiet: false, help: None };
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        assert!(ping(&options(format!("mongodb://{address}/"))).is_err());
        let web = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = web.local_addr().unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = web.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        let error = ping(&options(address.to_string())).unwrap_err();
        assert!(error.contains("MongoDB's protocol"), "{error}");
        answers.join().unwrap();
    }
}

//! `vellum ping URI`: says hello to a server, without a driver: a container's health check.
//!
//! Saying hello needs no user, so a name and a password in the connection string are not used.

use crate::cli::PingOptions;
use base::bson::{Builder, DocumentBuf, validate};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

const OP_MSG: u32 = 2013;
const HEADER: usize = 16;
/// Flags and the section's kind before the document.
const PREFIX: usize = 5;
/// More than any server's hello.
const REPLY_MAX: usize = 1 << 20;
const PORT: u16 = 27017;

/// Asks the servers of a connection string, one after the other, until one answers. Returns what to
/// print.
pub(crate) fn ping(options: &PingOptions) -> Result<String, String> {
    let hosts = hosts(&options.uri)?;
    let deadline = Instant::now() + Duration::from_millis(options.timeout);
    let mut failures = Vec::new();
    for host in hosts {
        let start = Instant::now();
        match ask(&host, deadline) {
            Ok(what) => {
                return Ok(format!("{host}: {what}, {:.1} ms", start.elapsed().as_secs_f64() * 1000.0));
            }
            Err(error) => failures.push(format!("{host}: {error}")),
        }
    }
    Err(failures.join("; "))
}

/// The addresses of a connection string.
fn hosts(uri: &str) -> Result<Vec<String>, String> {
    if uri.starts_with("mongodb+srv://") {
        return Err("mongodb+srv:// needs DNS: name the host as mongodb://HOST:PORT/".to_string());
    }
    let rest = uri.strip_prefix("mongodb://").unwrap_or(uri);
    let (authority, query) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
    let options = query.rsplit('?').next().unwrap_or_default().split('&');
    if options.into_iter().any(|option| matches!(option, "tls=true" | "ssl=true")) {
        return Err("TLS is not there yet: tls=true can't be honoured".to_string());
    }
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let hosts: Vec<String> = hosts.split(',').filter(|host| !host.is_empty()).map(with_port).collect();
    if hosts.is_empty() {
        return Err(format!("'{uri}' names no host; expected mongodb://HOST:PORT/"));
    }
    Ok(hosts)
}

fn with_port(host: &str) -> String {
    // A colon inside brackets is part of an IPv6 address.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    if has_port { host.to_string() } else { format!("{host}:{PORT}") }
}

/// One hello.
fn ask(host: &str, deadline: Instant) -> io::Result<String> {
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in host.to_socket_addrs()? {
        let mut stream = match TcpStream::connect_timeout(&address, left()?) {
            Ok(stream) => stream,
            Err(error) => {
                last = error;
                continue;
            }
        };
        stream.set_write_timeout(Some(left()?))?;
        stream.write_all(&hello())?;
        let mut header = [0; HEADER];
        read(&mut stream, &mut header, left)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        if !(HEADER + PREFIX..REPLY_MAX).contains(&length) {
            return Err(not_mongodb());
        }
        let mut body = vec![0; length - HEADER];
        read(&mut stream, &mut body, left)?;
        return describe(body.split_off(PREFIX));
    }
    Err(last)
}

fn read(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    left: impl Fn() -> io::Result<Duration>,
) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(rest)? {
            0 => return Err(not_mongodb()),
            count => filled += count,
        }
    }
    Ok(())
}

fn hello() -> Vec<u8> {
    let mut command = Builder::new();
    command.append("hello", 1).append("$db", "admin");
    let command = command.finish();
    let mut message = Vec::new();
    let length = HEADER + PREFIX + command.bytes().len();
    for word in [length as u32, 1, 0, OP_MSG, 0] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(command.bytes());
    message
}

fn describe(reply: Vec<u8>) -> io::Result<String> {
    validate(&reply).map_err(|_| not_mongodb())?;
    let reply = DocumentBuf::from_valid(reply);
    let reply = reply.view();
    if reply.get("ok").and_then(|ok| ok.as_i64()) != Some(1) {
        let message = reply.get("errmsg").and_then(|value| value.as_str()).unwrap_or("no reason given");
        return Err(io::Error::other(format!("it refused hello: {message}")));
    }
    let set = reply.get("setName").and_then(|value| value.as_str());
    let primary = reply.get("isWritablePrimary").and_then(|value| value.as_bool()) == Some(true);
    Ok(match (set, primary) {
        (Some(set), true) => format!("primary of {set}"),
        (Some(set), false) => format!("member of {set}"),
        (None, _) => "answers".to_string(),
    })
}

fn not_mongodb() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what answers doesn't speak MongoDB's protocol")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn connection_strings_name_hosts() {
        for (uri, expected) in [
            ("mongodb://a", "a:27017"),
            ("a:5", "a:5"),
            ("mongodb://me:p%40ss@a:5,b/db?replicaSet=rs0", "a:5 b:27017"),
            ("mongodb://[::1]/?directConnection=true", "[::1]:27017"),
            ("mongodb://[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(hosts(uri).unwrap().join(" "), expected, "{uri}");
        }
        for (uri, part) in
            [("mongodb+srv://a/", "DNS"), ("mongodb://a/?x=1&tls=true", "TLS"), ("mongodb:///", "no host")]
        {
            assert!(hosts(uri).unwrap_err().contains(part), "{uri}");
        }
    }

    #[test]
    fn what_does_not_answer_or_not_well_is_told() {
        let options = |uri: String| PingOptions { uri, timeout: 300, quiet: false, help: None };
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

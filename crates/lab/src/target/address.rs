//! Addresses of a target: a connection test, a check for this machine, and connection strings without passwords.

use mongodb::options::ServerAddress;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::Host;

/// Default ports of connection strings.
const MONGO_PORT: u16 = 27017;
const POSTGRES_PORT: u16 = 5432;

/// A socket of this machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Local {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Returns the addresses of a PostgreSQL connection string.
pub(super) fn of_postgres(config: &tokio_postgres::Config) -> Vec<ServerAddress> {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate();
    let address = |(index, host): (usize, &Host)| {
        // A single port applies to all hosts without a port.
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(POSTGRES_PORT);
        match host {
            Host::Tcp(name) => ServerAddress::Tcp { host: name.clone(), port: Some(port) },
            Host::Unix(directory) => ServerAddress::Unix { path: directory.join(format!(".s.PGSQL.{port}")) },
        }
    };
    hosts.map(address).collect()
}

/// Returns once one address accepts connections. The error is that of the last address.
pub(super) async fn reach(addresses: &[ServerAddress], within: Duration) -> Result<(), String> {
    let mut failed = "its connection string has no host".to_string();
    for address in addresses {
        let attempt = async {
            match address {
                ServerAddress::Tcp { host, port } => {
                    TcpStream::connect((host.as_str(), port.unwrap_or(MONGO_PORT))).await.map(drop)
                }
                ServerAddress::Unix { path } => UnixStream::connect(path).await.map(drop),
                _ => Err(std::io::ErrorKind::Unsupported.into()),
            }
        };
        match tokio::time::timeout(within, attempt).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => failed = format!("cannot connect to {address}: {error}"),
            Err(_) => failed = format!("cannot connect to {address}: no reply within {} s", within.as_secs()),
        }
    }
    Err(failed)
}

/// Returns the addresses of this machine.
pub(super) fn local(addresses: &[ServerAddress]) -> Vec<Local> {
    let mut local = Vec::new();
    for address in addresses {
        match address {
            ServerAddress::Unix { path } => local.push(Local::Unix(path.clone())),
            ServerAddress::Tcp { host, port } => {
                let address = (host.as_str(), port.unwrap_or(MONGO_PORT));
                let resolved = address.to_socket_addrs().into_iter().flatten();
                local.extend(resolved.filter(|socket| is_ours(socket.ip())).map(Local::Tcp));
            }
            _ => {}
        }
    }
    local
}

/// Returns true for an address of this machine: only such an address can be bound.
fn is_ours(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns a connection string without user and password.
pub(crate) fn without_secrets(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_string() };
    // A password contains no unescaped '/' or '@', so the last '@' before the path ends it.
    let path = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(path);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (before, query) = tail.split_once('?').map_or((tail, None), |(before, query)| (before, Some(query)));
    const SECRET: [&str; 2] = ["password=", "tlscertificatekeyfilepassword="];
    let secret = |pair: &&str| !SECRET.iter().any(|name| pair.to_ascii_lowercase().starts_with(name));
    let options = query.map(|query| query.split('&').filter(secret).collect::<Vec<_>>().join("&"));
    let query = options
        .filter(|options| !options.is_empty())
        .map(|options| format!("?{options}"))
        .unwrap_or_default();
    format!("{scheme}://{host}{before}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_printed() {
        for (given, printed) in [
            ("mongodb://u:p%40@h:1/?w=1", "mongodb://h:1/?w=1"),
            ("mongodb://h/", "mongodb://h/"),
            ("mongodb://h/?tls=true&tlsCertificateKeyFilePassword=x", "mongodb://h/?tls=true"),
            ("postgresql://u:p@h/db?password=x&sslmode=disable", "postgresql://h/db?sslmode=disable"),
            ("postgresql:///db?host=/tmp&password=x", "postgresql:///db?host=/tmp"),
        ] {
            assert_eq!(without_secrets(given), printed);
        }
    }

    #[test]
    fn ports_of_postgres_are_shared_or_each_hosts_own() {
        let config: tokio_postgres::Config = "postgresql://a:1,b:2/x".parse().unwrap();
        let tcp = |host: &str, port| ServerAddress::Tcp { host: host.to_string(), port: Some(port) };
        assert_eq!(of_postgres(&config), [tcp("a", 1), tcp("b", 2)]);
        let config: tokio_postgres::Config = "host=/run,b port=7".parse().unwrap();
        assert_eq!(
            of_postgres(&config),
            [ServerAddress::Unix { path: "/run/.s.PGSQL.7".into() }, tcp("b", 7)]
        );
        let config: tokio_postgres::Config = "postgresql://a/x".parse().unwrap();
        assert_eq!(of_postgres(&config), [tcp("a", 5432)]);
    }

    #[test]
    fn loopback_is_local_and_others_are_not() {
        // 192.0.2.0/24 is reserved for documentation: no machine has it.
        let address = |host: &str, port| ServerAddress::Tcp { host: host.to_string(), port: Some(port) };
        let addresses = [address("192.0.2.7", 1), address("127.0.0.1", 2)];
        assert_eq!(local(&addresses), [Local::Tcp(([127, 0, 0, 1], 2).into())]);
    }
}

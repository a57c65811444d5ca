//! The address by which clients of a replica set reach this server.

use crate::state::server::Server;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};

/// Returns the server's address: the advertised address, the address in the set's configuration, or
/// the address that the client connected to.
pub(crate) fn own_address(server: &Server, local: SocketAddr) -> String {
    if let Some(advertised) = &server.settings.advertise {
        return advertised.clone();
    }
    let named = server.set().and_then(|set| set.config().host);
    // After a restart on another port the configured address is wrong.
    named.filter(|host| port_of(host) == Some(local.port())).unwrap_or_else(|| connect_address(local))
}

/// Formats an address for clients.
pub(crate) fn connect_address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Returns true if a configured host and port belong to this server. The name lookup may wait for
/// the network.
pub(crate) fn is_own(server: &Server, local: SocketAddr, host: &str) -> bool {
    if host.eq_ignore_ascii_case(&own_address(server, local)) {
        return true;
    }
    if port_of(host) != Some(local.port()) {
        return false;
    }
    let mut own = false;
    crate::process::blocking::in_place(&mut || {
        // Only an address of this machine can be bound.
        let addresses = host.to_socket_addrs().into_iter().flatten();
        own = addresses.into_iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok());
    });
    own
}

fn port_of(host: &str) -> Option<u16> {
    host.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

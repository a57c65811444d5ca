//! The address by which the clients of a replica set know this server.

use crate::server::Server;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};

/// The address that clients must know this server by: what it advertises, else what the set was initiated
/// with, else what they dialled.
pub(crate) fn own_address(server: &Server, local: SocketAddr) -> String {
    if let Some(advertised) = &server.settings.advertise {
        return advertised.clone();
    }
    let named = server.set().and_then(|set| set.config().host);
    // A server that has been started on another port isn't reached by the old one.
    named.filter(|host| port_of(host) == Some(local.port())).unwrap_or_else(|| dialled(local))
}

/// The address as clients write it.
pub(crate) fn dialled(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Whether a host and port, as a configuration names them, are this server's. Looks the name up, which may wait for
/// the network.
pub(crate) fn is_own(server: &Server, local: SocketAddr, host: &str) -> bool {
    if host.eq_ignore_ascii_case(&own_address(server, local)) {
        return true;
    }
    if port_of(host) != Some(local.port()) {
        return false;
    }
    let mut own = false;
    crate::blocking::in_place(&mut || {
        // Only an address of this machine can be bound.
        let addresses = host.to_socket_addrs().into_iter().flatten();
        own = addresses.into_iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok());
    });
    own
}

fn port_of(host: &str) -> Option<u16> {
    host.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

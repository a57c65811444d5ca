//! The topology that clients see: the replica set, and the address by which they reach this server.

use crate::state::replica_set::ReplicaSet;
use crate::state::set_config::SetConfig;
use crate::state::settings::Settings;
use base::bson::{Builder, ObjectId};
use base::{Error, Result, err};
use database::{Database, EventCount};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::{Arc, OnceLock};

/// Topology state of hello, with the replica set.
pub(crate) struct TopologyState {
    /// Address in hello, instead of the address that the client connected to.
    advertise: Option<String>,
    /// Replica set of one member, set from the start or when it is initiated.
    set: OnceLock<ReplicaSet>,
    /// Identifies this run of the server.
    pub(crate) process_id: ObjectId,
    /// Counts changes of the content of hello.
    pub(crate) changed: Arc<EventCount>,
}

impl TopologyState {
    /// Opens the set with its stored configuration, unless the server waits for `replSetInitiate`.
    pub(crate) fn open(settings: &Settings, process_id: ObjectId, database: &Arc<Database>) -> TopologyState {
        let changed: Arc<EventCount> = Arc::default();
        let open =
            |name: &String| ReplicaSet::open(name, settings.awaits_initiation, database, changed.clone());
        let set = settings.replica_set.as_ref().and_then(open);
        TopologyState {
            advertise: settings.advertise.clone(),
            set: set.map_or_else(OnceLock::new, OnceLock::from),
            process_id,
            changed,
        }
    }

    /// Returns the replica set once it is initiated.
    pub(crate) fn set(&self) -> Option<&ReplicaSet> {
        self.set.get()
    }

    /// Initiates the set. The member becomes its primary.
    ///
    /// Errors: AlreadyInitialized; errors of the write.
    pub(crate) fn initiate(
        &self,
        name: &str,
        config: SetConfig,
        host: &str,
        database: &Arc<Database>,
    ) -> Result<()> {
        let already = || -> Error { err!(AlreadyInitialized, "already initialized") };
        if self.set().is_some() {
            return Err(already());
        }
        let set = ReplicaSet::begin(name, config, 0, database, self.changed.clone());
        self.set.set(set).map_err(|_| already())?;
        match self.set() {
            Some(set) => set.store(&set.config(), host, database),
            None => Ok(()),
        }
    }

    /// Appends `topologyVersion`, by which clients order replies.
    pub(crate) fn append_version(&self, reply: &mut Builder) {
        reply.begin_document(c"topologyVersion").append(c"processId", self.process_id);
        reply.append(c"counter", self.changed.read() as i64).end();
    }

    /// Returns the server's address: the advertised address, the address in the set's configuration, or
    /// the address that the client connected to.
    pub(crate) fn own_address(&self, local: SocketAddr) -> String {
        if let Some(advertised) = &self.advertise {
            return advertised.clone();
        }
        let named = self.set().and_then(|set| set.config().host);
        // After a restart on another port the configured address is wrong.
        named.filter(|host| port_of(host) == Some(local.port())).unwrap_or_else(|| connect_address(local))
    }

    /// Returns true if a configured host and port belong to this server. The name lookup may wait for
    /// the network.
    pub(crate) fn is_own(&self, local: SocketAddr, host: &str) -> bool {
        if host.eq_ignore_ascii_case(&self.own_address(local)) {
            return true;
        }
        if port_of(host) != Some(local.port()) {
            return false;
        }
        let mut is_own = false;
        crate::process::blocking::in_place(&mut || {
            // Only an address of this machine can be bound.
            let addresses = host.to_socket_addrs().into_iter().flatten();
            is_own = addresses.into_iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok());
        });
        is_own
    }
}

/// Formats an address for clients.
pub(crate) fn connect_address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

fn port_of(host: &str) -> Option<u16> {
    host.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

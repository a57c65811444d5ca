//! The replica set of one member: configuration, terms, the member's state, and the topology that clients see.
//!
//! The set exists from the server's start with an elected primary. In place of mongod it begins
//! with `replSetInitiate`. The configuration is stored in `local.system.replset`, as in MongoDB,
//! and persistent engines keep it over restarts. Each start and each end of a stepDown is an
//! election with a new term.

use crate::state::set_config::SetConfig;
use crate::state::settings::Settings;
use crate::state::system_collections;
use base::bson::{Builder, Document, ObjectId};
use base::{Error, Namespace, Result, bail, err};
use database::{Database, EventCount, time};
use parking_lot::Mutex;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// State of a replica set.
pub(crate) struct ReplicaSet {
    /// Name of the set.
    pub(crate) name: String,
    config: Mutex<SetConfig>,
    election_state: Mutex<ElectionState>,
    /// True if the member is the primary. Each command reads it.
    primary: AtomicBool,
    /// Counts changes of the `hello` reply.
    changed: Arc<EventCount>,
}

/// Result of the last election, and the delay of the next.
#[derive(Clone, Copy)]
pub(crate) struct ElectionState {
    /// Term of the election.
    pub(crate) term: i64,
    /// Cluster time of the election, and its time in milliseconds since 1970.
    pub(crate) elected: (u64, i64),
    /// End of a stepDown or freeze.
    until: Option<Instant>,
}

impl ReplicaSet {
    /// Creates a set with this configuration, whose member is primary in the term after `latest_connection`.
    /// Changes of the `hello` reply advance `changed`.
    pub(crate) fn begin(
        name: &str,
        mut config: SetConfig,
        latest_connection: i64,
        database: &Database,
        changed: Arc<EventCount>,
    ) -> ReplicaSet {
        let elected = (database.cluster_time(), database.now_millis());
        config.term = begin_term(database, latest_connection);
        let election_state = ElectionState { term: config.term, elected, until: None };
        ReplicaSet {
            name: name.to_string(),
            config: Mutex::new(config),
            election_state: Mutex::new(election_state),
            primary: AtomicBool::new(true),
            changed,
        }
    }

    /// Opens the set with the stored configuration in a new term. `None` if the server waits for
    /// `replSetInitiate`.
    pub(crate) fn open(
        name: &str,
        awaits_initiation: bool,
        database: &Arc<Database>,
        changed: Arc<EventCount>,
    ) -> Option<ReplicaSet> {
        let stored = stored(name, awaits_initiation, database).unwrap_or_else(|error| {
            log::warn!("reading the configuration of replica set {name}: {error}");
            None
        });
        let (config, latest_connection) = match stored {
            Some(stored) => (stored.clone(), stored.term),
            None if awaits_initiation => {
                warn_of_other_set(name, database);
                return None;
            }
            None => (SetConfig::new(database.new_object_id()), 0),
        };
        Some(ReplicaSet::begin(name, config, latest_connection, database, changed))
    }

    pub(crate) fn config(&self) -> SetConfig {
        self.config.lock().clone()
    }

    /// Returns the last election.
    pub(crate) fn election_state(&self) -> ElectionState {
        *self.election_state.lock()
    }

    /// Returns the present term.
    pub(crate) fn term(&self) -> i64 {
        self.election_state.lock().term
    }

    /// Returns the id of the last election: the maximum timestamp, then the term. Clients order
    /// primaries by it.
    pub(crate) fn election_id(&self) -> ObjectId {
        let [high @ .., b5, b6, b7] = self.term().to_be_bytes();
        ObjectId::from_parts(0x7FFF_FFFF, high, u32::from_be_bytes([0, b5, b6, b7]))
    }

    /// Returns true if the member is the primary. After the end of a stepDown this call elects it.
    pub(crate) fn is_primary(&self, database: &Database) -> bool {
        if self.primary.load(Ordering::Acquire) {
            return true;
        }
        let mut election_state = self.election_state.lock();
        if election_state.until.is_some_and(|until| time::now() < until) {
            return false;
        }
        election_state.until = None;
        election_state.term = begin_term(database, election_state.term);
        election_state.elected = (database.cluster_time(), database.now_millis());
        let term = election_state.term;
        drop(election_state);
        self.config.lock().term = term;
        self.primary.store(true, Ordering::Release);
        log::info!("replica set {}: primary again, in term {term}", self.name);
        self.changed.advance();
        true
    }

    /// Makes the member a secondary for this time.
    ///
    /// Errors: NotWritablePrimary if it is already a secondary.
    pub(crate) fn step_down(&self, time: Duration) -> Result<()> {
        let mut election_state = self.election_state.lock();
        if !self.primary.swap(false, Ordering::AcqRel) {
            bail!(NotWritablePrimary, "not primary so can't step down");
        }
        election_state.until = Some(time::now() + time);
        drop(election_state);
        log::info!("replica set {}: secondary for {} s", self.name, time.as_secs());
        self.changed.advance();
        Ok(())
    }

    /// Delays a secondary's election by this time from now; zero ends the delay.
    ///
    /// Errors: NotSecondary.
    pub(crate) fn freeze(&self, database: &Database, time: Duration) -> Result<()> {
        let mut election_state = self.election_state.lock();
        if self.primary.load(Ordering::Acquire) {
            bail!(NotSecondary, "cannot freeze node when primary or running for election. state: Primary");
        }
        let until = time::now() + time;
        election_state.until = match time.is_zero() {
            true => None,
            false => election_state.until.max(Some(until)),
        };
        drop(election_state);
        self.is_primary(database);
        Ok(())
    }

    /// Replaces the configuration and wakes waiting hellos.
    pub(crate) fn configure(&self, config: SetConfig) {
        *self.config.lock() = config;
        self.changed.advance();
    }

    /// Stores a configuration with the member's address.
    ///
    /// Errors: those of the write.
    pub(crate) fn store(&self, config: &SetConfig, host: &str, database: &Arc<Database>) -> Result<()> {
        let mut document = Builder::new();
        config.append_to(&self.name, host, &mut document);
        system_collections::replace(database, &collection()?, &self.name, document.finish().view())
    }
}

/// Begins the term after this one, or after a later term in the oplog, and returns its number. The
/// oplog records the term for later processes.
fn begin_term(database: &Database, latest_connection: i64) -> i64 {
    let term = database.next_term(u32::try_from(latest_connection).unwrap_or_default());
    if let Err(error) = database.begin_term(term) {
        log::error!("logging the beginning of term {term}: {error}");
    }
    i64::from(term)
}

fn stored(name: &str, awaits_initiation: bool, database: &Arc<Database>) -> Result<Option<SetConfig>> {
    let stored = system_collections::find_by_id(database, &collection()?, name)?;
    let stored = stored.map(|stored| SetConfig::stored(stored.view())).transpose()?;
    Ok(stored.map(|(mut config, host)| {
        // Clients of a set without `replSetInitiate` know it by the address that they connected
        // to.
        config.host = host.filter(|_| awaits_initiation);
        config
    }))
}

/// Warns if the data has the configuration of a set with another name.
fn warn_of_other_set(name: &str, database: &Arc<Database>) {
    if let Some(stored) = any_stored_name(database) {
        log::warn!(
            id = 21406, c = "REPL", localConfigSetName = stored.as_str(), commandLineSetName = name;
            "Local replica set configuration document set name differs from command line set name; waiting for \
             replSetInitiate"
        );
    }
}

/// Returns the name of a set whose configuration is stored.
fn any_stored_name(database: &Arc<Database>) -> Option<String> {
    let found = system_collections::find(database, &collection().ok()?, Document::EMPTY, 1).ok()?;
    found.first()?.view().get("_id")?.as_str().map(str::to_string)
}

/// Returns the collection of the configuration.
fn collection() -> Result<Namespace> {
    Namespace::new("local", "system.replset")
}

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
        crate::process::blocking::in_place(|| {
            // Only an address of this machine can be bound.
            let addresses = host.to_socket_addrs().into_iter().flatten();
            addresses.into_iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
        })
    }
}

/// Formats an address for clients.
pub(crate) fn connect_address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

fn port_of(host: &str) -> Option<u16> {
    host.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_found_under_its_own_name() {
        let engine = Arc::new(storage::MemoryEngine::new());
        let database = Database::open(engine, Arc::new(database::SystemClock), 1).unwrap();
        let open = |name| ReplicaSet::open(name, true, &database, Arc::default());
        assert!(open("rs0").is_none());
        assert_eq!(any_stored_name(&database), None);
        let set = ReplicaSet::open("rs0", false, &database, Arc::default()).unwrap();
        set.store(&set.config(), "localhost:27017", &database).unwrap();
        assert!(open("rs0").is_some() && open("other").is_none());
        assert_eq!(any_stored_name(&database).as_deref(), Some("rs0"));
    }
}

//! The replica set of one member: configuration, terms, and the member's state.
//!
//! The set exists from the server's start with an elected primary. In place of mongod it begins
//! with `replSetInitiate`. The configuration is stored in `local.system.replset`, as in MongoDB,
//! and persistent engines keep it over restarts. Each start and each end of a stepDown is an
//! election with a new term.

use crate::server::Server;
use crate::set_config::SetConfig;
use crate::system_collections;
use base::bson::{Builder, ObjectId};
use base::{Namespace, Result, err};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// State of a replica set.
pub(crate) struct ReplicaSet {
    /// Name of the set.
    pub(crate) name: String,
    config: Mutex<SetConfig>,
    standing: Mutex<Standing>,
    /// True if the member is the primary. Each command reads it.
    primary: AtomicBool,
}

/// Result of the last election, and the delay of the next.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    /// Term of the election.
    pub(crate) term: i64,
    /// Cluster time of the election, and its time in milliseconds since 1970.
    pub(crate) elected: (u64, i64),
    /// End of a stepDown or freeze.
    until: Option<Instant>,
}

impl ReplicaSet {
    /// Creates a set with this configuration. Its member is the primary of the configuration's
    /// term.
    pub(crate) fn new(name: String, config: SetConfig, now: (u64, i64)) -> ReplicaSet {
        let standing = Standing { term: config.term, elected: now, until: None };
        let (config, standing) = (Mutex::new(config), Mutex::new(standing));
        ReplicaSet { name, config, standing, primary: AtomicBool::new(true) }
    }

    pub(crate) fn config(&self) -> SetConfig {
        self.config.lock().clone()
    }

    /// Returns the last election.
    pub(crate) fn standing(&self) -> Standing {
        *self.standing.lock()
    }

    /// Returns the present term.
    pub(crate) fn term(&self) -> i64 {
        self.standing.lock().term
    }

    /// Returns the id of the last election: the maximum timestamp, then the term. Clients order
    /// primaries by it.
    pub(crate) fn election_id(&self) -> ObjectId {
        let [high @ .., b5, b6, b7] = self.term().to_be_bytes();
        ObjectId::from_parts(0x7FFF_FFFF, high, u32::from_be_bytes([0, b5, b6, b7]))
    }

    /// Returns true if the member is the primary. After the end of a stepDown this call elects it.
    pub(crate) fn is_primary(&self, server: &Server) -> bool {
        if self.primary.load(Ordering::Acquire) {
            return true;
        }
        let mut standing = self.standing.lock();
        if standing.until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        standing.until = None;
        standing.term = server.begin_term(standing.term);
        standing.elected = (server.cluster_time(), server.database.now_millis());
        let term = standing.term;
        drop(standing);
        self.config.lock().term = term;
        self.primary.store(true, Ordering::Release);
        log::info!("replica set {}: primary again, in term {term}", self.name);
        server.topology.changed.raise();
        true
    }

    /// Makes the member a secondary for this time.
    ///
    /// Errors: NotWritablePrimary if it is already a secondary.
    pub(crate) fn step_down(&self, server: &Server, time: Duration) -> Result<()> {
        let mut standing = self.standing.lock();
        if !self.primary.swap(false, Ordering::AcqRel) {
            return Err(err!(NotWritablePrimary, "not primary so can't step down"));
        }
        standing.until = Some(Instant::now() + time);
        drop(standing);
        log::info!("replica set {}: secondary for {} s", self.name, time.as_secs());
        server.topology.changed.raise();
        Ok(())
    }

    /// Delays a secondary's election by this time from now; zero ends the delay.
    ///
    /// Errors: NotSecondary.
    pub(crate) fn freeze(&self, server: &Server, time: Duration) -> Result<()> {
        let mut standing = self.standing.lock();
        if self.primary.load(Ordering::Acquire) {
            return Err(err!(
                NotSecondary,
                "cannot freeze node when primary or running for election. state: Primary"
            ));
        }
        let until = Instant::now() + time;
        standing.until = match time.is_zero() {
            true => None,
            false => standing.until.max(Some(until)),
        };
        drop(standing);
        self.is_primary(server);
        Ok(())
    }

    /// Replaces the configuration and wakes waiting hellos.
    pub(crate) fn configure(&self, server: &Server, config: SetConfig) {
        *self.config.lock() = config;
        server.topology.changed.raise();
    }
}

impl Server {
    /// Loads the settings of the set that an earlier process stored.
    pub(crate) fn load_set_settings(&self) {
        self.default_concerns.load(&self.database);
        self.cluster_parameters.load(&self.database);
        self.load_user_write_block();
    }

    /// Opens the set with the stored configuration in a new term. `None` if the server waits for
    /// `replSetInitiate`.
    pub(crate) fn open_set(&self, name: &str) -> Option<ReplicaSet> {
        let now = (self.cluster_time(), self.database.now_millis());
        let stored = self.stored_set_config(name).unwrap_or_else(|error| {
            log::warn!("reading the configuration of replica set {name}: {error}");
            None
        });
        let (mut config, latest) = match stored {
            Some(stored) => (stored.clone(), stored.term),
            None if self.settings.awaits_initiation => return None,
            None => (SetConfig::new(self.database.new_object_id()), 0),
        };
        config.term = self.begin_term(latest);
        Some(ReplicaSet::new(name.to_string(), config, now))
    }

    /// Begins and returns the next term, after this term or a later term in the oplog. An oplog
    /// entry records it, so that a later process continues from it.
    fn begin_term(&self, latest: i64) -> i64 {
        let term = self.database.next_term(u32::try_from(latest).unwrap_or_default());
        if let Err(error) = self.database.begin_term(term) {
            log::error!("logging the beginning of term {term}: {error}");
        }
        i64::from(term)
    }

    fn stored_set_config(&self, name: &str) -> Result<Option<SetConfig>> {
        let stored = system_collections::find_by_id(&self.database, &collection()?, name)?;
        let stored = stored.map(|stored| SetConfig::stored(stored.view())).transpose()?;
        Ok(stored.map(|(mut config, host)| {
            // Clients of a set without `replSetInitiate` know it by the address that they connected
            // to.
            config.host = host.filter(|_| self.settings.awaits_initiation);
            config
        }))
    }

    /// Initiates the set. The member becomes its primary.
    ///
    /// Errors: AlreadyInitialized; errors of the write.
    pub(crate) fn initiate(&self, name: &str, mut config: SetConfig, host: &str) -> Result<()> {
        let now = (self.cluster_time(), self.database.now_millis());
        if self.set.get().is_some() {
            return Err(err!(AlreadyInitialized, "already initialized"));
        }
        config.term = self.begin_term(0);
        let set = ReplicaSet::new(name.to_string(), config.clone(), now);
        if self.set.set(set).is_err() {
            return Err(err!(AlreadyInitialized, "already initialized"));
        }
        if let Some(set) = self.set() {
            self.store_set_config(set, &config, host)?;
        }
        self.load_set_settings();
        self.topology.changed.raise();
        log::info!(
            id = 21331, c = "REPL", set = name;
            "Transition to primary complete; database writes are now permitted"
        );
        Ok(())
    }

    /// Stores the configuration with the member's address.
    ///
    /// Errors: errors of the write.
    pub(crate) fn store_set_config(&self, set: &ReplicaSet, config: &SetConfig, host: &str) -> Result<()> {
        let mut document = Builder::new();
        config.append_to(&set.name, host, &mut document);
        system_collections::replace(&self.database, &collection()?, &set.name, document.finish().view())
    }
}

/// Returns the collection of the configuration.
fn collection() -> Result<Namespace> {
    Namespace::new("local", "system.replset")
}

//! State of a connection between its requests, and of the network: threads, requests in progress, the end of the
//! server.

use crate::access::Identity;
use crate::observe::activity::Activity;
use crate::observe::operations::DatabaseOperations;
use crate::protocol::names::UserName;
use crate::session::Session;
use crate::state::auth::Auth;
use crate::state::parameters::Parameters;
use crate::state::tls::ReportedErrors;
use database::EventCount;
use rustls::ProtocolVersion;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::num::NonZeroI64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use wire::busy_poll::LatestConnection;
use wire::header::MAX_MESSAGE_SIZE;
use wire::scram::{Credential, Mechanism, Server as Scram};

/// State of a connection between its requests.
pub(crate) struct ConnectionState {
    /// Current operation, shared with the registry.
    pub(crate) activity: Arc<Activity>,
    /// Server address that the client connected to.
    pub(crate) local: SocketAddr,
    /// Authenticated user.
    pub(crate) identity: Option<Arc<Identity>>,
    /// SASL conversation in progress.
    pub(crate) conversation: Option<Box<Conversation>>,
    /// True for the server's internal connections, which have all privileges.
    pub(crate) is_system: bool,
    /// True for a command that another command runs. The reply of the other command waits for its commits.
    pub(crate) is_inner: bool,
    /// True while its request is counted among the [`Network::active_threads`].
    pub(crate) is_on_network_thread: bool,
    /// TLS version and certificate of an encrypted connection.
    pub(crate) peer: Option<Box<Peer>>,
    /// Last used session, so that repeated use needs no lookup.
    pub(crate) session: Option<Arc<Session>>,
    /// Counters of the last used database.
    pub(crate) counted: Option<Arc<DatabaseOperations>>,
    /// True behind a load balancer (`loadBalanced` in hello). Its driver continues a cursor or a transaction on this
    /// connection only, so both end after the connection.
    pub(crate) is_load_balanced: bool,
    /// Last cursor that stayed open, if the connection is load balanced.
    pub(crate) cursor: Option<NonZeroI64>,
}

/// SASL conversation in progress.
pub(crate) struct Conversation {
    /// Mechanism that the client chose.
    pub(crate) mechanism: Mechanism,
    /// Requested user.
    pub(crate) user: UserName,
    /// True if the login began inside a hello.
    pub(crate) is_speculative: bool,
    /// True if the client skips the empty last message (`skipEmptyExchange`).
    pub(crate) skips_empty: bool,
    /// Next expected message.
    pub(crate) step: Step,
}

/// Next message that a conversation expects from the client.
pub(crate) enum Step {
    /// Waits for the client's proof. An unknown user has no credential.
    Proof(Box<Scram>, Option<Credential>),
    /// The proof was valid. Waits for the client's empty message.
    Empty(Credential),
}

/// Facts of a TLS handshake.
pub(crate) struct Peer {
    pub(crate) protocol: Option<ProtocolVersion>,
    /// Subject of the client's verified certificate.
    pub(crate) subject: Option<String>,
}

impl Peer {
    /// Reads the facts of a handshake.
    pub(crate) fn new(protocol: Option<ProtocolVersion>, certificate: Option<&CertificateDer<'_>>) -> Peer {
        let certificate_info =
            certificate.and_then(|certificate| wire::certificates::certificate_info(certificate).ok());
        let subject = certificate_info.map(|certificate_info| certificate_info.subject);
        log::debug!(
            c = "NETWORK";
            "encrypted by {protocol:?} for {}",
            subject.as_deref().unwrap_or("a client without a certificate")
        );
        Peer { protocol, subject }
    }
}

impl ConnectionState {
    /// Creates the state of a new connection.
    pub(crate) fn new(activity: Arc<Activity>, local: SocketAddr) -> ConnectionState {
        ConnectionState {
            activity,
            local,
            identity: None,
            conversation: None,
            is_system: false,
            is_inner: false,
            is_on_network_thread: false,
            peer: None,
            session: None,
            counted: None,
            is_load_balanced: false,
            cursor: None,
        }
    }

    /// Ends the count of its request among the active network threads: its thread hands over its other connections, or
    /// the request has ended.
    pub(crate) fn leave_network_thread(&mut self, network: &Network) {
        if std::mem::take(&mut self.is_on_network_thread) {
            network.active_threads.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if access control is on and the connection has no user.
    pub(crate) fn is_unauthenticated(&self, auth: &Auth) -> bool {
        self.identity.is_none() && self.is_access_controlled(auth)
    }

    /// Returns true if access control applies to this connection.
    pub(crate) fn is_access_controlled(&self, auth: &Auth) -> bool {
        auth.enabled() && !self.is_system
    }

    /// Returns the maximum message size, which is lower before authentication.
    pub(crate) fn largest_message(&self, auth: &Auth, parameters: &Parameters) -> usize {
        match self.is_unauthenticated(auth) {
            true => parameters.unauthenticated_message_max(),
            false => MAX_MESSAGE_SIZE,
        }
    }
}

/// State of the network.
pub(crate) struct Network {
    /// Connection of the latest request.
    pub(crate) latest_connection: LatestConnection,
    /// Addresses and reasons that the log has already reported.
    pub(crate) reported: ReportedErrors,
    /// Network threads that handle a request.
    pub(crate) active_threads: AtomicUsize,
    /// Dedicated threads.
    #[cfg(unix)]
    pub(crate) dedicated_threads: crate::process::dedicated_threads::Threads,
    /// Requests in progress, from frame to reply.
    pub(crate) active_requests: AtomicUsize,
    /// Set when the server accepts no more requests.
    stopping: AtomicBool,
    /// Advances to stop the server.
    pub(crate) stop: Arc<EventCount>,
    message_ids: AtomicU64,
}

impl Network {
    /// Creates the state for a server with a shared store (`is_shared`) or with local data.
    pub(crate) fn new(is_shared: bool) -> Network {
        #[cfg(not(unix))]
        let _ = is_shared;
        Network {
            latest_connection: LatestConnection::default(),
            reported: ReportedErrors::default(),
            active_threads: AtomicUsize::new(0),
            #[cfg(unix)]
            dedicated_threads: crate::process::dedicated_threads::Threads::new(is_shared),
            active_requests: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stop: Arc::default(),
            message_ids: AtomicU64::new(0),
        }
    }

    /// Accepts no more requests.
    pub(crate) fn refuse_requests(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns true if the server accepts no more requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns the id of the next message.
    pub(crate) fn next_message_id(&self) -> i32 {
        self.message_ids.fetch_add(1, Ordering::Relaxed) as i32
    }
}

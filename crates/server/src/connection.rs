//! What a connection remembers between its requests.

use crate::activity::Activity;
use crate::auth::{Conversation, Identity};
use crate::operations::DatabaseOperations;
use crate::server::Server;
use crate::session::Session;
use base::bson::{Document, DocumentBuf};
use rustls::ProtocolVersion;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use wire::header::MAX_MESSAGE_SIZE;

/// What a connection remembers between its requests.
pub(crate) struct ConnectionState {
    /// What it runs now, shared with the registry.
    pub(crate) activity: Arc<Activity>,
    /// The address that the client dialled.
    pub(crate) local: SocketAddr,
    /// Who has logged in.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The conversation of somebody who is about to.
    pub(crate) conversation: Option<Box<Conversation>>,
    /// Whether it is the server itself that asks: it may do everything.
    pub(crate) is_system: bool,
    /// How the connection is encrypted, if it is, and for whom.
    pub(crate) peer: Option<Box<Peer>>,
    /// What the client said of itself in the first hello.
    pub(crate) metadata: Option<Box<DocumentBuf>>,
    /// The session used last, so that using it again needs no look-up.
    pub(crate) session: Option<Arc<Session>>,
    /// What is counted of the database used last.
    pub(crate) counted: Option<Arc<DatabaseOperations>>,
}

/// What TLS tells of the other end.
pub(crate) struct Peer {
    /// The protocol's version.
    pub(crate) protocol: Option<ProtocolVersion>,
    /// Whom the client's certificate is for, if it has shown one, which has been checked.
    pub(crate) subject: Option<String>,
}

impl Peer {
    /// What a handshake has told.
    pub(crate) fn new(protocol: Option<ProtocolVersion>, certificate: Option<&CertificateDer<'_>>) -> Peer {
        let facts = certificate.and_then(|certificate| wire::certificates::facts(certificate).ok());
        let subject = facts.map(|facts| facts.subject);
        log::debug!(
            c = "NETWORK";
            "encrypted by {protocol:?} for {}",
            subject.as_deref().unwrap_or("somebody without a certificate")
        );
        Peer { protocol, subject }
    }
}

impl ConnectionState {
    /// A new connection.
    pub(crate) fn new(activity: Arc<Activity>, local: SocketAddr) -> ConnectionState {
        ConnectionState {
            activity,
            local,
            identity: None,
            conversation: None,
            is_system: false,
            peer: None,
            metadata: None,
            session: None,
            counted: None,
        }
    }

    /// Whether nobody has logged in here who would have to.
    pub(crate) fn is_stranger(&self, server: &Server) -> bool {
        self.identity.is_none() && server.auth.enabled() && !self.is_system
    }

    /// How large a message may be: little is taken from those who haven't logged in.
    pub(crate) fn largest_message(&self, server: &Server) -> usize {
        match self.is_stranger(server) {
            true => server.parameters.stranger_message_max(),
            false => MAX_MESSAGE_SIZE,
        }
    }

    /// The application's name from the client's metadata, empty where it gave none.
    pub(crate) fn app_name(&self) -> &str {
        self.metadata.as_ref().map_or("", |metadata| app_name(metadata.view()))
    }
}

/// The application's name in a client's metadata, empty where there is none.
pub(crate) fn app_name(metadata: Document<'_>) -> &str {
    let application = metadata.get("application").and_then(|value| value.as_document());
    application.and_then(|document| document.get("name")).and_then(|name| name.as_str()).unwrap_or("")
}

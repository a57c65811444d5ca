//! What server, lab and small verbs share of the protocol's security: both halves of each conversation.
//!
//! Only [`client`] reads or writes a socket; for the rest, who talks hands over what came, and sends what is to be said.

pub mod certificates;
pub mod client;
pub mod pem;
pub mod scram;
pub mod secret;
mod subject;
mod trust;
pub mod uri;

//! What server, lab and small verbs share of the protocol: both halves of each conversation about security, compressors, and how a
//! server waits for a quick client.
//!
//! Only [`client`] reads or writes a socket; for the rest, who talks hands over what came, and sends what is to be said.

pub mod busy_poll;
pub mod certificates;
pub mod client;
pub mod compression;
pub mod pem;
pub mod scram;
pub mod secret;
mod subject;
pub mod trust;
pub mod uri;

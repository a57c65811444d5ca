//! The protocol, as server, lab and small verbs share it: messages taken apart and put together, both halves of each conversation about security, compressors, and how a
//! server waits for a quick client.
//!
//! Only [`client`] reads or writes a socket; for the rest, who talks hands over what came, and sends what is to be said.

pub mod busy_poll;
pub mod certificates;
pub mod client;
pub mod compression;
pub mod frame;
pub mod header;
pub mod message;
pub mod pem;
pub mod query;
pub mod request;
pub mod scram;
pub mod secret;
mod subject;
#[cfg(test)]
mod tests;
pub mod trust;
pub mod uri;

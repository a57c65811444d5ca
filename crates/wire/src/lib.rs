//! MongoDB's wire protocol, shared by the server, the lab and the client subcommands: message parsing and encoding,
//! both sides of TLS and SCRAM, compressors, and busy polling.
//!
//! Only [`client`] reads or writes a socket. All other modules take bytes from the caller and return bytes to send.

pub mod busy_poll;
pub mod certificates;
pub mod client;
pub mod compression;
pub mod frame;
pub mod header;
pub mod message;
pub mod query;
pub mod request;
pub mod scram;
pub mod secret;
#[cfg(test)]
mod tests;
pub mod tls_client;
pub mod uri;

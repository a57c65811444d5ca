//! What server, lab and small verbs share of the protocol's security: both halves of each conversation.
//!
//! Nothing here reads or writes a socket: who talks hands over what came, and sends what is to be said.

pub mod certificates;
pub mod pem;
pub mod scram;
pub mod secret;
mod subject;

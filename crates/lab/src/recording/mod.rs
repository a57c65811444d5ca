//! Recordings: what passed between an application and a server, in a file.
//!
//! [`record`] stands between the two. Each connection is a [`passage`], which hands every frame on as it came, and
//! a copy of it, unpacked ([`message`]), without what is secret ([`withheld`], [`redact`]), to the [`sink`], whose
//! thread writes the file ([`format`]). Only answers to hello are changed on their way ([`hello`]), so that drivers
//! stay where they connected. `replay` reads the file.

pub mod format;
mod hello;
pub(crate) mod message;
mod passage;
pub(crate) mod record;
pub(crate) mod redact;
mod sink;
mod tls;
pub(crate) mod upstream;
pub(crate) mod walk;
mod withheld;

#[cfg(test)]
mod tests;

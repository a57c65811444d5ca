//! Recordings of the traffic between an application and a server, in a file, and their replay.
//!
//! A [`Recorder`] is a proxy between the two. Each connection is a [`proxy`], which forwards every frame unchanged. A
//! copy of the frame, decompressed ([`message`]) and without secrets ([`redact`]), goes to a thread that writes the
//! file ([`format`]). Only replies to hello are changed ([`upstream`]), which keeps drivers on the recorder.
//!
//! A [`Recording`] is a file read whole into a [`script`]. A [`player`] sends it over as many connections as were
//! recorded. [`order`] delays a request until its predecessors have finished. It also finds replies that depend on an
//! order that the recording does not contain. [`mapping`] translates names that servers generate. [`compare`] compares
//! replies with the recorded ones. [`tally`] counts the observations. [`start`] copies the initial data of a recording.

mod compare;
pub mod format;
mod mapping;
mod message;
mod order;
mod player;
mod proxy;
mod record;
mod redact;
mod script;
mod start;
mod tally;
#[cfg(test)]
mod tests;

pub use order::Order;
pub use player::{Observation, Recording, Round, Speed};
pub use proxy::{Upstream, select_server};
pub use record::{Recorder, RecordingSummary, Settings};
pub use script::{Exchange, Reply, Script};
pub use start::copy;
pub use tally::{Grouping, Tally};

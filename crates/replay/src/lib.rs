//! Recordings: what passed between an application and a server, in a file, and their replay.
//!
//! A [`Recorder`] stands between the two. Each connection is a [`passage`]: every frame goes on as it came. A copy of
//! it, unpacked ([`message`]) and without secrets ([`redact`]), goes to a thread that writes
//! the file ([`format`]). Only answers to hello are changed on their way ([`upstream`]), so that drivers stay with the
//! recorder.
//!
//! A [`Recording`] is a file read whole into a [`script`]. A [`player`] sends it over as many connections as were
//! recorded. [`order`] keeps requests behind what must come before them, [`mapping`] translates names that servers make
//! up, [`compare`] compares answers with the recorded ones, and [`order`] also finds answers that depend on an order that
//! the recording does not show. [`tally`] counts what was observed. [`start`] copies the data that a
//! recording began with.

mod compare;
pub mod format;
mod mapping;
mod message;
mod order;
mod passage;
mod player;
mod record;
mod redact;
mod script;
mod start;
mod tally;
mod upstream;

#[cfg(test)]
mod tests;

pub use order::Order;
pub use player::{Observation, Recording, Round, Speed};
pub use record::{Recorder, Settings, Written};
pub use script::{Exchange, Reply, Script};
pub use start::copy;
pub use tally::{Grouping, Tally};
pub use upstream::{Upstream, choose};

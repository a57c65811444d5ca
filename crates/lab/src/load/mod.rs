//! The load engine: workers, one per connection, that send operations one after the other, at the
//! pace of the answers (closed loop) or at that of a schedule (open loop).
//!
//! In a closed loop a server that stalls for a second delays one operation for each connection and
//! is forgiven all those that would have come meanwhile. In an open loop operations are due when
//! they are due, and each is timed from then: the stall is in as many of them as it held up.

mod drive;
mod effort;
mod find_rate;
pub(crate) mod keys;
mod lab;
pub(crate) mod measure;
pub(crate) mod random;
mod recorder;
mod schedule;
mod suspicion;
#[cfg(test)]
mod tests;

#[cfg(test)]
use drive::{Ended, Outcome, drive};

pub(crate) use lab::Lab;

use crate::error::Result;
use std::future::Future;

/// One connection's side of a workload.
pub(crate) trait Worker: Send + 'static {
    /// Sends one operation and waits for its answer. Numbers count from [`Load::first`] over all
    /// workers together; what an operation does must follow from its number (and the run's seed)
    /// alone, so that a run can be replayed.
    fn operation(&mut self, number: u64) -> impl Future<Output = Result<()>> + Send;
}

/// When the next operation is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// When this connection's last one was answered.
    Closed,
    /// When it is due: so many a second, over all connections together.
    Open { rate: f64 },
}

/// When it is enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Until {
    Operations(u64),
    Seconds(f64),
}

/// What workers are asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) pace: Pace,
    pub(crate) until: Until,
    /// The number of the first operation.
    pub(crate) first: u64,
}

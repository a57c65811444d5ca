//! Before the first operation: connecting, and starting a server.

use super::super::parts::named;
use crate::error::Result;
use crate::load::Worker;
use crate::load::measure::{Bench, Prepared, Visit};
use crate::result::Row;
use crate::target::{self, Protocol, Scratch, Target};

/// Connecting with an ordinary client.
#[derive(Clone, Debug)]
pub(super) struct Connecting;

impl Bench for Connecting {
    type Worker = Caller;

    async fn prepare(&self, target: &Target, _: &Visit) -> Result<Prepared<Caller>> {
        Ok(Prepared::Ready(vec![Caller(target.clone())]))
    }
}

pub(super) struct Caller(Target);

impl Worker for Caller {
    async fn operation(&mut self, _: u64) -> Result<()> {
        match self.0.protocol {
            Protocol::Mongo => {
                // It has been pinged by the time it is there.
                let client = self.0.mongo().await?;
                client.shutdown().immediate(true).await;
                Ok(())
            }
            Protocol::Postgres => {
                let client = self.0.postgres().await?;
                named(&self.0, client.batch_execute("SELECT 1").await)
            }
        }
    }
}

/// Starting another server of the same kind.
#[derive(Clone, Debug)]
pub(super) struct Starting;

impl Bench for Starting {
    type Worker = Starter;

    async fn prepare(&self, target: &Target, _: &Visit) -> Result<Prepared<Starter>> {
        let scratch = Scratch::temporary()?;
        Ok(match target::another(target, scratch.path()).await {
            Some(started) => {
                drop(started?);
                Prepared::Ready(vec![Starter { like: target.clone(), started: Vec::new(), scratch }])
            }
            None => Prepared::Cannot("the lab did not start it".to_string()),
        })
    }

    async fn finish(&self, _: &Target, row: &mut Row) -> Result<()> {
        // What was looked at is the server that ran already, which had nothing to do.
        row.cpu_microseconds = None;
        row.resident_bytes = None;
        row.rounds.iter_mut().for_each(|round| round.cpu_microseconds = None);
        Ok(())
    }
}

pub(super) struct Starter {
    like: Target,
    /// Ended after the measurement: ending is not what is timed. Before their directory.
    started: Vec<Target>,
    scratch: Scratch,
}

impl Worker for Starter {
    async fn operation(&mut self, _: u64) -> Result<()> {
        let started = target::another(&self.like, self.scratch.path()).await;
        let started = started.unwrap_or_else(|| Err(self.like.error("can't be started again")))?;
        self.started.push(started);
        Ok(())
    }
}

//! Engines and a file system for tests, to be stacked: [`Mirror`] compares two engines at every answer,
//! [`Emit`] shows what is written, [`FaultyFiles`] fails as disks do.
//!
//! A test that runs on `Emit<Mirror<A, B>>` tests two engines for the price of one, and can print the keys
//! that each step wrote. Both are ordinary [`Engine`](crate::Engine)s, so the layers above run on them
//! unchanged. [`Checked`] asserts what the traits promise; debug builds of the server run on it.
//!
//! Debug builds have this module. A release build has it with the feature `testing` alone.

mod contract;
mod emit;
#[cfg(feature = "shuttle")]
mod explore;
pub(crate) mod faulty;
mod mirror;
mod parse;
mod shared;

pub use contract::Checked;
pub use emit::{Describe, Emit};
#[cfg(feature = "shuttle")]
pub use explore::{explore, fails};
pub use faulty::{FaultyFiles, Loss};
pub use mirror::Mirror;
pub use parse::{base_page, frames, journal_batch, read_base_page, read_journal_batch, with_frames};
pub use shared::Shared;

//! The trace of a run: a hash over all events, counts, and the events themselves if they are shown.

use base::bson::{Document, extended_json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Result of a run without violations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Hash over all events: requests, replies, commits, crashes, with their times.
    pub hash: u64,
    /// Time of the simulated clock.
    pub simulated: Duration,
    /// Counts of events by name.
    pub marks: BTreeMap<&'static str, u64>,
    /// Passes of the server's code marks.
    pub code: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Report) {
        self.hash ^= other.hash;
        self.simulated += other.simulated;
        for (sum, more) in [(&mut self.marks, &other.marks), (&mut self.code, &other.code)] {
            more.iter().for_each(|(mark, count)| *sum.entry(mark).or_default() += count);
        }
    }
}

/// The events of a run in progress.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) report: Report,
    pub(crate) is_shown: bool,
}

impl Trace {
    /// Adds an event to the hash: a text and the bytes of a message.
    pub(crate) fn event(&mut self, text: fmt::Arguments<'_>, message: Option<Document<'_>>) {
        let line = format!("{:>12?} {text}", self.report.simulated);
        let bytes = message.map_or(&[][..], |message| message.bytes());
        // FNV-1a: a change of any byte changes the hash.
        for byte in line.bytes().chain(bytes.iter().copied()) {
            self.report.hash = (self.report.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if self.is_shown {
            eprintln!("{line} {}", message.map(extended_json::to_relaxed).unwrap_or_default());
        }
    }

    /// Counts a mark.
    pub(crate) fn mark(&mut self, name: &'static str) {
        *self.report.marks.entry(name).or_default() += 1;
    }
}

//! What the streams of an opened plan count, and how explain takes their counts.

use super::RecordStream;
use base::bson::Builder;
use std::ffi::CStr;

/// What a stage has done so far, in MongoDB's terms: each call for one more result or step is a
/// work, which advances or needs time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stats {
    /// Steps taken.
    pub(crate) works: u64,
    /// Results yielded.
    pub(crate) advanced: u64,
    /// Whether it has come to its end.
    pub(crate) ended: bool,
}

impl Stats {
    /// A step that yielded a result.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.works += 1;
        self.advanced += 1;
    }

    /// A step that didn't.
    #[inline]
    pub(crate) fn need_time(&mut self) {
        self.works += 1;
    }

    /// The step that found the end.
    pub(crate) fn end(&mut self) {
        if !self.ended {
            self.works += 1;
            self.ended = true;
        }
    }

    /// Prints them.
    pub(super) fn append_to(&self, out: &mut Builder) {
        let left = self.works.saturating_sub(self.advanced + u64::from(self.ended));
        out.append(c"nReturned", number(self.advanced))
            .append(c"executionTimeMillisEstimate", 0i32)
            .append(c"works", number(self.works))
            .append(c"advanced", number(self.advanced))
            .append(c"needTime", number(left))
            .append(c"needYield", 0i32)
            .append(c"saveState", 0i32)
            .append(c"restoreState", 0i32)
            .append(c"isEOF", i32::from(self.ended));
    }
}

/// A count as explain prints it.
pub(super) fn number(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// What the stream of one node did.
pub(crate) struct Ran {
    pub(super) stats: Stats,
    pub(super) keys_examined: u64,
    pub(super) docs_examined: u64,
    /// Counts of its own, by the names that explain gives them.
    pub(super) own: Builder,
}

impl Ran {
    /// A count of its own.
    pub(super) fn count(&mut self, name: &'static CStr, count: u64) -> &mut Ran {
        self.own.append(name, number(count));
        self
    }

    /// The documents that it examined.
    pub(super) fn docs(&mut self, examined: u64) -> &mut Ran {
        self.docs_examined += examined;
        self.count(c"docsExamined", examined)
    }

    /// The documents that it examined, where it need not examine any.
    pub(super) fn docs_if_any(&mut self, examined: u64) {
        if examined > 0 {
            self.docs(examined);
        }
    }

    /// The keys that it examined.
    pub(super) fn keys(&mut self, examined: u64) -> &mut Ran {
        self.keys_examined += examined;
        self.count(c"keysExamined", examined)
    }
}

/// What the streams of a plan did: one entry for each node, a node before those that it reads.
#[derive(Default)]
pub(crate) struct Report(pub(super) Vec<Ran>);

impl Report {
    /// What an opened plan did.
    pub(crate) fn of(stream: &dyn RecordStream) -> Report {
        let mut report = Report::default();
        stream.report(&mut report);
        report
    }

    /// Begins a node that yields each record of several inputs once.
    pub(super) fn merged(&mut self, stats: &Stats, dropped: u64) {
        let ran = self.node(stats).count(c"dupsTested", stats.advanced + dropped);
        ran.count(c"dupsDropped", dropped);
    }

    /// Begins a node.
    pub(super) fn node(&mut self, stats: &Stats) -> &mut Ran {
        self.0.push_mut(Ran { stats: *stats, keys_examined: 0, docs_examined: 0, own: Builder::new() })
    }
}

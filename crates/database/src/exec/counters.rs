//! Statistics of a plan's streams for explain.

use super::RecordStream;
use base::bson::Builder;
use std::ffi::CStr;

/// Statistics of a stage in MongoDB's terms: each call for a result or step is a work, which
/// advances or needs time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stats {
    /// Number of works.
    pub(crate) works: u64,
    /// Number of results.
    pub(crate) advanced: u64,
    /// True after its end.
    pub(crate) ended: bool,
}

impl Stats {
    /// Counts a work with a result.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.works += 1;
        self.advanced += 1;
    }

    /// Counts a work without a result.
    #[inline]
    pub(crate) fn need_time(&mut self) {
        self.works += 1;
    }

    /// Counts the work that found the end.
    pub(crate) fn end(&mut self) {
        if !self.ended {
            self.works += 1;
            self.ended = true;
        }
    }

    /// Appends the statistics.
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

/// Returns a count in explain's format.
pub(super) fn number(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Statistics of one node's stream.
pub(crate) struct StreamStatistics {
    pub(super) stats: Stats,
    pub(super) keys_examined: u64,
    pub(super) docs_examined: u64,
    /// Further counts, by their names in explain.
    pub(super) own: Builder,
}

impl StreamStatistics {
    /// Adds a further count.
    pub(super) fn count(&mut self, name: &'static CStr, count: u64) -> &mut StreamStatistics {
        self.own.append(name, number(count));
        self
    }

    /// Adds examined documents.
    pub(super) fn docs(&mut self, examined: u64) -> &mut StreamStatistics {
        self.docs_examined += examined;
        self.count(c"docsExamined", examined)
    }

    /// Adds examined documents of a node that may examine none.
    pub(super) fn docs_if_any(&mut self, examined: u64) {
        if examined > 0 {
            self.docs(examined);
        }
    }

    /// Adds examined keys.
    pub(super) fn keys(&mut self, examined: u64) -> &mut StreamStatistics {
        self.keys_examined += examined;
        self.count(c"keysExamined", examined)
    }
}

/// Statistics of a plan's streams: one entry for each node, a node before its inputs.
#[derive(Default)]
pub(crate) struct Report(pub(super) Vec<StreamStatistics>);

impl Report {
    /// Returns the statistics of an opened plan.
    pub(crate) fn of(stream: &dyn RecordStream) -> Report {
        let mut report = Report::default();
        stream.report(&mut report);
        report
    }

    /// Adds a node that yields each record of several inputs once.
    pub(super) fn merged(&mut self, stats: &Stats, dropped: u64) {
        let ran = self.node(stats).count(c"dupsTested", stats.advanced + dropped);
        ran.count(c"dupsDropped", dropped);
    }

    /// Adds a node.
    pub(super) fn node(&mut self, stats: &Stats) -> &mut StreamStatistics {
        self.0.push_mut(StreamStatistics {
            stats: *stats,
            keys_examined: 0,
            docs_examined: 0,
            own: Builder::new(),
        })
    }
}

//! Explain output of a plan: its nodes, and the statistics of their streams after a run.

use super::node::{Keys, express_name};
use super::{Fetches, Ids, Node, RecordStream, Scan, SortOptions, TextSearch};
use crate::access::Access;
use crate::index::KeyKind;
use base::bson::{Builder, DocumentBuf, Path};
use query::SortPattern;
use query::matcher::{Matcher, Part};
use std::ffi::CStr;
use std::sync::Arc;
use std::vec::IntoIter;

/// Prints nodes, with their statistics after a run.
pub(crate) struct Explainer {
    out: Builder,
    /// Statistics of the next nodes, if the plan has run.
    ran: Option<IntoIter<StreamStatistics>>,
    /// The projection of a covered plan, as given by the client.
    pub(crate) projection: Option<DocumentBuf>,
    /// Total number of examined keys.
    pub(crate) keys_examined: u64,
    /// Total number of examined documents.
    pub(crate) docs_examined: u64,
}

impl Explainer {
    /// Returns a printer. Prints statistics if the plan has run.
    pub(crate) fn new(report: Option<Report>) -> Explainer {
        let ran = report.map(|report| report.0.into_iter());
        Explainer { out: Builder::new(), ran, projection: None, keys_examined: 0, docs_examined: 0 }
    }

    /// Prints the name and the statistics of a stage that is no node of the plan.
    pub(crate) fn stage(&mut self, name: &str, stats: &Stats) -> &mut Builder {
        self.out.append(c"stage", name);
        if self.ran.is_some() {
            stats.append_to(&mut self.out);
        }
        &mut self.out
    }

    /// Prints a node: name, filter, further fields, statistics.
    fn node(&mut self, name: &str, filter: Option<DocumentBuf>, more: impl FnOnce(&mut Builder)) {
        self.out.append(c"stage", name);
        self.out.append_optional(c"filter", filter.as_ref());
        let ran = self.ran();
        if let Some(ran) = &ran {
            ran.stats.append_to(&mut self.out);
        }
        more(&mut self.out);
        self.counts(ran);
    }

    /// Returns the statistics of the next node.
    fn ran(&mut self) -> Option<StreamStatistics> {
        self.ran.as_mut().and_then(|ran| ran.next())
    }

    /// Prints a node's own counts.
    fn counts(&mut self, ran: Option<StreamStatistics>) {
        let Some(ran) = ran else { return };
        self.out.append_all(ran.own.finish().view());
        self.keys_examined += ran.keys_examined;
        self.docs_examined += ran.docs_examined;
    }

    /// Prints a count, if the plan has run.
    pub(crate) fn count(&mut self, name: &'static CStr, count: u64) {
        if self.ran.is_some() {
            self.out.append(name, number(count));
        }
    }

    /// Prints the input of this stage.
    pub(crate) fn input(&mut self, print: impl FnOnce(&mut Explainer)) {
        self.out.begin_document(c"inputStage");
        print(self);
        self.out.end();
    }

    /// Prints the inputs of this stage.
    fn inputs<T>(&mut self, inputs: &[T], print: impl Fn(&T, &mut Explainer)) {
        self.out.begin_array(c"inputStages");
        for input in inputs {
            self.out.push_document();
            print(input, self);
            self.out.end();
        }
        self.out.end();
    }

    /// Returns the output.
    pub(crate) fn finish(self) -> DocumentBuf {
        self.out.finish()
    }
}

fn of_matcher(filter: &Option<Arc<Matcher>>) -> Option<DocumentBuf> {
    filter.as_ref().map(|filter| filter.describe())
}

fn direction(forward: bool, out: &mut Builder) {
    out.append(c"direction", if forward { "forward" } else { "backward" });
}

impl Node {
    /// Prints the node and the nodes below.
    pub(crate) fn describe(&self, out: &mut Explainer) {
        match self {
            Node::Eof => out.node("EOF", None, |_| {}),
            Node::CollScan { forward, filter, .. } => {
                out.node("COLLSCAN", of_matcher(filter), |out| direction(*forward, out));
            }
            Node::Express { access, filter } => express(access, filter, out),
            Node::CountScan(scan) => scan.describe_as("COUNT_SCAN", out),
            Node::DistinctScan { scan, fetches: true, .. } => {
                out.node("FETCH", None, |_| {});
                out.input(|out| scan.describe(out));
            }
            Node::DistinctScan { scan, path, .. } => covered(None, of_path(path), scan, out),
            Node::ProjectionCovered { scan, covering, filter } => {
                let fields = out.projection.clone().unwrap_or_else(|| covering.fields());
                covered(filter.as_ref().map(Part::describe), fields, scan, out);
            }
            Node::Fetch(Fetches { input, filter, .. }) => {
                out.node("FETCH", filter.as_ref().map(Part::describe), |_| {});
                out.input(|out| input.describe(out));
            }
            Node::Refetch { input, filter } => input.below("FETCH", Some(filter.describe()), |_| {}, out),
            Node::GeoNear { near, filter, .. } => {
                let print = |out: &mut Explainer| {
                    out.node(near.stage(), None, |out| near.access.describe_place(out));
                };
                let Some(filter) = filter else { return print(out) };
                out.node("FETCH", Some(filter.describe_beside_near()), |_| {});
                out.input(print);
            }
            Node::TextOr { terms, .. } => {
                out.node("TEXT_OR", None, |_| {});
                match terms.as_slice() {
                    [scan] => out.input(|out| scan.describe(out)),
                    scans => out.inputs(scans, Scan::describe),
                }
            }
            Node::TextMatch { input, text } => {
                input.below("TEXT_MATCH", None, |out| text.describe(out), out);
            }
            Node::Or(inputs) => {
                out.node("OR", None, |_| {});
                out.inputs(inputs, Node::describe);
            }
            Node::ReturnKey(Keys { input, filter, .. }) => {
                out.node("RETURN_KEY", Some(filter.describe()), |_| {});
                out.input(|out| input.describe(out));
            }
            Node::KeyOnly { input, .. } => input.below("RETURN_KEY", None, |_| {}, out),
            Node::Sort { input, pattern, options } => {
                input.below("SORT", None, |out| sort(pattern, options, out), out);
            }
            Node::Skip { input, skip } => input.below("SKIP", None, amount(c"skipAmount", *skip), out),
            Node::Limit { input, limit } => input.below("LIMIT", None, amount(c"limitAmount", *limit), out),
        }
    }

    /// Prints the ids as the input of a node.
    fn below(
        &self,
        name: &str,
        filter: Option<DocumentBuf>,
        more: impl FnOnce(&mut Builder),
        out: &mut Explainer,
    ) {
        out.node(name, filter, more);
        out.input(|out| self.describe(out));
    }
}

fn amount(name: &'static CStr, amount: u64) -> impl FnOnce(&mut Builder) {
    move |out| _ = out.append(name, number(amount))
}

impl Ids {
    fn describe(&self, out: &mut Explainer) {
        match self {
            Ids::Scan(scan) => scan.describe(out),
            Ids::Or(scans) => {
                out.node("OR", None, |_| {});
                out.inputs(scans, Scan::describe);
            }
            Ids::SortMerge { scans, pattern } => {
                out.node("SORT_MERGE", None, |out| sort_pattern(pattern, out));
                out.inputs(scans, Scan::describe);
            }
            Ids::Skip { input, skip } => {
                out.node("SKIP", None, amount(c"skipAmount", *skip));
                out.input(|out| input.describe(out));
            }
        }
    }
}

impl Scan {
    fn describe(&self, out: &mut Explainer) {
        let name = match (self.first_of, self.access.index.spec.clustered) {
            (0, true) => "CLUSTERED_IXSCAN",
            (0, false) => "IXSCAN",
            _ => "DISTINCT_SCAN",
        };
        self.describe_as(name, out);
    }

    /// Prints the index and its bounds.
    fn describe_as(&self, name: &str, out: &mut Explainer) {
        let filter = self.filter.as_ref().map(|(filter, _)| filter.describe());
        out.node(name, filter, |out| {
            self.access.describe_index(out);
            direction(self.forward, out);
            self.access.describe_bounds(self.forward, out);
        });
    }
}

/// Prints a lookup of a key, for which MongoDB has few fields.
fn express(access: &Access, filter: &Option<Arc<Matcher>>, out: &mut Explainer) {
    let (spec, ran, projection) = (&access.index.spec, out.ran(), out.projection.take());
    out.out.append(c"stage", express_name(access));
    if !spec.clustered {
        out.out.append(c"keyPattern", spec.key.to_string().as_str()).append(c"indexName", spec.name.as_str());
    }
    out.out.append_optional(c"filter", of_matcher(filter).as_ref());
    if let Some(projection) = projection {
        out.out.append(c"projection", &projection).append(c"projectionCovered", false);
    }
    out.counts(ran);
}

/// Prints documents built from a scan's keys.
fn covered(filter: Option<DocumentBuf>, fields: DocumentBuf, scan: &Scan, out: &mut Explainer) {
    out.node("PROJECTION_COVERED", filter, |out| _ = out.append(c"transformBy", &fields));
    out.input(|out| scan.describe(out));
}

/// Returns the projection of one path.
fn of_path(path: &Path) -> DocumentBuf {
    let mut fields = Builder::new();
    fields.append(c"_id", 0i32).append(path, 1i32);
    fields.finish()
}

fn sort_pattern(pattern: &SortPattern, out: &mut Builder) {
    out.begin_document(c"sortPattern");
    pattern.append_to(out);
    out.end();
}

fn sort(pattern: &SortPattern, options: &SortOptions, out: &mut Builder) {
    sort_pattern(pattern, out);
    out.append(c"memLimit", number(options.memory as u64));
    if options.limit > 0 {
        out.append(c"limitAmount", number(options.limit));
    }
    // MongoDB's sort type is simple if it needs only the document.
    out.append(c"type", if options.keeps_meta { "default" } else { "simple" });
}

impl TextSearch {
    fn describe(&self, out: &mut Builder) {
        out.append(c"indexPrefix", &self.prefix.1);
        out.append(c"indexName", self.access.index.spec.name.as_str());
        out.begin_document(c"parsedTextQuery");
        self.search.describe(out);
        out.end();
        out.append(c"textIndexVersion", self.text.spec.version as i32);
    }
}

impl Access {
    /// Prints the fields of a geospatial index.
    fn describe_place(&self, out: &mut Builder) {
        let spec = &self.index.spec;
        out.append(c"keyPattern", &spec.key).append(c"indexName", spec.name.as_str());
        out.append(c"indexVersion", 2i32);
    }

    /// Prints the fields of an index.
    fn describe_index(&self, out: &mut Builder) {
        let spec = &self.index.spec;
        out.append(c"keyPattern", &spec.key).append(c"indexName", spec.name.as_str());
        out.append_optional(c"collation", spec.collation.document());
        out.append(c"isMultiKey", self.any_multikey());
        if spec.text.is_none() {
            self.describe_multikey_paths(out);
        }
        out.append(c"isUnique", spec.unique || self.index.is_id());
        out.append(c"isSparse", spec.sparse).append(c"isPartial", spec.partial.is_some());
        out.append(c"indexVersion", 2i32);
    }

    fn describe_multikey_paths(&self, out: &mut Builder) {
        out.begin_document(c"multiKeyPaths");
        for (part, bits) in self.index.spec.parts.iter().zip(&self.multikey) {
            out.begin_array(&part.path);
            let names: Vec<&str> = part.path.components().iter().map(|component| component.name()).collect();
            for depth in (0..names.len().min(32)).filter(|depth| bits & (1 << depth) != 0) {
                out.push(names.iter().take(depth + 1).copied().collect::<Vec<_>>().join(".").as_str());
            }
            out.end();
        }
        out.end();
    }

    /// Prints the bounds in scan order.
    fn describe_bounds(&self, forward: bool, out: &mut Builder) {
        out.begin_document(c"indexBounds");
        // MongoDB prints no bounds of text indexes.
        let shown = self.index.spec.text.is_none();
        for (part, intervals) in self.index.spec.parts.iter().zip(&self.parts).filter(|_| shown) {
            let ascending = (part.kind != KeyKind::Descending) == forward;
            out.begin_array(&part.path);
            let shown: Vec<String> = match ascending {
                true => intervals.as_slice().iter().map(|interval| interval.to_string()).collect(),
                false => intervals.as_slice().iter().rev().map(|interval| interval.reversed()).collect(),
            };
            shown.iter().for_each(|text| {
                out.push(text.as_str());
            });
            out.end();
        }
        out.end();
    }
}

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

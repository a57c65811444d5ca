//! Opens a plan: creates a stream for each node of its tree.

use super::collscan::{CollScan, Eof};
use super::covered::{KeyOnly, ProjectionCovered, ReturnKey};
use super::distinct_scan::{CountScan, DistinctScan};
use super::fetch::{Express, Fetch, FilterStage, Test};
use super::geo_near::GeoNear;
use super::ixscan::IndexScan;
use super::or::{Or, SortMerge};
use super::prefetch::Prefetch;
use super::sort::{Limit, Skip, Sort};
use super::text::TextOr;
use super::{ExecContext, IdStream, Ids, Node, RecordStream, Scan};
use base::Result;
use std::sync::Arc;

impl Node {
    /// Returns the records of the tree.
    ///
    /// Errors: storage errors.
    pub(crate) fn open(&self, around: &Arc<ExecContext>) -> Result<Box<dyn RecordStream>> {
        let none = Prefetch::default();
        Ok(match self {
            Node::Eof => Box::new(Eof::default()),
            Node::CollScan { forward, filter, fields } => {
                Box::new(CollScan::new(around, *forward, filter.clone(), fields.clone())?)
            }
            Node::Express { access, filter } => Box::new(Express::new(around, access, filter.clone())),
            Node::CountScan(scan) => Box::new(CountScan(IndexScan::open(around, scan, none)?)),
            Node::DistinctScan { scan, path } => {
                Box::new(DistinctScan::new(around, IndexScan::open(around, scan, none)?, scan.first_of, path))
            }
            Node::ProjectionCovered { scan, covering, filter } => {
                let keys = IndexScan::open(around, scan, none)?;
                Box::new(ProjectionCovered::new(around, keys, covering, filter, scan.first_of))
            }
            Node::Fetch(fetch) => {
                let ids = fetch.input.open(around, Prefetch { records: true, limit: fetch.few })?;
                Box::new(Fetch::new(around, ids, fetch.filter.clone(), fetch.keeps_keys))
            }
            Node::Refetch { input, filter } => {
                Box::new(FilterStage::new(around, input.open(around)?, Test::Filter(filter.clone())))
            }
            Node::TextMatch { input, text } => {
                Box::new(FilterStage::new(around, input.open(around)?, Test::Text(text.clone())))
            }
            Node::GeoNear { near, filter, metadata } => {
                Box::new(GeoNear::new(around, near, filter.clone(), *metadata))
            }
            Node::TextOr { text, terms } => {
                let prefixes = terms.iter().map(Scan::prefix_length);
                let terms = IndexScan::several(around, terms, none)?.into_iter().zip(prefixes);
                Box::new(TextOr::new(around, &text.text, terms))
            }
            Node::Or(inputs) => {
                let inputs: Result<Vec<_>> = inputs.iter().map(|input| input.open(around)).collect();
                Box::new(Or::new(inputs?))
            }
            Node::ReturnKey(keys) => Box::new(ReturnKey::new(around, keys.input.open(around, none)?, keys)),
            Node::KeyOnly { input, sort } => {
                Box::new(KeyOnly { input: input.open(around)?, sort: sort.clone() })
            }
            Node::Sort { input, pattern, options } => {
                Box::new(Sort::new(around, input.open(around)?, pattern, *options))
            }
            Node::Skip { input, skip } => Box::new(Skip::new(input.open(around)?, *skip)),
            Node::Limit { input, limit } => Box::new(Limit::new(input.open(around)?, *limit)),
        })
    }
}

impl Ids {
    fn open(&self, around: &Arc<ExecContext>, prefetch: Prefetch) -> Result<Box<dyn IdStream>> {
        Ok(match self {
            Ids::Scan(scan) => Box::new(IndexScan::open(around, scan, prefetch)?.first_of(scan.first_of)),
            Ids::Or(scans) => Box::new(Or::new(IndexScan::several(around, scans, prefetch)?)),
            Ids::SortMerge { scans, .. } => {
                let forward = scans.first().is_none_or(|scan| scan.forward);
                let prefixes = scans.iter().map(Scan::prefix_length);
                let inputs = IndexScan::several(around, scans, prefetch)?.into_iter().zip(prefixes);
                Box::new(SortMerge::new(inputs, forward))
            }
            Ids::Skip { input, skip } => {
                Box::new(Skip::new(input.open(around, prefetch.below_skip(*skip))?, *skip))
            }
        })
    }
}

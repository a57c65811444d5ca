//! Leading stages that a plan may execute, and the paths that the remaining stages read.
//!
//! A plan must execute every stage that it removes, because the pipeline no longer runs it.

use super::operator::{Kind, Reads};
use super::{Pipeline, Step};
use crate::{Matcher, SortPattern};
use base::bson::{DocumentBuf, Path};
use std::collections::HashSet;
use std::sync::Arc;

/// A `$sort` at the front of a pipeline, with a `$limit` that was joined to it.
#[derive(Clone, Debug)]
pub struct LeadingSort {
    /// The pattern.
    pub pattern: SortPattern,
    /// Number of requested documents.
    pub limit: Option<u64>,
}

impl Pipeline {
    /// The filter of a leading `$match`.
    pub fn leading_match(&self) -> Option<&DocumentBuf> {
        match self.steps.first()?.operator.kind() {
            Kind::Match(stage) => Some(stage.filter()),
            _ => None,
        }
    }

    /// Removes a leading `$match` and returns its filter.
    pub fn take_leading_match(&mut self) -> Option<Arc<Matcher>> {
        let Kind::Match(stage) = self.steps.first()?.operator.kind() else { return None };
        let matcher = stage.matcher().clone();
        self.steps.remove(0);
        Some(matcher)
    }

    /// Removes a leading `$sort` with its limit.
    pub fn take_leading_sort(&mut self) -> Option<LeadingSort> {
        let Kind::Sort(stage) = self.steps.first()?.operator.kind() else { return None };
        let (pattern, limit) = stage.parts();
        let sort = LeadingSort { pattern: pattern.clone(), limit };
        self.steps.remove(0);
        Some(sort)
    }

    /// Removes a leading `$limit`.
    pub fn take_leading_limit(&mut self) -> Option<u64> {
        match self.steps.first()?.operator.kind() {
            Kind::Limit(limit) => {
                self.steps.remove(0);
                Some(limit)
            }
            _ => None,
        }
    }

    /// Removes a leading `$skip`, unless it skips all of the `limit` documents requested before it (zero means all).
    pub fn take_leading_skip(&mut self, limit: u64) -> Option<u64> {
        match self.steps.first()?.operator.kind() {
            Kind::Skip(skip) if limit == 0 || skip < limit => {
                self.steps.remove(0);
                Some(skip)
            }
            _ => None,
        }
    }

    /// Returns the paths that the pipeline reads from its source; `None` if it may need whole documents.
    pub fn dependencies(&self) -> Option<Vec<Path>> {
        let mut paths: Vec<Path> = Vec::new();
        for Step { operator, .. } in &self.steps {
            match operator.reads() {
                Reads::Also(also) => paths.extend(also),
                Reads::Only(only) => {
                    paths.extend(only);
                    return Some(without_covered(paths));
                }
                Reads::Everything => return None,
            }
        }
        None
    }
}

/// Returns the paths without duplicates and without paths below other paths.
fn without_covered(mut paths: Vec<Path>) -> Vec<Path> {
    paths.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    paths.dedup();
    let all: HashSet<String> = paths.iter().map(|path| path.as_str().to_string()).collect();
    let is_covered = |path: &Path| {
        let text = path.as_str();
        text.match_indices('.').any(|(at, _)| text.get(..at).is_some_and(|above| all.contains(above)))
    };
    paths.retain(|path| !is_covered(path));
    paths
}

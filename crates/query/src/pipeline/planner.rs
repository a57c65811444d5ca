//! What a planner may take off the front of a pipeline, and what the rest needs to see.
//!
//! A stage that was taken off must be honoured by the plan; the pipeline no longer runs it.

use super::operator::{Kind, Reads};
use super::{Pipeline, Step};
use base::bson::{DocumentBuf, Path};
use std::collections::HashSet;

/// A `$sort` at the front of a pipeline, with the `$limit` behind it where that was joined to it.
#[derive(Clone, Debug)]
pub struct LeadingSort {
    /// The pattern.
    pub pattern: DocumentBuf,
    /// How many documents of the sorted ones are asked for.
    pub limit: Option<u64>,
}

impl Pipeline {
    /// The filter of a `$match` that comes first.
    pub fn leading_match(&self) -> Option<&DocumentBuf> {
        match self.steps.first()?.operator.kind() {
            Kind::Match(filter) => Some(filter),
            _ => None,
        }
    }

    /// Takes off a `$match` that comes first.
    pub fn take_leading_match(&mut self) -> Option<DocumentBuf> {
        let filter = self.leading_match()?.clone();
        self.steps.remove(0);
        Some(filter)
    }

    /// The `$sort` that comes first.
    pub fn leading_sort(&self) -> Option<LeadingSort> {
        match self.steps.first()?.operator.kind() {
            Kind::Sort { pattern, limit } => Some(LeadingSort { pattern: pattern.clone(), limit }),
            _ => None,
        }
    }

    /// Takes off a `$sort` that comes first; its limit goes with it.
    pub fn take_leading_sort(&mut self) -> Option<LeadingSort> {
        let sort = self.leading_sort()?;
        self.steps.remove(0);
        Some(sort)
    }

    /// Takes off a `$limit` that comes first.
    pub fn take_leading_limit(&mut self) -> Option<u64> {
        match self.steps.first()?.operator.kind() {
            Kind::Limit(limit) => {
                self.steps.remove(0);
                Some(limit)
            }
            _ => None,
        }
    }

    /// Takes off a `$skip` that comes first, if it leaves something of the `limit` documents that are
    /// asked for before it (zero is all).
    pub fn take_leading_skip(&mut self, limit: u64) -> Option<u64> {
        match self.steps.first()?.operator.kind() {
            Kind::Skip(skip) if limit == 0 || skip < limit => {
                self.steps.remove(0);
                Some(skip)
            }
            _ => None,
        }
    }

    /// The paths that the pipeline reads of its source's documents, where these are all that it
    /// needs; `None` where whole documents may matter.
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

/// The paths without repetitions and without those that lie below another.
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

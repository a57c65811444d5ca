//! Which collections and indexes the engine's cache serves how well, and what other sizes of it would do.

use crate::catalog::Catalog;
use crate::database::Database;
use std::collections::HashMap;
use storage::{Ident, Reads, WorkingSet};

/// What an engine with a bounded cache knows of its reads, by collection and index.
#[derive(Debug)]
pub struct WorkingSets {
    /// All together; the trees are in `named`.
    pub whole: WorkingSet,
    /// What was read, by namespace and index (`None`: the collection's documents), the most reads first.
    pub named: Vec<(String, Option<String>, Reads)>,
}

impl Database {
    /// How often pages were found in the cache, and how often they would be in caches of other sizes; `None` where
    /// the engine has no cache whose size is bounded. What belongs to no collection, as the log and what has been
    /// dropped, is part of all together alone. Collections that share their pages with forks are named by one.
    pub fn working_sets(&self) -> Option<WorkingSets> {
        let mut whole = self.engine().working_set()?;
        let names = names(&self.catalog());
        let mut named = Vec::new();
        for (trees, reads) in std::mem::take(&mut whole.trees) {
            let mut found: Vec<_> = trees.iter().filter_map(|ident| names.get(ident)).collect();
            found.sort();
            if let Some((namespace, index)) = found.first() {
                named.push((namespace.clone(), index.clone(), reads));
            }
        }
        named.sort_by(|a, b| {
            b.2.start.reads.cmp(&a.2.start.reads).then_with(|| (&a.0, &a.1).cmp(&(&b.0, &b.1)))
        });
        Some(WorkingSets { whole, named })
    }
}

/// Which collection or index each tree is.
fn names(catalog: &Catalog) -> HashMap<Ident, (String, Option<String>)> {
    let mut names = HashMap::new();
    for collection in catalog.all() {
        let Some(data) = &collection.data else { continue };
        let namespace = collection.namespace.as_str().to_string();
        for index in &data.indexes {
            names.insert(index.ident, (namespace.clone(), Some(index.spec.name.clone())));
        }
        names.insert(data.ident, (namespace, None));
    }
    names
}

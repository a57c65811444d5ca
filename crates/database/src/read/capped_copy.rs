//! `cloneCollectionAsCapped`.

use super::aggregate::Replacement;
use crate::catalog::collection::Options;
use crate::catalog::options::capped_of_size;
use crate::database::Database;
use crate::ddl::check_writable;
use crate::exec::{Natural, NaturalOrder};
use crate::scope::Scope;
use base::bson::Document;
use base::{Namespace, Result, bail, err};
use query::pipeline::Sink;
use std::sync::Arc;
use storage::{Direction, Hints, Value};

/// A copy of a collection's newest documents into a new capped collection, with the options and without the indexes.
/// The new collection appears at the end of the copy.
pub struct CappedCopy {
    /// `None` after its end.
    records: Option<Natural>,
    /// A document that is not written yet.
    pending: Option<Value>,
    target: Replacement,
}

impl Database {
    /// Begins a copy.
    ///
    /// Errors: NamespaceNotFound, NamespaceExists, CommandNotSupportedOnView, invalid sizes; LockBusy for a statement
    /// that its caller suspends.
    pub fn clone_as_capped(self: &Arc<Self>, from: &Namespace, to: &Scope, size: i64) -> Result<CappedCopy> {
        let view = self.confirmed_view();
        let source = view.catalog.get(from);
        let source =
            source.ok_or_else(|| err!(NamespaceNotFound, "source collection {from} does not exist"))?;
        let target = view.catalog.get(&to.namespace);
        if target.is_some_and(|target| target.is_view()) {
            bail!(CommandNotSupportedOnView, "cloneCollectionAsCapped to the view {}", to.namespace);
        }
        if target.is_some() {
            bail!(
                NamespaceExists,
                "cloneCollectionAsCapped failed - destination collection {} already exists. source collection: {from}",
                to.namespace
            );
        }
        let records =
            NaturalOrder::of(source.data()?).walk(&view.snapshot, Direction::Forward, Hints::default())?;
        check_writable(&to.namespace)?;
        let capped = capped_of_size(size, &to.namespace, &to.context)?.capped;
        // The copy is not clustered.
        let options =
            Options { capped, clustered: None, expire_after_seconds: None, ..source.options.clone() };
        let mut target = Replacement::with(self, to, &options, &[])?;
        target.bypass_validation = true;
        Ok(CappedCopy { records: Some(records), pending: None, target })
    }
}

impl CappedCopy {
    /// Copies the documents. A call after LockBusy continues.
    ///
    /// Errors: NamespaceExists if another client creates the collection; interruption; LockBusy for a statement that
    /// its caller suspends.
    pub fn run(&mut self) -> Result<()> {
        while let Some(records) = &mut self.records {
            if self.pending.is_none() {
                self.pending = records.next()?.map(|(_, document)| document.to_value());
            }
            match &self.pending {
                Some(document) => {
                    self.target.write(Document::from_valid(document))?;
                    self.pending = None;
                }
                None => self.records = None,
            }
        }
        self.target.finish()
    }
}

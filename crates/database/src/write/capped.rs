//! Creation of capped collections from other collections: `convertToCapped` and
//! `cloneCollectionAsCapped`.

use super::InsertRequest;
use crate::catalog::options;
use crate::database::Database;
use crate::exec::NaturalOrder;
use crate::operation::Operation;
use crate::scope::Scope;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Namespace, Result, bail, err};
use query::Context;
use storage::store::Committed;
use storage::{Direction, Hints};

impl Database {
    /// Converts a collection to a capped collection in place. Keeps the newest documents that fit.
    /// Drops all indexes except `_id`, as MongoDB does.
    ///
    /// Errors: NamespaceNotFound, CommandNotSupportedOnView, invalid sizes.
    pub fn convert_to_capped(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        size: i64,
        context: &Context,
    ) -> Result<Committed> {
        let parsed = options::parse(capped(size).view(), namespace, context)?;
        let collection = self.catalog().require(namespace)?.clone();
        if collection.data()?.clustered_index().is_some() {
            bail!(InvalidOptions, "cannot convert a clustered collection to a capped one: {namespace}");
        }
        let interrupt = context.interrupt.as_ref();
        self.drop_indexes(interrupt, namespace, None)?;
        let committed = self.change_collection(interrupt, namespace, |collection| {
            collection.options.capped = parsed.capped;
            Ok(())
        })?;
        self.trim_capped(operation, namespace, context)?;
        Ok(committed)
    }

    /// Copies a collection's newest documents into a new capped collection, without the indexes.
    ///
    /// Errors: NamespaceNotFound, NamespaceExists, CommandNotSupportedOnView, invalid sizes.
    pub fn clone_as_capped(&self, from: &Namespace, to: &Scope, size: i64) -> Result<()> {
        let (scope, Scope { operation, namespace: to, context, .. }) = (to, to);
        let view = self.confirmed_view();
        let source = view.catalog.get(from).cloned();
        let source =
            source.ok_or_else(|| err!(NamespaceNotFound, "source collection {from} does not exist"))?;
        let target = view.catalog.get(to);
        if target.is_some_and(|target| target.is_view()) {
            bail!(CommandNotSupportedOnView, "cloneCollectionAsCapped to the view {to}");
        }
        if target.is_some() {
            bail!(
                NamespaceExists,
                "cloneCollectionAsCapped failed - destination collection {to} already exists. source collection: {from}"
            );
        }
        let data = source.data()?;
        self.create_collection(operation, to, capped(size).view(), context)?;
        let mut records =
            NaturalOrder::of(data).walk(&view.snapshot, Direction::Forward, Hints::default())?;
        while let Some((_, value)) = records.next()? {
            context.interrupt.check()?;
            let insert = InsertRequest { document: Document::from_valid(&value), bypass_validation: true };
            self.insert(scope, insert)?;
        }
        Ok(())
    }
}

/// Returns the options of a capped collection of `size` bytes.
fn capped(size: i64) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"capped", true).append(c"size", size);
    out.finish()
}

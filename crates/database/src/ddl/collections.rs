//! Creating, dropping, renaming and changing collections.

use crate::clustered;
use crate::collection::{Collection, Data, Options};
use crate::commit::{Committed, Transaction};
use crate::database::Database;
use crate::index::{Index, IndexSpec};
use crate::options;
use crate::validator::Validator;
use base::bson::Document;
use base::{Namespace, Result, err};
use query::Context;
use std::sync::Arc;

/// A renameCollection, parsed.
pub struct RenameRequest {
    /// The collection to rename.
    pub from: Namespace,
    /// Its new name, perhaps in another database.
    pub to: Namespace,
    /// Drops a collection that has the new name already.
    pub drop_target: bool,
}

impl Database {
    /// Creates a collection or view. Creating it again with the same options does nothing.
    ///
    /// Errors: NamespaceExists where options differ, and those of the options.
    pub fn create_collection(
        &self,
        namespace: &Namespace,
        options: Document<'_>,
        context: &Context,
    ) -> Result<Option<Committed>> {
        let options = options::parse(options, namespace, context)?;
        let mut transaction = self.begin();
        if let Some(existing) = transaction.catalog().get(namespace) {
            if existing.options.to_document() == options.to_document() {
                return Ok(None);
            }
            return Err(err!(
                NamespaceExists,
                "namespace {namespace} already exists, but with different options: {}",
                existing.options.to_document()
            ));
        }
        check_database_writable(namespace)?;
        if options.view.is_some() {
            transaction.check_view(namespace, &options, context)?;
        }
        transaction.create(namespace, options, self.now_millis())?;
        transaction.commit().map(Some)
    }

    /// The collection, created with default options if it isn't there.
    pub(crate) fn collection_or_create(
        &self,
        namespace: &Namespace,
        _context: &Context,
    ) -> Result<Arc<Collection>> {
        if matches!(namespace.collection(), "system.views" | "system.profile") {
            return Err(err!(InvalidNamespace, "cannot write to {namespace}"));
        }
        if let Some(collection) = self.collection(namespace) {
            collection.data()?;
            return Ok(collection);
        }
        check_database_writable(namespace)?;
        let mut transaction = self.begin();
        if let Some(collection) = transaction.catalog().get(namespace) {
            return Ok(collection.clone());
        }
        let created = transaction.create(namespace, Options::default(), self.now_millis())?;
        transaction.commit()?;
        Ok(created)
    }

    /// Drops a collection or view; returns it and the commit, or `None` if there was none.
    pub fn drop_collection(&self, namespace: &Namespace) -> Result<Option<(Arc<Collection>, Committed)>> {
        let mut transaction = self.begin();
        let Some(dropped) = transaction.drop_collection(namespace) else { return Ok(None) };
        Ok(Some((dropped, transaction.commit()?)))
    }

    /// Drops every collection of a database; whether there was one.
    pub fn drop_database(&self, database: &str) -> Result<Option<Committed>> {
        let mut transaction = self.begin();
        let namespaces: Vec<Namespace> =
            transaction.catalog().collections(database).map(|c| c.namespace.clone()).collect();
        if namespaces.is_empty() {
            return Ok(None);
        }
        for namespace in &namespaces {
            transaction.drop_collection(namespace);
        }
        transaction.commit().map(Some)
    }

    /// Renames a collection; its data stays where it is.
    ///
    /// Errors: NamespaceNotFound, NamespaceExists, CommandNotSupportedOnView, IllegalOperation.
    pub fn rename_collection(&self, request: &RenameRequest) -> Result<Committed> {
        let RenameRequest { from, to, drop_target } = request;
        if from == to {
            return Err(err!(IllegalOperation, "Can't rename a collection to itself"));
        }
        check_database_writable(to).map_err(|error| error.context("error with target namespace"))?;
        let mut transaction = self.begin();
        let source = transaction.catalog().get(from).cloned();
        let source =
            source.ok_or_else(|| err!(NamespaceNotFound, "Source collection {from} does not exist"))?;
        if source.is_view() {
            return Err(err!(CommandNotSupportedOnView, "cannot rename view: {from}"));
        }
        match transaction.catalog().get(to) {
            None => {}
            Some(target) if target.is_view() => {
                return Err(err!(NamespaceExists, "a view already exists with that name: {to}"));
            }
            Some(_) if !drop_target => return Err(err!(NamespaceExists, "target namespace exists")),
            Some(_) => {
                transaction.drop_collection(to);
            }
        }
        transaction.remove_collection(from);
        let mut renamed = Collection::clone(&source);
        renamed.namespace = to.clone();
        if from.database() != to.database() {
            // Across databases it is another collection that happens to hold the same documents.
            renamed.uuid = transaction.new_uuid();
        }
        transaction.put_collection(Arc::new(renamed))?;
        transaction.commit()
    }

    /// Changes a collection's validator; fields that are `None` stay.
    pub fn set_validator(
        &self,
        namespace: &Namespace,
        validator: Option<Document<'_>>,
        level: Option<&str>,
        action: Option<&str>,
        context: &Context,
    ) -> Result<Committed> {
        self.change_collection(namespace, |collection| {
            collection.data()?;
            let now = collection.options.validator.clone();
            let empty = Document::EMPTY;
            let filter = validator.or(now.as_ref().map(|v| v.filter())).unwrap_or(empty);
            let level = level.or(now.as_ref().map(|v| v.level_name())).unwrap_or("strict");
            let action = action.or(now.as_ref().map(|v| v.action_name())).unwrap_or("error");
            let context = context.with_collation(collection.options.collation.clone());
            let changed = Validator::parse(filter, Some(level), Some(action), &context)?;
            let plain = changed.filter().is_empty() && level == "strict" && action == "error";
            collection.options.validator = if plain { None } else { Some(Arc::new(changed)) };
            Ok(())
        })
    }

    /// Changes the limits of a capped collection.
    pub fn set_capped(
        &self,
        namespace: &Namespace,
        size: Option<i64>,
        max: Option<i64>,
    ) -> Result<Committed> {
        self.change_collection(namespace, |collection| {
            let Some(capped) = &mut collection.options.capped else {
                return Err(err!(InvalidOptions, "Collection must be capped."));
            };
            capped.size = size.unwrap_or(capped.size);
            capped.max = max.unwrap_or(capped.max).max(0);
            Ok(())
        })
    }

    /// Changes the age at which documents of a clustered collection expire; `None` is never.
    ///
    /// Errors: InvalidOptions for a collection that isn't clustered, and for a bad age.
    pub fn set_expiry(&self, namespace: &Namespace, seconds: Option<i64>) -> Result<Committed> {
        self.change_collection(namespace, |collection| {
            if collection.options.clustered.is_none() {
                return Err(err!(
                    InvalidOptions,
                    "'expireAfterSeconds' is only supported on collections clustered by _id"
                ));
            }
            collection.options.expire_after_seconds = seconds.map(clustered::expiry).transpose()?;
            Ok(())
        })
    }

    /// Replaces a collection by a changed copy of itself.
    pub(crate) fn change_collection(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut Collection) -> Result<()>,
    ) -> Result<Committed> {
        let mut transaction = self.begin();
        let mut collection = Collection::clone(transaction.catalog().require(namespace)?);
        change(&mut collection)?;
        transaction.put_collection(Arc::new(collection))?;
        transaction.commit()
    }
}

impl Transaction<'_> {
    /// Makes a collection or view and puts it into the catalog.
    pub(crate) fn create(
        &mut self,
        namespace: &Namespace,
        options: Options,
        now_millis: i64,
    ) -> Result<Arc<Collection>> {
        let data = match options.view {
            Some(_) => None,
            None => {
                let ident = self.create_ident();
                let spec = match &options.clustered {
                    Some(name) => IndexSpec::clustered(name, options.collation.clone()),
                    None => IndexSpec::id(options.collation.clone()),
                };
                let mut indexes = Vec::new();
                if !options.no_id_index {
                    indexes.push(Arc::new(Index::new(spec, self.create_ident(), &[], now_millis)));
                }
                let counts = Arc::<crate::collection::Counts>::default();
                counts.next_record.store(1, std::sync::atomic::Ordering::Relaxed);
                Some(Data { ident, indexes, counts, index_filters: Arc::default() })
            }
        };
        let collection =
            Arc::new(Collection { namespace: namespace.clone(), uuid: self.new_uuid(), options, data });
        self.put_collection(collection.clone())?;
        Ok(collection)
    }

    /// Takes a collection or view out of the catalog and drops its trees.
    pub(crate) fn drop_collection(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog().get(namespace)?;
        let dropped = self.remove_collection(namespace)?;
        for ident in dropped.data.iter().flat_map(Data::idents) {
            self.drop_ident(ident);
        }
        Some(dropped)
    }
}

/// `system.` collections are not for clients to create, but for the few that MongoDB lets them.
fn check_database_writable(namespace: &Namespace) -> Result<()> {
    let name = namespace.collection();
    let allowed = ["system.js", "system.users", "system.profile", "system.views", "system.version"];
    if name.starts_with("system.") && !allowed.contains(&name) && namespace.database() != "config" {
        return Err(err!(InvalidNamespace, "Invalid system namespace: {namespace}"));
    }
    Ok(())
}

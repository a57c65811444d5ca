//! Commands that create, drop, rename and change collections.

use crate::catalog::collection::{Collection, Data, Options};
use crate::catalog::{Catalog, options};
use crate::changes::logged::{LoggedCommand, PROFILE};
use crate::commit::catalog_change::CatalogChange;
use crate::database::Database;
use crate::ddl::views::check_pipeline;
use crate::operation::Operation;
use base::bson::Document;
use base::{Namespace, Result, bail, err};
use query::{Context, Interrupt};
use std::sync::Arc;
use storage::store::Committed;

/// A parsed renameCollection.
pub struct RenameRequest {
    /// The collection to rename.
    pub from: Namespace,
    /// Its new name, possibly in another database.
    pub to: Namespace,
    /// Drops an existing collection with the new name.
    pub drop_target: bool,
    /// Required UUID of the collection.
    pub uuid: Option<[u8; 16]>,
    /// Required UUID of the dropped collection.
    pub target_uuid: Option<[u8; 16]>,
}

impl RenameRequest {
    /// Returns a request without required UUIDs.
    pub fn new(from: Namespace, to: Namespace, drop_target: bool) -> RenameRequest {
        RenameRequest { from, to, drop_target, uuid: None, target_uuid: None }
    }
}

impl Database {
    /// Creates a collection or view. Does nothing if it exists with the same options.
    ///
    /// Errors: NamespaceExists for other options, and errors of the options.
    pub fn create_collection(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        options: Document<'_>,
        context: &Context,
    ) -> Result<Option<Committed>> {
        self.create_collection_as(operation, namespace, options, None, context)
    }

    /// Creates a collection with a given UUID, from another member's oplog.
    ///
    /// Errors: as [`create_collection`](Self::create_collection).
    pub fn create_collection_as(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        options: Document<'_>,
        uuid: Option<[u8; 16]>,
        context: &Context,
    ) -> Result<Option<Committed>> {
        options::check_new(options, context)?;
        let options = options::parse(options, namespace, context)?;
        if operation.transaction().is_some() {
            check_makeable(namespace)?;
            if namespace.collection().starts_with("system.") {
                bail!(
                    OperationNotSupportedInTransaction,
                    "Cannot create system collection {namespace} within a transaction."
                );
            }
        }
        if options.view.is_some() && namespace.collection() == "system.views" {
            bail!(
                InvalidNamespace,
                "Cannot create a view called 'system.views': this is a reserved system namespace"
            );
        }
        if options.view.is_some() && namespace.collection() == "system.profile" {
            bail!(IllegalOperation, "Cannot create system.profile as a view");
        }
        if let Some(transaction) = operation.transaction() {
            if options.view.is_some() {
                bail!(
                    OperationNotSupportedInTransaction,
                    "Cannot create a view in a multi-document transaction."
                );
            }
            let view = transaction.view();
            // Transactions must create a new collection. An existing one may belong to another
            // client.
            if view.catalog.get(namespace).is_some() {
                bail!(NamespaceExists, "Collection {namespace} already exists.");
            }
            self.create_within(transaction, namespace, options)?;
            return Ok(Some(Committed::default()));
        }
        // A pipeline is parsed before the commit lock is taken, unless the name seems to be in use.
        let mut is_checked = options.view.is_none();
        if let (Some(view), None) = (&options.view, self.known_catalog().get(namespace)) {
            check_makeable(namespace)?;
            check_pipeline(namespace, view, context)?;
            is_checked = true;
        }
        let created = self.change_catalog(operation, |change| {
            if let Some(existing) = change.catalog().get(namespace) {
                if existing.options.to_document() == options.to_document() {
                    return Ok(None);
                }
                bail!(
                    NamespaceExists,
                    "namespace {namespace} already exists, but with different options: {}",
                    existing.options.to_document()
                );
            }
            check_makeable(namespace)?;
            if let (Some(view), false) = (&options.view, is_checked) {
                check_pipeline(namespace, view, context)?;
            }
            change.check_view(namespace, &options)?;
            let made = change.make(namespace, options.clone(), uuid)?;
            change.put_collection(made).map(Some)
        })?;
        Ok(created.map(|(_, committed)| committed))
    }

    /// Returns the collection or view as visible to an operation, if it exists.
    pub(crate) fn existing_collection(
        &self,
        operation: &Operation,
        namespace: &Namespace,
    ) -> Option<Arc<Collection>> {
        match operation.transaction() {
            Some(transaction) => transaction.view().catalog.get(namespace).cloned(),
            None => self.known_catalog().get(namespace).cloned(),
        }
    }

    /// Returns the collection. Creates it with default options if it does not exist.
    pub(crate) fn collection_or_create(
        &self,
        operation: &Operation,
        namespace: &Namespace,
    ) -> Result<Arc<Collection>> {
        loop {
            if let Some(collection) = self.existing_collection(operation, namespace) {
                collection.data()?;
                return Ok(collection);
            }
            check_writable(namespace)?;
            if let Some(transaction) = operation.transaction() {
                return self.create_within(transaction, namespace, Options::default());
            }
            let created = self.change_catalog(operation, |change| {
                if change.catalog().get(namespace).is_some() {
                    return Ok(None);
                }
                let made = change.make(namespace, Options::default(), None)?;
                change.put_collection(made).map(Some)
            })?;
            if let Some((created, _)) = created {
                return Ok(created);
            }
        }
    }

    /// Drops a collection or view. Returns it with the commit, or `None` if it did not exist. Waits
    /// for open transactions that have written to it.
    ///
    /// Errors: interrupted waits.
    pub fn drop_collection(
        &self,
        interrupt: &dyn Interrupt,
        namespace: &Namespace,
    ) -> Result<Option<(Arc<Collection>, Committed)>> {
        self.change_catalog(interrupt, |change| Ok(change.drop_collection(namespace)))
    }

    /// Drops every view of a database, like MongoDB's drop of `system.views`. Returns `None` if it had none.
    ///
    /// Errors: interrupted waits.
    pub fn drop_views(&self, interrupt: &dyn Interrupt, database: &str) -> Result<Option<Committed>> {
        let dropped = self.change_catalog(interrupt, |change| {
            let views = change.catalog().collections(database).filter(|collection| collection.is_view());
            let views: Vec<Namespace> = views.map(|view| view.namespace.clone()).collect();
            views.iter().for_each(|view| drop(change.drop_collection(view)));
            Ok((!views.is_empty()).then_some(()))
        })?;
        Ok(dropped.map(|(_, committed)| committed))
    }

    /// Drops every collection of a database. Returns `None` if it had none. Waits like
    /// [`drop_collection`](Self::drop_collection).
    ///
    /// Errors: interrupted waits.
    pub fn drop_database(&self, interrupt: &dyn Interrupt, database: &str) -> Result<Option<Committed>> {
        let dropped = self.change_catalog(interrupt, |change| {
            let collections: Vec<Arc<Collection>> = change.catalog().collections(database).cloned().collect();
            for collection in &collections {
                // As in MongoDB, the entry of the database stands for its views.
                match collection.is_view() {
                    true => change.remove_collection(&collection.namespace),
                    false => change.drop_collection(&collection.namespace),
                };
            }
            change.log(|| LoggedCommand::drop_database(database));
            Ok((!collections.is_empty()).then_some(()))
        })?;
        Ok(dropped.map(|(_, committed)| committed))
    }

    /// Renames a collection without moving its data.
    ///
    /// Errors: NamespaceNotFound, NamespaceExists, CommandNotSupportedOnView, IllegalOperation,
    /// CollectionUUIDMismatch.
    pub fn rename_collection(&self, interrupt: &dyn Interrupt, request: &RenameRequest) -> Result<Committed> {
        self.rename_checked(interrupt, request, |_| Ok(()))
    }

    /// Renames a collection if a check passes on the catalog of the commit.
    ///
    /// Errors: as [`rename_collection`](Self::rename_collection); errors of the check.
    pub(crate) fn rename_checked(
        &self,
        interrupt: &dyn Interrupt,
        request: &RenameRequest,
        check: impl Fn(&Catalog) -> Result<()>,
    ) -> Result<Committed> {
        let RenameRequest { from, to, drop_target, uuid, target_uuid } = request;
        if from == to {
            bail!(IllegalOperation, "Can't rename a collection to itself");
        }
        check_creatable(to).map_err(|error| error.context("error with target namespace"))?;
        self.must_change_catalog(interrupt, |change| {
            check(change.catalog())?;
            change.catalog().check_uuid(from, *uuid)?;
            change.catalog().check_uuid(to, *target_uuid)?;
            let source = change.catalog().get(from).cloned();
            let source =
                source.ok_or_else(|| err!(NamespaceNotFound, "Source collection {from} does not exist"))?;
            if source.is_view() {
                bail!(CommandNotSupportedOnView, "cannot rename view: {from}");
            }
            match change.catalog().get(to) {
                None => {}
                Some(target) if target.is_view() => {
                    bail!(NamespaceExists, "a view already exists with that name: {to}");
                }
                Some(_) if !drop_target => bail!(NamespaceExists, "target namespace exists"),
                Some(target) => {
                    let target = target.clone();
                    change.drop_collection(to);
                    // The log entry of the rename includes the drop.
                    change.commands.clear();
                    change.log(|| LoggedCommand::rename(&source, to, Some(&target)));
                }
            }
            if change.commands.is_empty() {
                change.log(|| LoggedCommand::rename(&source, to, None));
            }
            // Checked while the old database exists: its last collection may be the renamed one.
            change.catalog().check_case(to.database())?;
            change.remove_collection(from);
            let mut renamed = Collection::clone(&source);
            renamed.namespace = to.clone();
            if from.database() != to.database() {
                // A rename to another database makes a new collection with the same documents.
                renamed.uuid = change.new_uuid();
            }
            change.put_changed(renamed).map(drop)
        })
    }
}

impl CatalogChange<'_> {
    /// Makes a collection or view and its trees. The caller puts it into the catalog.
    pub(super) fn make(
        &mut self,
        namespace: &Namespace,
        options: Options,
        uuid: Option<[u8; 16]>,
    ) -> Result<Collection> {
        if self.database().is_oplog(namespace) {
            bail!(IllegalOperation, "{namespace} is the oplog, which is read-only");
        }
        let mut collection = self.database().new_collection(namespace, options);
        collection.uuid = uuid.unwrap_or(collection.uuid);
        let idents = collection.data.iter().flat_map(Data::idents);
        idents.for_each(|ident| self.batch().create(ident));
        self.log(|| LoggedCommand::create(&collection));
        Ok(collection)
    }

    /// Takes a collection or view out of the catalog and drops its trees.
    pub(crate) fn drop_collection(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        self.catalog().get(namespace)?;
        let dropped = self.remove_collection(namespace)?;
        self.log(|| LoggedCommand::drop(&dropped));
        for ident in dropped.data.iter().flat_map(Data::idents) {
            self.drop_ident(ident);
        }
        Some(dropped)
    }
}

/// Checks that clients may write to a collection of this name.
///
/// Errors: InvalidNamespace for collections that only the server writes, and errors of
/// [`check_creatable`].
pub fn check_writable(namespace: &Namespace) -> Result<()> {
    if matches!(namespace.collection(), "system.views" | "system.profile") {
        bail!(InvalidNamespace, "cannot write to {namespace}");
    }
    check_creatable(namespace)
}

/// Whether clients may make a collection of this name: also the profiler's, whose size they may want to choose.
///
/// Errors: InvalidNamespace.
fn check_makeable(namespace: &Namespace) -> Result<()> {
    match namespace.collection() {
        PROFILE => check_creatable(namespace),
        _ => check_writable(namespace),
    }
}

/// Clients cannot create collections with a `$` in the name or with a name that is too long, and only a few of the
/// `system.` collections.
///
/// Errors: InvalidNamespace.
pub(crate) fn check_creatable(namespace: &Namespace) -> Result<()> {
    let name = namespace.collection();
    if name.contains('$') {
        bail!(InvalidNamespace, "Invalid collection name: {name}");
    }
    let allowed =
        ["system.js", "system.users", "system.roles", "system.profile", "system.views", "system.version"];
    let is_own = namespace.database() == "config" || namespace.as_str() == "local.system.replset";
    if name.starts_with("system.") && !allowed.contains(&name) && !is_own {
        bail!(InvalidNamespace, "Invalid system namespace: {namespace}");
    }
    namespace.check_length()
}

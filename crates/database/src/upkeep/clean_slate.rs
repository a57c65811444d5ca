//! Copies of databases: fork, snapshot, restore and reset, each in one commit; and backups of everything.
//!
//! A fork of a database forks each tree, in constant time per tree, and a catalog entry for each
//! collection. Its cost grows with the number of collections and indexes, never with documents. A
//! snapshot is a fork without a namespace, and a restore forks it back. One kind of copy serves all
//! operations, and concurrent readers keep the trees of their view.
//!
//! Copies have UUIDs of their own. An open cursor, or a statement planned earlier, uses them to detect that its
//! collection is gone.
//!
//! A backup is a cursor over byte chunks: see the module `backup` of `storage`. The first document names the kind of
//! backup. Later documents contain the bytes in order. A cursor holds a snapshot and no lock, so a slow reader blocks
//! nothing.

use crate::catalog::collection::{Collection, Data};
use crate::catalog::{SavedState, StateName};
use crate::changes::logged::LoggedCommand;
use crate::commit::catalog_change::CatalogChange;
use crate::cursor::Cursor;
use crate::database::Database;
use crate::index::Index;
use crate::operation::Operation;
use crate::storage_error;
use base::bson::{Builder, Value};
use base::namespace::{check_database_name, is_internal_database};
use base::{Namespace, Result, bail, err};
use query::{Interrupt, Row, Stage};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use storage::store::Committed;
use storage::{Backup, Since};

/// System databases: never replaced nor emptied.
const OWN: [&str; 3] = ["admin", "config", "local"];

/// Maximum number of bytes of a backup in one document. A commit may be larger than the largest document.
const CHUNK_BYTES: usize = 8 << 20;

impl Database {
    /// Makes `to` a copy-on-write fork of `from`: collections, views, indexes, validators, options
    /// and documents. Later writes to either are invisible to the other.
    ///
    /// Errors: NamespaceNotFound if `from` does not exist. NamespaceExists if `to` exists and `replace` is false.
    /// IllegalOperation for system databases and for a fork onto itself. InvalidNamespace. DatabaseDifferCase.
    pub fn fork_database(
        &self,
        interrupt: &dyn Interrupt,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<Committed> {
        check_database_name(from)?;
        check_replaceable(to)?;
        if from == to {
            bail!(IllegalOperation, "cannot fork database '{from}' onto itself");
        }
        self.must_change_catalog(interrupt, |change| {
            let origin = change.collections(from)?;
            if change.has_database(to) && !replace {
                bail!(NamespaceExists, "database '{to}' exists; replace: true replaces it");
            }
            change.replace_database(to, &origin, self.now_millis())
        })
    }

    /// Saves the present state of a database under a name, for any number of restores.
    ///
    /// Errors: NamespaceNotFound if the database does not exist. NamespaceExists if the snapshot exists and `replace`
    /// is false.
    pub fn snapshot_database(
        &self,
        interrupt: &dyn Interrupt,
        name: &StateName,
        replace: bool,
    ) -> Result<Committed> {
        self.must_change_catalog(interrupt, |change| {
            let origin = change.collections(&name.database)?;
            if let Some(state) = change.catalog().saved(name).cloned() {
                if !replace {
                    bail!(
                        NamespaceExists,
                        "database '{}' has a snapshot named '{}'; replace: true replaces it",
                        name.database,
                        name.name
                    );
                }
                change.drop_saved(&state);
            }
            let now = self.now_millis();
            let fork = |collection: &Arc<Collection>| {
                Arc::new(change.fork(collection, collection.namespace.clone(), now))
            };
            let collections = origin.iter().map(fork).collect();
            change.put_saved(Arc::new(SavedState { name: name.clone(), taken_millis: now, collections }));
            Ok(())
        })
    }

    /// Restores a database from a snapshot and discards its present contents. The snapshot stays.
    ///
    /// Errors: NamespaceNotFound if the snapshot does not exist. IllegalOperation for system databases.
    pub fn restore_database(&self, interrupt: &dyn Interrupt, name: &StateName) -> Result<Committed> {
        check_replaceable(&name.database)?;
        self.must_change_catalog(interrupt, |change| {
            let state = change.catalog().saved(name).cloned().ok_or_else(|| name.not_found())?;
            change.replace_database(&name.database, &state.collections, self.now_millis())
        })
    }

    /// Removes a snapshot. Errors: NamespaceNotFound if it does not exist.
    pub fn drop_snapshot(&self, interrupt: &dyn Interrupt, name: &StateName) -> Result<Committed> {
        self.must_change_catalog(interrupt, |change| {
            let state = change.catalog().saved(name).cloned().ok_or_else(|| name.not_found())?;
            change.drop_saved(&state);
            Ok(())
        })
    }

    /// Empties every collection of a database. Collections, views, indexes, validators, options and UUIDs stay. Returns
    /// the number of removed documents and the commit; `None` if the database does not exist.
    ///
    /// Errors: IllegalOperation for system databases, InvalidNamespace.
    pub fn reset_database(
        &self,
        interrupt: &dyn Interrupt,
        database: &str,
    ) -> Result<(u64, Option<Committed>)> {
        check_replaceable(database)?;
        let reset = self.change_catalog(interrupt, |change| {
            if !change.has_database(database) {
                return Ok(None);
            }
            let now = self.now_millis();
            let mut deleted = 0;
            for collection in change.collections(database)? {
                if !collection.is_view() {
                    if collection.records() > 0 {
                        change.log(|| LoggedCommand::drop(&collection));
                        change.log(|| LoggedCommand::create(&collection));
                    }
                    deleted += change.clear(&collection)?;
                    let emptied = change.catalog().get(&collection.namespace).cloned();
                    change.forget_multikey(&emptied.unwrap_or(collection), now)?;
                }
            }
            Ok(Some(deleted))
        })?;
        let Some((deleted, committed)) = reset else { return Ok((0, None)) };
        self.counters.documents_deleted.fetch_add(deleted, Relaxed);
        Ok((deleted, Some(committed)))
    }
}

impl CatalogChange<'_> {
    fn has_database(&self, database: &str) -> bool {
        self.catalog().collections(database).next().is_some()
    }

    /// Returns the collections and views of a database without temporary collections.
    ///
    /// Errors: NamespaceNotFound if the database does not exist.
    fn collections(&self, database: &str) -> Result<Vec<Arc<Collection>>> {
        if !self.has_database(database) {
            bail!(NamespaceNotFound, "database '{database}' does not exist");
        }
        let collections = self.catalog().collections(database);
        Ok(collections.filter(|collection| !collection.is_temporary()).cloned().collect())
    }

    /// Replaces the collections of a database by forks.
    fn replace_database(&mut self, to: &str, origin: &[Arc<Collection>], now_millis: i64) -> Result<()> {
        let dropped: Vec<Namespace> = self.catalog().collections(to).map(|c| c.namespace.clone()).collect();
        for namespace in &dropped {
            self.drop_collection(namespace);
        }
        for collection in origin {
            let namespace = Namespace::new(to, collection.namespace.collection())?;
            namespace.check_length()?;
            let fork = self.fork(collection, namespace, now_millis);
            self.log(|| LoggedCommand::create(&fork));
            // A collection of an internal database may have other options than one of a user's.
            match is_internal_database(to) || is_internal_database(collection.namespace.database()) {
                true => self.put_changed(fork)?,
                false => self.put_collection(fork)?,
            };
        }
        Ok(())
    }

    /// Returns a copy-on-write fork of a collection under another namespace.
    fn fork(&mut self, origin: &Collection, namespace: Namespace, now_millis: i64) -> Collection {
        let data = origin.data.as_ref().map(|data| self.fork_data(data, now_millis));
        let (uuid, options) = (self.new_uuid(), origin.options.clone());
        Collection { namespace, uuid, options, data, generation: 0 }
    }

    /// Forks the trees of a collection. The copy starts without index builds, filters and cached plans.
    fn fork_data(&mut self, origin: &Data, now_millis: i64) -> Data {
        let ident = self.fork_ident(origin.ident);
        let fork = |index: &Arc<Index>| {
            let ident = self.fork_ident(index.ident);
            Arc::new(index.over(ident, true, now_millis))
        };
        let indexes = origin.indexes.iter().map(fork).collect();
        // Counts change only under the commit lock, which is held, so they match the forked trees.
        let counts = self.database().new_counts(ident);
        counts.records.store(origin.counts.records.load(Relaxed), Relaxed);
        counts.bytes.store(origin.counts.bytes.load(Relaxed), Relaxed);
        counts.next_record.store(origin.counts.next_record.load(Relaxed), Relaxed);
        Data::new(ident, indexes, counts)
    }

    /// Clears the multikey bits of an emptied collection's indexes, so that the plans of the next test do not depend on
    /// earlier documents.
    fn forget_multikey(&mut self, collection: &Arc<Collection>, now_millis: i64) -> Result<()> {
        let Some(data) = &collection.data else { return Ok(()) };
        if !data.indexes.iter().any(|index| index.is_multikey()) {
            return Ok(());
        }
        let fresh = |index: &Arc<Index>| Arc::new(index.over(index.ident, false, now_millis));
        let mut changed = Collection::clone(collection);
        changed.data = Some(Data { indexes: data.indexes.iter().map(fresh).collect(), ..data.clone() });
        self.put_collection(changed).map(drop)
    }
}

/// Checks that a database may be replaced or emptied. Errors: IllegalOperation, InvalidNamespace.
fn check_replaceable(database: &str) -> Result<()> {
    check_database_name(database)?;
    match OWN.contains(&database) {
        true => Err(err!(IllegalOperation, "the '{database}' database cannot be replaced or emptied")),
        false => Ok(()),
    }
}

impl Database {
    /// Begins a backup of everything committed, or of the commits after an earlier backup. The earlier backup is named
    /// by the id of the data directory and its end position; its later commits must still exist.
    ///
    /// Errors: CommandNotSupported on a store with its own means of backup; errors of the engine.
    pub fn backup_cursor(&self, operation: &Arc<Operation>, since: Option<(u64, u64)>) -> Result<Cursor> {
        let since = since.map(|(id, position)| Since { id, position });
        // No commit is under way at that moment: later commits are not in the backup and come after it.
        let (_, covers) = self.store.read_view_with_time(self.earliest_cluster_time());
        let backup = self.engine().backup(since, covers).map_err(|error| match error {
            storage::Error::Unavailable(_) => err!(
                CommandNotSupported,
                "the engine {} has no backups of its own: back up its server (pg_basebackup, and a WAL \
                 archive for point-in-time recovery)",
                self.engine().name()
            ),
            error => storage_error(error),
        })?;
        operation.mark_long();
        let pieces =
            Pieces { backup, started: false, piece: Vec::new(), taken: 0, operation: operation.clone() };
        let namespace = Namespace::new("admin", "$cmd.vellumBackup")?;
        let mut cursor = Cursor::new(namespace, Box::new(pieces), operation.clone());
        cursor.looks_ahead = true;
        Ok(cursor)
    }
}

/// The stage of a backup's cursor: one document about the kind, then one for each chunk.
struct Pieces {
    backup: Backup,
    started: bool,
    /// The latest piece of the backup, and the number of its bytes returned so far.
    piece: Vec<u8>,
    taken: usize,
    operation: Arc<Operation>,
}

impl Stage for Pieces {
    fn next(&mut self) -> Result<Option<Row>> {
        self.operation.check()?;
        let mut document = Builder::new();
        if !self.started {
            self.started = true;
            document.append(c"kind", self.backup.kind().name());
            document.append_optional(c"why", self.backup.why_full());
            return Ok(Some(document.finish().into()));
        }
        if self.taken == self.piece.len() {
            let Some(piece) = self.backup.piece().map_err(storage_error)? else { return Ok(None) };
            (self.piece, self.taken) = (piece, 0);
        }
        let rest = self.piece.get(self.taken..).unwrap_or_default();
        let bytes = rest.get(..CHUNK_BYTES).unwrap_or(rest);
        self.taken += bytes.len();
        document.append(c"data", Value::Binary { subtype: 0, bytes });
        Ok(Some(document.finish().into()))
    }
}

//! Backups while clients write, and their restores.

use crate::action::cursor;
use crate::model::Model;
use crate::process::{Process, Starter, verify};
use crate::world::World;
use base::bson::{Document, Value, extended_json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::testing::FaultyFiles;
use storage::{BackupDirectory, Restore};

/// Collections of replayed entries. They have no unique index, whose keys might collide during the replay.
const REPLAYED: [&str; 2] = ["c", "t"];
/// Numbers of replayed changes. A short replay may begin between the insert and the update of a deleted document.
const REPLAYS: [usize; 5] = [32, 16, 8, 4, 2];

impl World {
    /// Backs up while clients write, and checks the data of a server on the restored backup. `continues` is true if it
    /// must continue the earlier backup.
    pub(crate) fn back_up(&self, continues: bool) -> Result<(), String> {
        let before = self.model.borrow().latest();
        // Half of the other backups continue an earlier one.
        let earlier = self.backup.take().filter(|_| continues || self.random.below(2) == 0);
        let (files, restores) = earlier.unwrap_or_else(|| {
            let files = FaultyFiles::new();
            files.set_random(self.script.seed);
            (files, 0)
        });
        let directory = Path::new("/backup");
        let failed = |error: storage::Error| format!("backup: {error}");
        let shared: Arc<dyn storage::disk::Files> = Arc::new(files.clone());
        let mut target = BackupDirectory::open(shared.clone(), directory).map_err(failed)?;
        let since = target.since().map_or(String::new(), |since| {
            format!(
                "since: {{id: {{$numberLong: '{}'}}, position: {{$numberLong: '{}'}}}}, ",
                since.id as i64, since.position as i64
            )
        });
        let first =
            self.command(&format!("{{vellumBackup: 1, {since}cursor: {{batchSize: 1}}, $db: 'admin'}}"))?;
        // Clients run while the state of the backup is synced.
        let possible = self.model.borrow().views(before).views;
        let mut part = target.begin().map_err(failed)?;
        let mut reply = first;
        loop {
            let (id, batch) = cursor(reply.view())?;
            for piece in batch.iter().filter_map(|document| document.get("data")) {
                let Value::Binary { bytes, .. } = piece else { return Err("no bytes".to_string()) };
                part.write(bytes).map_err(failed)?;
            }
            if id == 0 {
                break;
            }
            for _ in 0..self.random.below(4) {
                self.step_client(self.random.index(self.clients.len() + 1));
            }
            let get_more = format!("getMore: {{$numberLong: '{id}'}}, collection: '$cmd.vellumBackup'");
            reply = self.command(&format!("{{{get_more}, batchSize: 1, $db: 'admin'}}"))?;
        }
        let kind = part.finish().map_err(failed)?;
        drop(target);
        let to = PathBuf::from(format!("/restored{restores}"));
        let from = directory.to_path_buf();
        let restore =
            Restore { from, archives: Vec::new(), until: None, to: to.clone(), cache_bytes: 16 << 20 };
        storage::restore(&shared, &restore).map_err(failed)?;
        // The model ignores the commits of this server.
        let starter = Starter { observe: |engine| engine, ..self.starter.clone() };
        let process = starter.start(files.clone(), &to, self.random.draw(), &|_| Ok(()))?;
        *self.backup.borrow_mut() = Some((files, restores + 1));
        self.mark(if kind == "full" { "full backups" } else { "incremental backups" });
        let mut verified = Ok(());
        let model = possible.into_iter().map(|(_, state)| Model::new(0, state)).find(|model| {
            verified = verify(&process, model);
            verified.is_ok()
        });
        let replayed = match &model {
            Some(model) => self.replay(&process).and_then(|()| verify(&process, model)),
            None => verified,
        };
        replayed.map_err(|message| format!("the restored backup: {message}"))
    }

    /// Applies the latest entries of a server's oplog to its own data several times. `mongorestore --oplogReplay` does
    /// the same once, with a dump that was made during these changes. The data must stay the same.
    fn replay(&self, process: &Process) -> Result<(), String> {
        let names = format!("{{$in: ['test.{}', 'test.{}']}}", REPLAYED[0], REPLAYED[1]);
        let filter = format!("{{$or: [{{ns: {names}}}, {{'o.applyOps.ns': {names}}}]}}");
        let find =
            format!("find: 'oplog.rs', filter: {filter}, sort: {{$natural: -1}}, limit: {}", REPLAYS[0]);
        let reply = process.command(&format!("{{{find}, $db: 'local'}}"))?;
        let (_, entries) = cursor(reply.view())?;
        let mut operations = Vec::new();
        for entry in entries.iter().rev() {
            let inner = entry.get("o").and_then(|change| change.as_document()?.get("applyOps")?.as_array());
            match inner {
                Some(inner) => operations
                    .extend(inner.iter().filter_map(|operation| document_change(operation.as_document()?))),
                None => operations.extend(document_change(*entry)),
            }
        }
        if operations.is_empty() {
            return Ok(());
        }
        self.mark("replays of an oplog");
        let latest = |count: usize| operations.iter().skip(operations.len().saturating_sub(count));
        let operations: Vec<&str> = REPLAYS.into_iter().flat_map(latest).map(String::as_str).collect();
        let operations = operations.join(", ");
        process.command(&format!("{{applyOps: [{operations}], alwaysUpsert: true, $db: 'admin'}}")).map(drop)
    }
}

/// Returns the part of an oplog entry that a replay needs, as extended JSON. `None` for other collections.
fn document_change(entry: Document<'_>) -> Option<String> {
    let collection = entry.get("ns")?.as_str()?.strip_prefix("test.")?;
    let kind = entry.get("op")?.as_str().filter(|kind| matches!(*kind, "i" | "u" | "d"))?;
    let change = extended_json::to_relaxed(entry.get("o")?.as_document()?);
    let key = entry.get("o2").and_then(|key| key.as_document()).map(extended_json::to_relaxed);
    let key = key.map_or(String::new(), |key| format!(", o2: {key}"));
    REPLAYED
        .contains(&collection)
        .then(|| format!("{{op: '{kind}', ns: 'test.{collection}', o: {change}{key}}}"))
}

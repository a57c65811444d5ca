//! Backups while clients write, and their restores.

use crate::action::cursor;
use crate::model::Model;
use crate::process::verify;
use crate::world::World;
use base::bson::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::testing::FaultyFiles;
use storage::{BackupDirectory, Restore};

impl World {
    /// Backs up while clients write, and checks the data of a server on the restored backup.
    pub(crate) fn back_up(&self) -> Result<(), String> {
        let before = self.model.borrow().latest();
        // Half of the backups continue an earlier one.
        let earlier = self.backup.take().filter(|_| self.random.below(2) == 0);
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
        let process = self.start(files.clone(), &to, &|_| Ok(()))?;
        *self.backup.borrow_mut() = Some((files, restores + 1));
        self.mark(if kind == "full" { "full backups" } else { "incremental backups" });
        let checks = possible.into_iter().map(|(_, state)| verify(&process, &Model::new(0, state)));
        checks
            .reduce(Result::or)
            .unwrap_or(Ok(()))
            .map_err(|message| format!("the restored backup: {message}"))
    }
}

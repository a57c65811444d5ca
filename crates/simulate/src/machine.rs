//! The machine: its time, its faults, its stops and starts.

use crate::process::Process;
use crate::world::{World, event};
use database::time;
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;
use storage::Durability;
use storage::testing::{FaultyFiles, Loss};

/// Greatest difference of the wall clock. Sessions must not time out after a jump.
pub(crate) const JUMP_MILLIS: u64 = 600_000;

impl World {
    /// Starts a server process on the files.
    pub(crate) fn open(&self) -> Result<(), String> {
        let files = self.files.borrow().clone();
        let process = self.start(files, Path::new("/data"), &|position| self.recovered(position))?;
        process.command("{setParameter: 1, ttlMonitorSleepSecs: 5, $db: 'admin'}")?;
        process.command("{setParameter: 1, scramIterationCount: 5000, $db: 'admin'}")?;
        if let Some(bytes) = self.mix.history {
            let set = format!("maxSnapshotHistoryBytes: {{$numberLong: '{bytes}'}}");
            process.command(&format!("{{setParameter: 1, {set}, $db: 'admin'}}"))?;
        }
        *self.process.borrow_mut() = Some(process);
        self.incarnation.set(self.incarnation.get() + 1);
        self.is_faulty.set(false);
        Ok(())
    }

    /// Starts a server process on a directory.
    pub(crate) fn start(
        &self,
        files: FaultyFiles,
        directory: &Path,
        recovered: &dyn Fn(u64) -> Result<(), String>,
    ) -> Result<Process, String> {
        self.starter.start(files, directory, self.random.draw(), recovered)
    }

    /// Moves the clock, and runs what is due then.
    pub(crate) fn pass_time(&self) {
        let millis = match self.random.below(100) {
            0..=69 => self.random.below(5),
            70..=94 => self.random.below(200),
            95..=98 => self.random.below(3000),
            _ => self.random.below(70_000),
        };
        self.move_to(self.now() + Duration::from_millis(millis));
    }

    /// Moves the clock to a time.
    pub(crate) fn move_to(&self, now: Duration) {
        let before = std::mem::replace(&mut self.trace.borrow_mut().report.simulated, now);
        time::simulate(Some(self.start + now));
        self.starter.clock.set(self.now_millis());
        let Some(engine) = self.engine() else { return };
        if before.as_millis() / 100 != now.as_millis() / 100 {
            engine.step_flush(true);
        }
        if before.as_secs() != now.as_secs() && self.depth.get() == 0 {
            let mut process = self.process.borrow_mut().take();
            if let Some(Process { background, server, .. }) = &mut process {
                self.is_ticking.set(true);
                background.tick(server);
                self.is_ticking.set(false);
            }
            *self.process.borrow_mut() = process;
        }
    }

    /// Locks writes while clients run.
    pub(crate) fn lock_writes(&self) {
        if self.command("{fsync: 1, lock: true, $db: 'admin'}").is_err() {
            return;
        }
        self.mark("locks of all writes");
        let before = self.model.borrow().latest();
        self.run_some_clients(12);
        // Statements of transactions wait 5 ms for the unlock. The background work would wait for it without an end.
        self.depth.set(1);
        self.move_to(self.now() + Duration::from_millis(self.random.below(10)));
        self.depth.set(0);
        self.run_some_clients(12);
        if self.model.borrow().latest() != before {
            self.fail("a commit while writes are locked".to_string());
        }
        if let Err(violation) = self.command("{fsyncUnlock: 1, $db: 'admin'}")
            && !self.has_stopped()
        {
            self.fail(violation);
        }
    }

    pub(crate) fn crash_if_stopped(&self) -> Result<(), String> {
        if !self.has_stopped() {
            return Ok(());
        }
        let loss = match self.random.below(4) {
            0 => Loss::Nothing,
            1 => Loss::Everything,
            2 => Loss::Some(self.random.draw()),
            _ => Loss::Blocks(self.random.draw()),
        };
        self.crash(loss)
    }

    /// Stops the machine, starts it again, and checks all data.
    pub(crate) fn crash(&self, loss: Loss) -> Result<(), String> {
        self.mark("crashes");
        event!(self, "crash: {loss:?}");
        for client in &self.clients {
            let mut client = client.borrow_mut();
            self.lose_reply(&mut client);
            (client.reading, client.seen_time) = (None, 0);
        }
        let mut files = self.files.borrow().restart(loss);
        self.watcher.borrow_mut().lose();
        // Dropped without a borrow: a slow sync at its end lets clients run.
        let process = self.process.take();
        drop(process);
        if self.random.below(8) == 0 {
            files = self.shorten_journal(&files)?;
        }
        *self.files.borrow_mut() = files;
        if loss == Loss::Nothing && self.durability() == Durability::Relaxed {
            // Only the process has ended.
            let mut model = self.model.borrow_mut();
            model.promised = model.promised.max(model.answered);
        }
        self.open()?;
        if self.starter.has_logins && self.first_user().is_none() {
            // Without the first user, nothing later exists. Another first user has other sessions.
            for client in &self.clients {
                let mut client = client.borrow_mut();
                (client.request, client.transaction) = (None, None);
            }
        }
        self.verify_present()?;
        // The stop may have removed commits from the journal that an incremental backup needs.
        let has_earlier = self.backup.borrow().is_some() && !self.is_finishing.get();
        match has_earlier && self.random.below(2) == 0 {
            true => self.back_up(true).or_else(|error| if self.has_stopped() { Ok(()) } else { Err(error) }),
            false => Ok(()),
        }
    }

    /// Starts a server on a copy of the files with a shortened journal. Returns another copy. Errors: the server starts
    /// although the synced mark names a commit that the journal has lost.
    fn shorten_journal(&self, files: &FaultyFiles) -> Result<FaultyFiles, String> {
        let (shortened, copy) = (files.restart(Loss::Nothing), files.restart(Loss::Nothing));
        let paths = shortened.paths();
        let mark = paths.iter().find(|path| path.ends_with("synced.mark")).and_then(|path| files.read(path));
        let synced = mark.and_then(|mark| synced(&mark));
        let segment = paths.iter().rfind(|path| path.extension().is_some_and(|suffix| suffix == "journal"));
        let (Some(synced), Some(segment)) = (synced, segment) else { return Ok(copy) };
        shortened.tamper(segment, |bytes| bytes.truncate(self.random.below(bytes.len() as u64 + 1) as usize));
        self.mark("shortened journals");
        let lost = Cell::new(None);
        let recovered = |position| {
            lost.set((position < synced).then_some(position));
            Err("enough".to_string())
        };
        let began = self.start(shortened, Path::new("/data"), &recovered);
        debug_assert!(began.is_err(), "the start goes on");
        match lost.get() {
            Some(position) => Err(format!("a server starts at commit {position} of {synced} synced commits")),
            None => Ok(copy),
        }
    }

    /// Takes over what the engine has recovered. Errors: it has lost a promised commit.
    pub(crate) fn recovered(&self, position: u64) -> Result<(), String> {
        event!(self, "recovered up to {position}");
        let mut model = self.model.borrow_mut();
        if model.versions.is_empty() {
            return Ok(());
        }
        if position < model.promised {
            return Err(format!("commit {} is lost, recovered up to {position}", model.promised));
        }
        model.recover(position);
        self.watcher.borrow_mut().recover(model.versions.len());
        for client in &self.clients {
            let mut client = client.borrow_mut();
            if let Some(request) = &mut client.request {
                request.from = request.from.min(model.latest());
            }
            if let Some(request) = &mut client.request
                && request.applied.as_ref().is_some_and(|(applied, _)| *applied > position)
            {
                self.mark("undone commits");
                request.applied = None;
            }
        }
        Ok(())
    }
}

/// Returns the position in a synced mark. `None` if it was torn.
fn synced(mark: &[u8]) -> Option<u64> {
    // Magic and directory id take 16 bytes.
    let (fields, checksum) = mark.split_at_checked(24)?;
    let position = fields.get(16..)?.first_chunk()?;
    (crc32c::crc32c(fields).to_le_bytes() == checksum).then(|| u64::from_le_bytes(*position))
}

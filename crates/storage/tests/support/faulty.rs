//! An in-memory file system with faults of real ones: it stops at a chosen write or sync, loses
//! unsynced data, has no room, or cannot sync.
//!
//! For each file it stores the contents visible to a reader, and the possible contents after a
//! crash of the machine. These are the contents at the last sync, with any of the later writes. The
//! names in a directory are as durable as its last sync. [`FaultyFiles::restart`] simulates the
//! restart of the machine.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::disk::{File, Files};

/// Loss of unsynced data at a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// No loss, and everything is durable.
    Nothing,
    /// All unsynced data.
    Everything,
    /// For each file, all except some first writes, the last one in part, and some changes of
    /// names. The seed selects them.
    Some(u64),
    /// Any of the blocks written since the last sync, in any order, and some changes of names. The
    /// seed selects them.
    Blocks(u64),
}

/// Unit that a disk writes atomically.
const SECTOR: usize = 512;

/// The file system. Clones share its state.
#[derive(Clone, Default)]
pub struct FaultyFiles {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    /// The files, by number.
    contents: BTreeMap<u64, Content>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    locked: BTreeSet<PathBuf>,
    next: u64,
    writes: u64,
    syncs: u64,
    stop_at_write: Option<u64>,
    stop_at_sync: Option<u64>,
    failing_syncs: u64,
    failing_reads: u64,
    /// Duration of a sync.
    slowness: Duration,
    /// Number of bytes by which files may still grow.
    free_bytes: Option<u64>,
    /// What [`Files::random`] returns, for tests that repeat bit for bit.
    random: Option<u64>,
    stopped: bool,
}

#[derive(Default, Clone)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl FaultyFiles {
    /// Returns an empty file system without faults.
    pub fn new() -> Self {
        FaultyFiles::default()
    }

    /// Stops at the nth write from the beginning, of which half is written, or at the nth change of
    /// a file's length or name, which is not made. Everything after it fails.
    pub fn stop_at_write(&self, write: u64) {
        self.disk.lock().stop_at_write = Some(write);
    }

    /// Stops at the nth sync from the beginning, which makes nothing durable.
    pub fn stop_at_sync(&self, sync: u64) {
        self.disk.lock().stop_at_sync = Some(sync);
    }

    /// Lets the next syncs fail and discard their data, like Linux.
    pub fn fail_syncs(&self, syncs: u64) {
        self.disk.lock().failing_syncs = syncs;
    }

    /// Sets the duration of each sync of a file.
    pub fn slow_syncs(&self, each: Duration) {
        self.disk.lock().slowness = each;
    }

    /// Lets the next reads fail.
    pub fn fail_reads(&self, reads: u64) {
        self.disk.lock().failing_reads = reads;
    }

    /// Sets the number of bytes by which files may grow; `None` for no limit.
    pub fn set_free_bytes(&self, free_bytes: Option<u64>) {
        self.disk.lock().free_bytes = free_bytes;
    }

    /// Removes all faults.
    pub fn heal(&self) {
        let mut disk = self.disk.lock();
        (disk.stop_at_write, disk.stop_at_sync, disk.free_bytes) = (None, None, None);
        (disk.failing_syncs, disk.failing_reads, disk.slowness) = (0, 0, Duration::ZERO);
    }

    /// Sets the number that all calls of [`Files::random`] return.
    pub fn set_random(&self, random: u64) {
        self.disk.lock().random = Some(random);
    }

    /// Stops now.
    pub fn stop(&self) {
        self.disk.lock().stopped = true;
    }

    /// Returns true once the file system has stopped.
    pub fn has_stopped(&self) -> bool {
        self.disk.lock().stopped
    }

    /// Returns the numbers of writes and syncs so far.
    pub fn counts(&self) -> (u64, u64) {
        let disk = self.disk.lock();
        (disk.writes, disk.syncs)
    }

    /// Returns the file system after a restart of the machine. This file system stops.
    #[must_use]
    pub fn restart(&self, loss: Loss) -> FaultyFiles {
        let mut before = self.disk.lock();
        before.stopped = true;
        let mut random = Random(match loss {
            Loss::Some(seed) | Loss::Blocks(seed) => seed,
            Loss::Nothing | Loss::Everything => 0,
        });
        let names = before.names_after(loss, &mut random);
        let mut disk = Disk { next: before.next, random: before.random, ..Disk::default() };
        for (number, content) in &before.contents {
            let bytes = match loss {
                Loss::Nothing => content.now.clone(),
                Loss::Everything => content.durable.clone(),
                Loss::Some(_) => content.some(&mut random),
                Loss::Blocks(_) => content.blocks(&mut random),
            };
            // Data on the disk at a start is durable.
            disk.contents
                .insert(*number, Content { durable: bytes.clone(), now: bytes, pending: Vec::new() });
        }
        disk.durable_names = names.clone();
        disk.names = names;
        FaultyFiles { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Returns the file system after the end of the process: unsynced data are there, and a later crash of the machine
    /// may lose them. This file system stops.
    #[must_use]
    pub fn end_process(&self) -> FaultyFiles {
        let mut before = self.disk.lock();
        before.stopped = true;
        let disk = Disk {
            contents: before.contents.clone(),
            names: before.names.clone(),
            durable_names: before.durable_names.clone(),
            next: before.next,
            random: before.random,
            ..Disk::default()
        };
        FaultyFiles { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Returns the contents of a file as visible to a process.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.disk.lock();
        Some(disk.contents.get(disk.names.get(path)?)?.now.clone())
    }

    /// Returns the contents of a file after a crash of the machine now.
    pub fn read_durable(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.disk.lock();
        Some(disk.contents.get(disk.names.get(path)?)?.durable.clone())
    }

    /// Changes the contents of a file without a write.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut disk = self.disk.lock();
        if let Some(number) = disk.names.get(path).copied()
            && let Some(content) = disk.contents.get_mut(&number)
        {
            change(&mut content.now);
            content.durable = content.now.clone();
            content.pending.clear();
        }
    }

    /// Returns the paths of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.disk.lock().names.keys().cloned().collect()
    }
}

/// A small generator with a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below a bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

impl Content {
    fn apply(bytes: &mut Vec<u8>, pending: &Pending) {
        match pending {
            Pending::Write(offset, written) => overwrite(bytes, *offset, written),
            Pending::SetLen(len) => set_len(bytes, *len),
        }
    }

    fn sync(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            Content::apply(&mut self.durable, &pending);
        }
    }

    /// Returns the durable contents with some of the later writes.
    fn some(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let applied = random.below(self.pending.len() + 1);
        self.pending.iter().take(applied).for_each(|pending| Content::apply(&mut bytes, pending));
        if let Some(Pending::Write(offset, written)) = self.pending.get(applied) {
            let torn = random.below(written.len());
            overwrite(&mut bytes, *offset, written.get(..torn).unwrap_or_default());
        }
        bytes
    }

    /// Returns the written contents, with the old version of some changed blocks.
    fn blocks(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.now.clone();
        for at in (0..bytes.len()).step_by(SECTOR) {
            let end = bytes.len().min(at + SECTOR);
            if random.below(2) == 0
                && let Some(block) = bytes.get_mut(at..end)
            {
                block.fill(0);
                let before = self.durable.get(at..end.min(self.durable.len())).unwrap_or_default();
                block.get_mut(..before.len()).into_iter().for_each(|part| part.copy_from_slice(before));
            }
        }
        bytes
    }
}

/// Cuts or extends a file. `Vec::resize` is slow in debug builds.
fn set_len(bytes: &mut Vec<u8>, len: usize) {
    bytes.truncate(len);
    bytes.extend_from_slice(&vec![0; len - bytes.len()]);
}

fn overwrite(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    if bytes.len() < offset + written.len() {
        set_len(bytes, offset + written.len());
    }
    if let Some(slot) = bytes.get_mut(offset..offset + written.len()) {
        slot.copy_from_slice(written);
    }
}

fn stopped() -> io::Error {
    io::Error::other("the machine has stopped")
}

impl Disk {
    fn check(&self) -> io::Result<()> {
        match self.stopped {
            true => Err(stopped()),
            false => Ok(()),
        }
    }

    /// Counts a change of the disk. Returns true if the file system stops here.
    fn count_write(&mut self) -> io::Result<bool> {
        self.check()?;
        self.writes += 1;
        self.stopped = self.stop_at_write == Some(self.writes);
        Ok(self.stopped)
    }

    fn count_sync(&mut self) -> io::Result<()> {
        self.check()?;
        self.syncs += 1;
        self.stopped = self.stop_at_sync == Some(self.syncs);
        self.check()
    }

    fn content(&mut self, number: u64) -> io::Result<&mut Content> {
        self.contents.get_mut(&number).ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Reserves room for the growth of a file, or returns the available room.
    fn grow(&mut self, by: usize) -> Result<(), usize> {
        match &mut self.free_bytes {
            Some(free_bytes) if (*free_bytes as usize) < by => Err(std::mem::take(free_bytes) as usize),
            Some(free_bytes) => {
                *free_bytes -= by as u64;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn write(&mut self, number: u64, bytes: &[u8], offset: usize) -> io::Result<()> {
        let stops = self.count_write()?;
        let len = self.content(number)?.now.len();
        let grows = (offset + bytes.len()).saturating_sub(len);
        let full = self.grow(grows).err();
        let mut written = bytes.len();
        if let Some(free_bytes) = full {
            written = written - grows + free_bytes;
        }
        if stops {
            written = written.min(bytes.len() / 2);
        }
        let part = bytes.get(..written).unwrap_or_default().to_vec();
        let content = self.content(number)?;
        overwrite(&mut content.now, offset, &part);
        content.pending.push(Pending::Write(offset, part));
        self.check()?;
        match full {
            Some(_) => Err(ErrorKind::StorageFull.into()),
            None => Ok(()),
        }
    }

    fn set_len(&mut self, number: u64, len: usize) -> io::Result<()> {
        if self.count_write()? {
            return Err(stopped());
        }
        let before = self.content(number)?.now.len();
        if let Err(free_bytes) = self.grow(len.saturating_sub(before)) {
            self.free_bytes = Some(free_bytes as u64);
            return Err(ErrorKind::StorageFull.into());
        }
        if let Some(free_bytes) = &mut self.free_bytes {
            *free_bytes += before.saturating_sub(len) as u64;
        }
        let content = self.content(number)?;
        set_len(&mut content.now, len);
        content.pending.push(Pending::SetLen(len));
        Ok(())
    }

    fn sync(&mut self, number: u64) -> io::Result<()> {
        self.count_sync()?;
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            self.content(number)?.pending.clear();
            return Err(io::Error::other("the disk does not answer"));
        }
        self.content(number)?.sync();
        Ok(())
    }

    /// Returns the names after a stop.
    fn names_after(&self, loss: Loss, random: &mut Random) -> BTreeMap<PathBuf, u64> {
        match loss {
            Loss::Nothing => return self.names.clone(),
            Loss::Everything => return self.durable_names.clone(),
            Loss::Some(_) | Loss::Blocks(_) => {}
        }
        // For each file either its old or its new names: a rename is atomic.
        let mut names = BTreeMap::new();
        for number in self.contents.keys() {
            let source = if random.below(2) == 0 { &self.names } else { &self.durable_names };
            let own = source.iter().filter(|(_, other)| *other == number);
            names.extend(own.map(|(path, number)| (path.clone(), *number)));
        }
        // A name that moved from one file to another always exists.
        for (path, number) in self.durable_names.iter().filter(|(path, _)| self.names.contains_key(*path)) {
            names.entry(path.clone()).or_insert(*number);
        }
        names
    }
}

impl Files for FaultyFiles {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        self.disk.lock().check()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk.lock();
        disk.check()?;
        let inside = disk.names.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk.lock();
        disk.check()?;
        let number = match disk.names.get(path) {
            Some(number) => *number,
            None if create => {
                if disk.count_write()? {
                    return Err(stopped());
                }
                disk.next += 1;
                let number = disk.next;
                disk.names.insert(path.to_path_buf(), number);
                disk.contents.insert(number, Content::default());
                number
            }
            None => return Err(ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(FaultyFile { disk: Arc::clone(&self.disk), number }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        if disk.count_write()? {
            return Err(stopped());
        }
        let number = disk.names.remove(from).ok_or(ErrorKind::NotFound)?;
        disk.names.insert(to.to_path_buf(), number);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        if disk.count_write()? {
            return Err(stopped());
        }
        let number = disk.names.remove(path).ok_or(ErrorKind::NotFound)?;
        let len = disk.content(number)?.now.len() as u64;
        if let Some(free_bytes) = &mut disk.free_bytes {
            *free_bytes += len;
        }
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.count_sync()?;
        let inside = |path: &PathBuf| path.parent() == Some(directory);
        let now: Vec<_> =
            disk.names.iter().filter(|(path, _)| inside(path)).map(|(p, n)| (p.clone(), *n)).collect();
        disk.durable_names.retain(|path, _| !inside(path));
        disk.durable_names.extend(now);
        Ok(())
    }

    fn random(&self) -> u64 {
        self.disk.lock().random.unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut disk = self.disk.lock();
        disk.check()?;
        match disk.locked.insert(path.to_path_buf()) {
            true => Ok(Box::new(Lock { disk: Arc::clone(&self.disk), path: path.to_path_buf() })),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

struct Lock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.disk.lock().locked.remove(&self.path);
    }
}

struct FaultyFile {
    disk: Arc<Mutex<Disk>>,
    number: u64,
}

impl std::fmt::Debug for FaultyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file {}", self.number)
    }
}

impl File for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        let mut disk = self.disk.lock();
        disk.check()?;
        Ok(disk.content(self.number)?.now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.check()?;
        if disk.failing_reads > 0 {
            disk.failing_reads -= 1;
            return Err(io::Error::other("the disk does not answer"));
        }
        let bytes = &disk.content(self.number)?.now;
        let offset = offset as usize;
        let from = bytes.get(offset..offset + buffer.len()).ok_or(ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.lock().write(self.number, bytes, offset as usize)
    }

    fn sync(&self) -> io::Result<()> {
        // Other threads write at this time.
        let slowness = self.disk.lock().slowness;
        if !slowness.is_zero() {
            crate::time::sleep(slowness);
        }
        self.disk.lock().sync(self.number)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.lock().set_len(self.number, len as usize)
    }
}

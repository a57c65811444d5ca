//! Salvage: copies the valid data of a damaged directory into a new engine.
//!
//! The old files are only read. Base and journal are copied into a new engine in `repair.tmp`, tree by tree and batch
//! by batch. Pages with a wrong checksum are omitted with their subtrees. The journal is replayed up to the first
//! damage, since later batches depend on the lost ones. The caller may change the new engine; [`Salvage::finish`] then
//! replaces the old one (`swap.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::base::{Base, TableItem, View};
use super::directory::{self, BASE_FILE, Directory};
use super::files::{Control, Files};
use super::journal::{SEGMENT_HEADER_BYTES, Segments};
use super::state::Table;
use super::swap::{self, SwapPaths};
use super::{DiskEngine, DiskOptions, SystemFiles, ownership, recovery};
use crate::{Batch, Compression, Durability, Engine, Error, Ident, Key, Op, Result, Value};

/// Maximum number of entries in a batch of the copy; a second limit is in bytes.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;
/// Size of the cache for the old base.
const BASE_CACHE: u64 = 64 << 20;

/// Data that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLoss {
    /// Its tree, if known.
    pub ident: Option<Ident>,
    /// Number of entries, or of changes to entries, if known.
    pub entries: Option<u64>,
    /// Description of the damage and its place.
    pub message: String,
}

/// The saved data in a new engine.
pub struct Salvage {
    engine: Arc<DiskEngine>,
    lost: Vec<DataLoss>,
    idents: BTreeSet<Ident>,
    /// The file system of both directories.
    files: Arc<dyn Files>,
    paths: SwapPaths,
    /// Lock of the old directory, held until the exchange.
    _lock: Box<dyn std::any::Any + Send + Sync>,
}

impl DiskEngine {
    /// Saves the valid data of a directory that may not open any more.
    ///
    /// Errors: `Io` of kind `ResourceBusy` if another process has the directory, and of kind `AlreadyExists` if the
    /// journal belongs to another directory; `Unavailable` if a newer version wrote it; `Corrupted` if nothing is
    /// readable; `Full` and `Io`. Errors leave the directory unchanged.
    pub fn salvage(options: &DiskOptions) -> Result<Salvage> {
        DiskEngine::salvage_on(Arc::new(SystemFiles), options)
    }

    /// Salvages a directory of another file system.
    pub fn salvage_on(files: Arc<dyn Files>, options: &DiskOptions) -> Result<Salvage> {
        let paths = SwapPaths::of(options);
        ownership::check_is_salvageable(&*files, &options.directory)?;
        let lock = Directory::lock(&*files, &options.directory)?;
        swap::resume(&*files, &paths)?;
        let mut lost = Vec::new();
        let segments = old_segments(&files, &paths, &mut lost)?;
        swap::clear(&*files, &paths)?;
        let inside = DiskOptions {
            directory: paths.new.clone(),
            journal_directory: Some(paths.new_journal.clone()),
            durability: Durability::None,
            archive: None,
            ..options.clone()
        };
        let engine = Arc::new(DiskEngine::open_on(Arc::clone(&files), &inside)?);
        let mut copy = Copy { engine: &engine, lost, idents: BTreeSet::new(), batch: Batch::new(), bytes: 0 };
        let position = copy.base(&files, &paths)?;
        copy.journal(&segments, position)?;
        let Copy { lost, idents, .. } = copy;
        if idents.is_empty() {
            let why = if lost.is_empty() { "it has no documents".to_string() } else { in_words(&lost) };
            engine.close()?;
            swap::clear(&*files, &paths)?;
            let message = format!("no data in {} could be recovered: {why}", options.directory.display());
            return Err(Error::Corrupted(message));
        }
        Ok(Salvage { engine, lost, idents, files, paths, _lock: lock })
    }
}

impl Salvage {
    /// Returns the engine with the saved data, for checks and changes.
    pub fn engine(&self) -> &Arc<DiskEngine> {
        &self.engine
    }

    /// Returns the lost data.
    pub fn lost(&self) -> &[DataLoss] {
        &self.lost
    }

    /// Returns the trees of the new engine.
    pub fn idents(&self) -> &BTreeSet<Ident> {
        &self.idents
    }

    /// Closes and removes the new engine. The old files stay.
    pub fn discard(self) -> Result<()> {
        self.engine.close()?;
        swap::clear(&*self.files, &self.paths)
    }

    /// Closes the new engine and replaces the old files by its files. Returns the directory with the old files.
    pub fn finish(self) -> Result<PathBuf> {
        self.engine.close()?;
        swap::begin(&*self.files, &self.paths)
    }
}

/// Joins the descriptions of the losses.
fn in_words(lost: &[DataLoss]) -> String {
    lost.iter().map(|lost| lost.message.as_str()).collect::<Vec<_>>().join("; ")
}

/// Returns the old journal, by the id in the format file, or by the ids in the segments.
fn old_segments(files: &Arc<dyn Files>, paths: &SwapPaths, lost: &mut Vec<DataLoss>) -> Result<Segments> {
    let mut segments = Segments { files: Arc::clone(files), directory: paths.journal.clone(), id: 0 };
    let there = segments.list().unwrap_or_default();
    let has_base = files.open(&paths.base, false).is_ok();
    if !has_base && there.is_empty() {
        let message =
            format!("{} contains no data of Vellum, so nothing to repair", paths.directory.display());
        return Err(Error::Unavailable(message));
    }
    if there.is_empty() {
        let journal = paths.journal.display();
        if matches!(files.list(&paths.journal), Err(error) if error.kind() == ErrorKind::NotFound) {
            return Err(Error::Unavailable(format!(
                "the journal directory {journal} does not exist. Name it with --journal-dir, or make an empty one if it is \
                 lost"
            )));
        }
        let message = format!("{journal} has no journal, so commits after the last checkpoint are missing");
        lost.push(DataLoss { ident: None, entries: None, message });
    }
    match directory::read_id(&**files, &paths.directory) {
        Ok(id) => {
            segments.id = id;
            if there.iter().any(|number| segments.read_id(*number).is_some_and(|other| other != id)) {
                let remedy =
                    "Give this directory's own by --journal-dir, or an empty directory if it is lost";
                return Err(ownership::other_journal(&paths.journal, remedy));
            }
        }
        Err(error @ Error::Unavailable(_)) => return Err(error),
        Err(error) => {
            lost.push(DataLoss { ident: None, entries: Some(0), message: error.to_string() });
            let mut headers = there.iter().rev().filter_map(|number| segments.read_id(*number));
            segments.id = headers.next().unwrap_or_default();
        }
    }
    Ok(segments)
}

impl Segments {
    /// Returns the id in a segment's header, if the header is valid.
    fn read_id(&self, number: u64) -> Option<u64> {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        self.files.open(&self.path(number), false).ok()?.read_at(&mut header, 0).ok()?;
        let id = u64::from_le_bytes(*header.get(12..20)?.first_chunk()?);
        let own = Segments { id, ..self.clone() };
        own.check_header(number, &header).ok()?.then_some(id)
    }
}

/// A base that may be damaged.
struct DamagedBase {
    view: Arc<View>,
    trees: Vec<(Ident, Table)>,
    position: u64,
    time: u64,
    /// Damage of the list of trees. The trees then have new numbers.
    damage: Option<String>,
}

/// First number of trees whose own numbers are lost. Neither the journal nor the catalog has such numbers.
const NUMBERLESS: u64 = 1 << 40;

impl DamagedBase {
    /// Opens the old base and reads its list of trees.
    fn open(files: &Arc<dyn Files>, path: &Path) -> Result<Self> {
        let control = Arc::new(Control::impatient());
        let compression = Compression::default();
        let base = Base::open(Arc::clone(files), path.to_path_buf(), BASE_CACHE, compression, control)?;
        let view = base.view();
        let (position, time) = (view.position(), view.time());
        let (trees, damage) = match view.trees() {
            Ok(trees) => (trees, None),
            Err(Error::Corrupted(message)) => {
                let numbers = view.table_numbers()?.into_iter();
                let tree = |table| (Ident(NUMBERLESS + table), Table::new(table, 0, 0));
                (numbers.map(tree).collect(), Some(message))
            }
            Err(error) => return Err(error),
        };
        Ok(DamagedBase { view, trees, position, time, damage })
    }
}

/// State of the copy.
struct Copy<'a> {
    engine: &'a DiskEngine,
    lost: Vec<DataLoss>,
    idents: BTreeSet<Ident>,
    batch: Batch,
    /// Size of the batch.
    bytes: usize,
}

impl Copy<'_> {
    /// Copies the data of the base. Returns its position, if it could be opened.
    fn base(&mut self, files: &Arc<dyn Files>, paths: &SwapPaths) -> Result<Option<u64>> {
        let path = &paths.base;
        let old = match DamagedBase::open(files, path) {
            Ok(old) => old,
            Err(error) => {
                let message = format!("{}: {error}", path.display());
                self.lost.push(DataLoss { ident: None, entries: None, message });
                return Ok(None);
            }
        };
        self.remember(old.time)?;
        if let Some(damage) = &old.damage {
            let message = format!("{damage}: the trees of the page file have no numbers, so no names");
            self.lost.push(DataLoss { ident: None, entries: Some(0), message });
        }
        self.trees(&old)?;
        Ok(Some(old.position))
    }

    /// Records a known cluster time, so that it is never assigned again.
    fn remember(&mut self, time: u64) -> Result<()> {
        let mut batch = Batch::new();
        batch.set_time(time);
        self.engine.commit(batch).map(drop)
    }

    /// Copies every tree of the old base.
    fn trees(&mut self, old: &DamagedBase) -> Result<()> {
        // The first tree of each copied table, and the loss. A fork has lost the same entries.
        let mut copied: BTreeMap<u64, (Ident, Option<DataLoss>)> = BTreeMap::new();
        for (ident, table) in &old.trees {
            self.idents.insert(*ident);
            if let Some((first, loss)) = copied.get(&table.base) {
                self.batch.fork(*first, *ident);
                self.lost.extend(loss.clone().map(|loss| DataLoss { ident: Some(*ident), ..loss }));
                self.flush()?;
                continue;
            }
            self.batch.create(*ident);
            self.flush()?;
            if table.base != 0 {
                let saved = self.table(&old.view, *ident, table.base)?;
                let is_lost = saved.entries < table.entries || saved.damage.is_some();
                let loss = is_lost.then(|| {
                    let message = saved.damage.unwrap_or_else(|| "entries are missing".to_string());
                    let message = format!("{BASE_FILE}, table t{}: {message}", table.base);
                    // Without the list of trees, the number of entries is unknown.
                    let is_counted = old.damage.is_none();
                    let entries = is_counted.then(|| table.entries.saturating_sub(saved.entries));
                    DataLoss { ident: Some(*ident), entries, message }
                });
                self.lost.extend(loss.clone());
                copied.insert(table.base, (*ident, loss));
            }
        }
        Ok(())
    }

    /// Copies the readable entries of a table.
    fn table(&mut self, view: &View, ident: Ident, number: u64) -> Result<Saved> {
        let mut saved = Saved::default();
        let mut visit = |item: TableItem<'_>| {
            match item {
                TableItem::Entry(key, value) => {
                    saved.entries += 1;
                    self.put(ident, Key::from(key), Value::from(value))?;
                }
                TableItem::Damage(message) => _ = saved.damage.get_or_insert(message),
            }
            Ok(true)
        };
        view.read_all(number, &mut visit)?;
        self.flush()?;
        Ok(saved)
    }

    /// Adds an entry to the batch, and commits the batch when it is full.
    fn put(&mut self, ident: Ident, key: Key, value: Value) -> Result<()> {
        debug_assert!(self.idents.contains(&ident), "an entry of an unknown tree");
        debug_assert!(self.batch.len() < BATCH_ENTRIES, "a full batch was not committed");
        self.bytes += key.len() + value.len();
        self.batch.put(ident, key, value);
        match self.batch.len() >= BATCH_ENTRIES || self.bytes >= BATCH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        match batch.is_empty() {
            true => Ok(()),
            false => {
                self.engine.wait_for_space(&mut || true).and_then(|()| self.engine.commit(batch)).map(drop)
            }
        }
    }

    /// Replays the journal after the base.
    fn journal(&mut self, segments: &Segments, base: Option<u64>) -> Result<()> {
        let (engine, idents) = (self.engine, &mut self.idents);
        let mut behind: BTreeMap<Ident, u64> = BTreeMap::new();
        let (mut batches, mut latest) = (0, 0);
        let replay = |_, batch| {
            let batch = fitting(batch, idents);
            engine.wait_for_space(&mut || true)?;
            engine.commit(batch).map(drop)
        };
        let remains = recovery::salvage(segments, base, replay, |_, batch| {
            batches += 1;
            latest = batch.time().max(latest);
            batch.ops().iter().for_each(|op| *behind.entry(ident_of(op)).or_default() += 1);
        })?;
        let Some(damage) = remains.damage else { return Ok(()) };
        self.remember(latest)?;
        let message = format!("{damage}; {batches} valid commits after it are not replayed");
        self.lost.push(DataLoss { ident: None, entries: None, message });
        for (ident, entries) in behind {
            let message = format!("changes in the journal after commit {}", remains.last);
            self.lost.push(DataLoss { ident: Some(ident), entries: Some(entries), message });
        }
        Ok(())
    }
}

/// The number of copied entries of a table, and its first damage.
#[derive(Default)]
struct Saved {
    /// Number of copied entries.
    entries: u64,
    /// First damage, if any.
    damage: Option<String>,
}

/// Returns the tree of an operation.
fn ident_of(op: &Op) -> Ident {
    match op {
        Op::Put { ident, .. } | Op::Delete { ident, .. } => *ident,
        Op::Create(ident) | Op::Drop(ident) | Op::Clear(ident) => *ident,
        Op::Fork { to, .. } => *to,
    }
}

/// Returns a batch that can be applied although some of its trees are lost: puts create their tree.
fn fitting(batch: Batch, idents: &mut BTreeSet<Ident>) -> Batch {
    let mut fit = Batch::new();
    fit.set_time(batch.time());
    let most = 2 * batch.len();
    for op in batch {
        match op {
            Op::Put { ident, key, value } => {
                if idents.insert(ident) {
                    fit.create(ident);
                }
                fit.put(ident, key, value);
            }
            Op::Delete { ident, key } if idents.contains(&ident) => fit.delete(ident, key),
            Op::Create(ident) if idents.insert(ident) => fit.create(ident),
            Op::Create(ident) | Op::Clear(ident) if idents.contains(&ident) => fit.clear(ident),
            Op::Drop(ident) if idents.remove(&ident) => fit.drop_ident(ident),
            Op::Fork { from, to } if idents.contains(&from) => {
                if !idents.insert(to) {
                    fit.drop_ident(to);
                }
                fit.fork(from, to);
            }
            Op::Fork { to, .. } if idents.insert(to) => fit.create(to),
            _ => {}
        }
    }
    debug_assert!(fit.len() <= most, "more than one creation or drop for an operation");
    fit
}

//! Group commit under all thread schedules.

use super::*;
use crate::mutants::switch_on;
use crate::sync::Condvar;
use crate::testing::{FaultyFiles, explore, fails};
use crate::{Batch, Ident};
use shuttle::thread;
use std::path::Path;

const SEEDS: u64 = 150;
const DIRECTORY: &str = "/journal";

/// State shared by an engine's writers, held during an append.
struct Engine {
    journal: Journal,
    writer: Mutex<Appender>,
    files: FaultyFiles,
}

fn batch(number: u64) -> Encoded {
    let mut batch = Batch::new();
    batch.put(Ident(1), number.to_be_bytes(), [number as u8; 40].as_slice());
    Encoded::new(&batch).unwrap()
}

impl Engine {
    fn new() -> Arc<Engine> {
        Engine::with(false)
    }

    fn with(written_by_syncs: bool) -> Arc<Engine> {
        let files = FaultyFiles::new();
        let segments =
            Segments { files: Arc::new(files.clone()), directory: PathBuf::from(DIRECTORY), id: 7 };
        let file = segments.create(1).unwrap();
        let appender = Appender::new(&segments, 1, file, SEGMENT_HEADER_BYTES as u64, 0);
        let journal = match written_by_syncs {
            true => Journal::written_by_syncs(segments, &appender).unwrap(),
            false => Journal::new(segments, &appender),
        };
        Arc::new(Engine { journal, writer: Mutex::new(appender), files })
    }

    /// Appends a frame. Returns its position, its file and its place in the file.
    fn append(&self, number: u64) -> (u64, PathBuf, std::ops::Range<usize>) {
        let mut appender = self.writer.lock();
        let begin = appender.len as usize;
        let position = self.journal.append(&mut appender, &mut batch(number)).unwrap();
        (position, self.journal.segments.path(appender.number), begin..appender.len as usize)
    }

    fn is_durable(&self, path: &Path, range: std::ops::Range<usize>) -> bool {
        let written = self.files.read(path).unwrap();
        let durable = self.files.read_durable(path).unwrap();
        let frame = durable.get(range.clone());
        frame == written.get(range) && frame.is_some_and(|frame| frame.iter().any(|byte| *byte != 0))
    }
}

/// After a wait for a sync, the frame is on disk, in whichever segment it is.
fn waiting() {
    waiting_for(&Engine::new());
}

/// The same if syncs write the frames.
fn waiting_for_writes() {
    waiting_for(&Engine::with(true));
}

fn waiting_for(engine: &Arc<Engine>) {
    let writes = |number: u64| {
        let engine = Arc::clone(engine);
        thread::spawn(move || {
            for round in 0..2 {
                let (position, path, range) = engine.append(number * 2 + round);
                engine.journal.wait(position).unwrap();
                assert!(engine.journal.durable() >= position);
                assert!(engine.is_durable(&path, range));
            }
        })
    };
    let mut threads: Vec<_> = (0..3).map(writes).collect();
    let checkpointer = Arc::clone(engine);
    threads.push(thread::spawn(move || {
        let file = checkpointer.journal.segments.create(2).unwrap();
        checkpointer.journal.switch(&mut checkpointer.writer.lock(), 2, file);
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A checkpoint, and a sync that was not requested, end waits.
fn told_by_others() {
    let engine = Engine::new();
    let woken = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&woken);
    engine.journal.when_durable(Arc::new(move || _ = seen.fetch_add(1, Ordering::SeqCst)));
    let (position, ..) = engine.append(1);
    let waits = |_| {
        let engine = Arc::clone(&engine);
        thread::spawn(move || engine.journal.wait(position).unwrap())
    };
    let mut threads: Vec<_> = (0..2).map(waits).collect();
    let flusher = Arc::clone(&engine);
    threads.push(thread::spawn(move || flusher.journal.sync().unwrap()));
    let checkpointer = Arc::clone(&engine);
    threads.push(thread::spawn(move || checkpointer.journal.checkpointed(position)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(woken.load(Ordering::SeqCst), 1, "what has become durable is told once");
}

/// A flag that threads wait for.
#[derive(Default)]
struct Signal {
    rung: Mutex<bool>,
    notified: Condvar,
}

impl Signal {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.notified.notify_all();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock();
        while !std::mem::take(&mut *rung) {
            self.notified.wait(&mut rung);
        }
    }
}

impl std::task::Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// Every waker is woken, whichever thread syncs. The syncing thread is called when necessary.
fn waiting_without_threads() {
    let engine = Engine::new();
    let requested = Arc::new(Signal::default());
    let asks = Arc::clone(&requested);
    engine.journal.on_remaining_waiters(Arc::new(move || asks.ring()));
    let stopped = Arc::new(AtomicBool::new(false));
    let (flusher, stop, bell) = (Arc::clone(&engine), Arc::clone(&stopped), Arc::clone(&requested));
    let flusher = thread::spawn(move || {
        loop {
            bell.wait();
            if stop.load(Ordering::SeqCst) {
                return;
            }
            match flusher.journal.has_unsynced() {
                true => flusher.journal.sync().unwrap(),
                false => flusher.journal.needs_no_sync(),
            }
        }
    });
    let writes = |number: u64| {
        let engine = Arc::clone(&engine);
        thread::spawn(move || {
            let bell = Arc::new(Signal::default());
            let (position, path, range) = engine.append(number);
            loop {
                match engine.journal.await_sync(position, &Waker::from(Arc::clone(&bell))) {
                    JournalWait::Satisfied => break,
                    JournalWait::SyncNeeded => engine.journal.wait(position).unwrap(),
                    JournalWait::Pending => bell.wait(),
                }
            }
            assert!(engine.is_durable(&path, range));
        })
    };
    let threads: Vec<_> = (0..3).map(writes).collect();
    let (position, ..) = engine.append(3);
    engine.journal.wait(position).unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    stopped.store(true, Ordering::SeqCst);
    requested.ring();
    flusher.join().unwrap();
}

#[test]
fn after_a_wait_the_frame_is_durable_under_any_schedule() {
    explore(SEEDS, waiting);
    explore(SEEDS, waiting_for_writes);
    explore(SEEDS, told_by_others);
    explore(SEEDS, waiting_without_threads);
    for name in ["writes during a sync count as durable", "a sync wakes no waiter"] {
        switch_on(Some(name));
        let seen = fails(SEEDS, waiting);
        switch_on(None);
        assert!(seen, "{name}");
    }
}

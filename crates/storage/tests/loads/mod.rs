//! Loads whose hit rates are known by running them: what working-set advice is held against.

#![expect(clippy::unwrap_used, reason = "tests and benches fail by it")]

use std::path::{Path, PathBuf};

use storage::{Batch, Curve, Direction, DiskEngine, DiskOptions, Engine, Ident, Range};

/// The tree that the loads read.
pub(crate) const TREE: Ident = Ident(7);
/// How many points a prediction may be off.
pub(crate) const POINTS: f64 = 0.03;
/// How far off a size may be where the curve is steep.
pub(crate) const SIZE: f64 = 0.1;
/// What is steep: so many points within those sizes.
const CLIFF: f64 = 0.1;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// All alike.
    Uniform,
    /// Some far more often than others, by Zipf's law with the exponent 1, wherever they lie.
    Zipf,
    /// Nine of ten reads go to a tenth that lies together.
    HotSpot,
    /// Cursors run through everything, again and again.
    Scan,
    /// As `HotSpot`, and every twentieth changes the value.
    Writes,
}

/// What a run of a load counted, and what it predicts for other sizes.
pub(crate) struct Run {
    /// The share of reads that were hits.
    pub(crate) hits: f64,
    /// How many pages of entries were read.
    pub(crate) reads: u64,
    /// The prediction.
    pub(crate) curve: Curve,
}

/// A store with documents in it.
pub(crate) struct Data {
    directory: PathBuf,
    documents: u64,
}

impl Data {
    /// Fills a store with documents of `bytes` each.
    pub(crate) fn new(directory: &Path, documents: u64, bytes: usize) -> Self {
        let _ = std::fs::remove_dir_all(directory);
        let data = Data { directory: directory.to_path_buf(), documents };
        let engine = data.open(64 << 20);
        let mut batch = Batch::new();
        batch.create(TREE);
        let value = vec![b'x'; bytes];
        for id in 0..documents {
            batch.put(TREE, id.to_be_bytes(), value.as_slice());
            if id % 1000 == 999 {
                engine.wait_for_space(&mut || true).unwrap();
                engine.commit(std::mem::take(&mut batch)).unwrap();
            }
        }
        engine.commit(batch).unwrap();
        engine.close().unwrap();
        data
    }

    /// Returns the length of the file, which is about the size of a cache for all data.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.open(8 << 20).statistics().file_bytes
    }

    fn open(&self, cache_bytes: u64) -> DiskEngine {
        let options = DiskOptions {
            cache_bytes,
            durability: storage::Durability::None,
            // So that the file is as long as what is in it.
            compression: storage::Compression::None,
            ..DiskOptions::new(&self.directory)
        };
        DiskEngine::open(&options).unwrap()
    }

    /// Runs a load under a cache of a size.
    pub(crate) fn run(&self, load: Load, reads: u64, cache_bytes: u64) -> Run {
        let engine = self.open(cache_bytes);
        let mut keys = Keys::new(load, self.documents);
        match load {
            Load::Scan => self.scan(&engine, reads),
            _ => (0..reads).for_each(|at| {
                let key = keys.next().to_be_bytes();
                let value = engine.snapshot().get(TREE, &key).unwrap().unwrap();
                if load == Load::Writes && at % 20 == 0 {
                    let mut batch = Batch::new();
                    batch.put(TREE, key, &*value);
                    engine.wait_for_space(&mut || true).unwrap();
                    engine.commit(batch).unwrap();
                }
            }),
        }
        let statistics = engine.statistics();
        let found = engine.working_set().unwrap();
        assert_eq!(
            (found.all.start.reads, found.all.start.misses),
            (statistics.entry_reads, statistics.entry_misses)
        );
        let of_tree = found.trees.iter().find(|(trees, _)| *trees == [TREE]).map(|(_, reads)| &reads.hour);
        assert_eq!(
            of_tree.map(|span| (span.reads, span.misses)),
            Some((statistics.entry_reads, statistics.entry_misses))
        );
        let hits = found.all.start.hit_rate().unwrap();
        Run { hits, reads: statistics.entry_reads, curve: found.all.start.curve }
    }

    fn scan(&self, engine: &DiskEngine, reads: u64) {
        while engine.statistics().entry_reads < reads {
            let mut cursor = engine.snapshot().scan(TREE, Range::all(), Direction::Forward).unwrap();
            while cursor.next().unwrap().is_some() {}
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

struct Keys {
    load: Load,
    documents: u64,
    random: u64,
}

impl Keys {
    fn new(load: Load, documents: u64) -> Self {
        Keys { load, documents, random: 42 }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn next(&mut self) -> u64 {
        let random = self.random();
        let documents = self.documents;
        match self.load {
            Load::Uniform | Load::Scan => random % documents,
            Load::Zipf => {
                // The inverse of the integral that is close to the sum.
                let share = (random >> 11) as f64 / (1u64 << 53) as f64;
                let rank = ((documents as f64).ln() * share).exp() as u64;
                rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % documents
            }
            Load::HotSpot | Load::Writes => match random % 10 {
                0 => self.random() % documents,
                _ => documents / 3 + self.random() % (documents / 10),
            },
        }
    }
}

/// By how many points a prediction is off, sizes being allowed to be off by a tenth where the curve is steep.
pub(crate) fn error(hits: f64, predicted: &Curve, cache_bytes: u64) -> f64 {
    let at = |share: f64| predicted.hit_rate((cache_bytes as f64 * share) as u64);
    let (low, high) = (at(1.0 - SIZE), at(1.0 + SIZE));
    match high - low > CLIFF {
        true => (low - hits).max(hits - high).max(0.0),
        false => (at(1.0) - hits).abs(),
    }
}

//! Performance of the disk engine on data larger than its cache.
//!
//! `cargo bench -p storage --bench growth [-- DIRECTORY [ENTRIES [CACHE_MIB]]]` loads documents of
//! about 80 bytes, with an index on `_id` and one on a random number. Batches have a thousand
//! documents, as in `insertMany`. Entries of the non-unique index are known to be new, because they
//! contain new record ids.
//!
//! The output has, for each eighth of the documents: documents per second, CPU time per document,
//! and bytes written per document including the journal. It then has the same for random updates of
//! the number, including the last checkpoint, and the size of the files, followed by the CPU time
//! of gets and scans. The argument `smoke` makes everything small.

#![expect(clippy::print_stdout, reason = "printing a table is its purpose")]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use storage::{
    Batch, Direction, DiskEngine, DiskOptions, Engine, Ident, Journaling, Range, Result, Snapshot,
};

const RECORDS: Ident = Ident(1);
const IDS: Ident = Ident(2);
const NUMBERS: Ident = Ident(3);
const BATCH: u64 = 1000;

/// Returns the CPU time of all threads of this process.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Returns the number of bytes passed to the system for writing.
fn written() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

/// Returns a pseudo-random number for a document.
fn random(number: u64, round: u64) -> u64 {
    let mut x = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round.wrapping_mul(0xD1B5_4A32_D192_ED03);
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ x >> 27
}

fn id(number: u64) -> [u8; 13] {
    let mut id = [7; 13];
    id[5..].copy_from_slice(&number.to_be_bytes());
    id
}

/// Returns a document in the shape of BSON.
fn document(number: u64, indexed: u64) -> Vec<u8> {
    let mut bytes = b"\x50\0\0\0\x07_id\0".to_vec();
    bytes.extend(&id(number)[1..]);
    bytes.extend(b"\x01n\0");
    bytes.extend(indexed.to_le_bytes());
    bytes.extend(b"\x02name\0\x10\0\0\0customer ");
    bytes.extend(format!("{:06}\0", number % 1_000_000).bytes());
    bytes.extend(b"\x10count\0");
    bytes.extend((number as u32 % 100).to_le_bytes());
    bytes.push(0);
    bytes
}

fn entry(number: u64, indexed: u64) -> [u8; 17] {
    let mut key = [0x2B; 17];
    key[1..9].copy_from_slice(&indexed.to_be_bytes());
    key[9..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Cost of some work.
struct Measure {
    started: Instant,
    cpu: Duration,
    written: u64,
}

impl Measure {
    fn begin() -> Self {
        Measure { started: Instant::now(), cpu: cpu(), written: written() }
    }

    fn print(&self, label: &str, count: u64) {
        let (taken, cpu) = (self.started.elapsed().as_secs_f64(), (cpu() - self.cpu).as_micros() as f64);
        let bytes = (written() - self.written) as f64 / count as f64;
        let (rate, each) = (count as f64 / taken, cpu / count as f64);
        println!("{label:32} {rate:10.0} a second {each:8.2} µs of CPU {bytes:8.0} bytes written");
    }
}

fn directory_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => directory_bytes(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

fn load(engine: &DiskEngine, directory: &Path, entries: u64) -> Result<u64> {
    let mut largest = 0;
    for eighth in 0..8 {
        let measure = Measure::begin();
        for from in (entries / 8 * eighth..entries / 8 * (eighth + 1)).step_by(BATCH as usize) {
            engine.wait_for_space(&mut || true)?;
            let mut batch = Batch::new();
            for number in from..from + BATCH {
                let indexed = random(number, 0);
                batch.put(RECORDS, number.to_be_bytes(), document(number, indexed));
                batch.put(IDS, id(number).as_slice(), number.to_be_bytes());
                batch.put_new(NUMBERS, entry(number, indexed).as_slice(), []);
            }
            engine.commit(batch)?;
            if (from / BATCH).is_multiple_of(16) {
                largest = largest.max(directory_bytes(directory));
            }
        }
        measure.print(&format!("load, eighth {}", eighth + 1), entries / 8);
    }
    Ok(largest)
}

fn update(engine: &DiskEngine, entries: u64, updates: u64) -> Result<()> {
    engine.checkpoint()?;
    let measure = Measure::begin();
    let mut latest: std::collections::HashMap<u64, u64> = std::collections::HashMap::new();
    for round in 1..=updates {
        engine.wait_for_space(&mut || true)?;
        let number = random(round, 1) % entries;
        let before =
            latest.insert(number, round).map_or_else(|| random(number, 0), |round| random(number, round));
        let indexed = random(number, round);
        black_box(engine.snapshot().get(RECORDS, &number.to_be_bytes())?);
        let mut batch = Batch::new();
        batch.put(RECORDS, number.to_be_bytes(), document(number, indexed));
        batch.delete(NUMBERS, entry(number, before).as_slice());
        batch.put_new(NUMBERS, entry(number, indexed).as_slice(), []);
        engine.commit(batch)?;
    }
    engine.checkpoint()?;
    measure.print("random updates of the number", updates);
    Ok(())
}

fn read(snapshot: &dyn Snapshot, entries: u64, gets: u64) -> Result<()> {
    for (label, of) in [("gets of 1 % of all", entries / 100), ("gets of all", entries)] {
        for round in 0..2 {
            let measure = Measure::begin();
            for at in 0..gets {
                let number = random(at, 2 + round) % of.max(1);
                black_box(snapshot.get(RECORDS, &number.to_be_bytes())?);
            }
            measure.print(label, gets);
        }
    }
    for (label, ident) in [("scan of the documents", RECORDS), ("scan of the index", NUMBERS)] {
        let measure = Measure::begin();
        let mut cursor = snapshot.scan(ident, Range::all(), Direction::Forward)?;
        let mut found = 0;
        while let Some((key, value)) = cursor.next()? {
            found += black_box(key.len() + value.len() > 0) as u64;
        }
        measure.print(label, found);
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let smoke = arguments.iter().any(|argument| argument == "smoke");
    let directory = arguments.first().filter(|_| !smoke).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = directory.join(format!("vellum-growth-{}", std::process::id()));
    let number = |at: usize| arguments.get(at).and_then(|argument| argument.parse::<u64>().ok());
    let entries = if smoke { 16_000 } else { number(1).unwrap_or(1_000_000) };
    let cache = number(2).unwrap_or(if smoke { 8 } else { 64 });
    let options = DiskOptions { cache_bytes: cache << 20, ..DiskOptions::new(&directory) };
    let engine = DiskEngine::open(&options)?;
    let mut batch = Batch::new();
    for ident in [RECORDS, IDS, NUMBERS] {
        batch.create(ident);
    }
    engine.commit(batch)?;
    let largest = load(&engine, &directory, entries)?;
    update(&engine, entries, entries / 50)?;
    println!(
        "the files: {} MB at their largest in the load, {} MB at rest",
        largest >> 20,
        directory_bytes(&directory) >> 20
    );
    let snapshot = engine.snapshot();
    read(&*snapshot, entries, entries / 4)?;
    println!("{:?}", engine.statistics());
    drop((snapshot, engine));
    fs::remove_dir_all(directory)?;
    Ok(())
}

//! The persistent tree, the standard library's `BTreeMap` and `imbl::OrdMap` in one run.
//!
//! `cargo bench -p storage` prints nanoseconds of CPU time for each operation, the least of several
//! rounds. The maps take turns, so that other load affects all of them. The ratios are more
//! reliable than the times. All three maps hold the same `Key` and `Value`. `BTreeMap` has no cheap
//! clone: its snapshot is a copy and shows the cost of a snapshot without persistence. Memory is
//! the growth of a new process that builds one map. Below the table are the costs of whole engine
//! calls, and the savings of inline keys and values. An argument scales the number of entries:
//! `cargo bench -p storage -- 100000`.

#![expect(clippy::print_stdout, reason = "printing a table is its purpose")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use imbl::OrdMap;
use storage::memory::Tree;
use storage::{Batch, Direction, Engine, Ident, Key, MemoryEngine, Range, Value};

const ROUNDS: usize = 3;
const SHORT: usize = 100;

/// Common interface of the maps.
trait Map: Clone + Default {
    const NAME: &'static str;
    /// True if cloning copies everything.
    const COPIES: bool = false;
    fn insert(&mut self, key: &Key, value: Value);
    fn remove(&mut self, key: &Key);
    fn get(&self, key: &Key) -> usize;
    /// Scans up to `limit` entries from a key on.
    fn scan(&self, from: &Key, limit: usize) -> usize;
}

impl Map for Tree<Value> {
    const NAME: &'static str = "ours";

    fn insert(&mut self, key: &Key, value: Value) {
        Tree::insert(self, key, value);
    }

    fn remove(&mut self, key: &Key) {
        Tree::remove(self, key);
    }

    fn get(&self, key: &Key) -> usize {
        Tree::get(self, key).map_or(0, |value| value.len())
    }

    fn scan(&self, from: &Key, limit: usize) -> usize {
        let range = Range { lower: Bound::Included(from.clone()), upper: Bound::Unbounded };
        let mut cursor = self.cursor(range, Direction::Forward);
        let mut sum = 0;
        for _ in 0..limit {
            let Some((key, value)) = cursor.next() else { break };
            sum += key.len() + value.len();
        }
        sum
    }
}

macro_rules! standard_map {
    ($map:ident, $name:literal, $copies:literal) => {
        impl Map for $map<Key, Value> {
            const NAME: &'static str = $name;
            const COPIES: bool = $copies;

            fn insert(&mut self, key: &Key, value: Value) {
                $map::insert(self, key.clone(), value);
            }

            fn remove(&mut self, key: &Key) {
                $map::remove(self, key);
            }

            fn get(&self, key: &Key) -> usize {
                $map::get(self, key).map_or(0, |value| value.len())
            }

            fn scan(&self, from: &Key, limit: usize) -> usize {
                let range = (Bound::Included(from.clone()), Bound::Unbounded);
                self.range(range).take(limit).map(|(key, value)| key.len() + value.len()).sum()
            }
        }
    };
}

standard_map!(BTreeMap, "BTreeMap", true);
standard_map!(OrdMap, "imbl", false);

/// A small generator with a fixed seed: every run is equal.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn shuffle(&mut self, keys: &mut [Key]) {
        for at in (1..keys.len()).rev() {
            keys.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }
}

/// The data: keys in sorted and in random order, and one value for all keys or one for each.
struct Data {
    sorted: Vec<Key>,
    shuffled: Vec<Key>,
    value: fn() -> Value,
}

impl Data {
    fn new(mut sorted: Vec<Key>, value: fn() -> Value) -> Self {
        sorted.sort();
        let mut shuffled = sorted.clone();
        Random(7).shuffle(&mut shuffled);
        Data { sorted, shuffled, value }
    }

    /// Returns record ids with documents of 120 bytes.
    fn records(entries: usize) -> Self {
        let keys = (1..=entries as u64).map(|number| Key::from(number.to_be_bytes())).collect();
        Data::new(keys, || Value::from(vec![1; 120]))
    }

    /// Returns random strings of 8 letters with record ids, without values: a regular index.
    fn index(entries: usize) -> Self {
        let mut random = Random(99);
        let mut key = |number: u64| {
            let letters = (0..8).map(|_| b'a' + (random.next() >> 33) as u8 % 26);
            let bytes: Vec<u8> =
                std::iter::once(60).chain(letters).chain([0]).chain(number.to_be_bytes()).collect();
            Key::from(bytes)
        };
        Data::new((1..=entries as u64).map(&mut key).collect(), Value::empty)
    }

    fn built<M: Map>(&self) -> M {
        let mut map = M::default();
        for key in &self.shuffled {
            map.insert(key, (self.value)());
        }
        map
    }
}

/// Returns the CPU time of this thread in nanoseconds, or wall-clock time on other systems.
fn cpu_nanoseconds() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // The kernel updates the figure when the thread yields the processor.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let time = stat.split(' ').next().and_then(|first| first.parse().ok());
    time.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

/// Returns nanoseconds per operation.
fn time(operations: usize, work: impl FnOnce()) -> f64 {
    let start = cpu_nanoseconds();
    work();
    (cpu_nanoseconds() - start) as f64 / operations as f64
}

/// A kind of work.
type Work<M> = fn(&Data) -> (M, f64);

fn insert_in_order<M: Map>(data: &Data) -> (M, f64) {
    insert(&data.sorted, data.value)
}

fn insert_at_random<M: Map>(data: &Data) -> (M, f64) {
    insert(&data.shuffled, data.value)
}

fn insert<M: Map>(keys: &[Key], value: fn() -> Value) -> (M, f64) {
    let values: Vec<Value> = keys.iter().map(|_| value()).collect();
    let mut map = M::default();
    let cost = time(keys.len(), || keys.iter().zip(values).for_each(|(key, value)| map.insert(key, value)));
    (map, cost)
}

fn get<M: Map>(data: &Data) -> (M, f64) {
    let map: M = data.built();
    let cost = time(data.shuffled.len(), || {
        black_box(data.shuffled.iter().rev().map(|key| map.get(key)).sum::<usize>());
    });
    (map, cost)
}

fn scan<M: Map>(data: &Data) -> (M, f64) {
    let map: M = data.built();
    let cost = time(data.sorted.len(), || {
        black_box(map.scan(&data.sorted[0], usize::MAX));
    });
    (map, cost)
}

fn short_scans<M: Map>(data: &Data) -> (M, f64) {
    let map: M = data.built();
    let starts = data.shuffled.len() / SHORT * 4;
    let cost = time(starts, || {
        black_box(data.shuffled[..starts].iter().map(|key| map.scan(key, SHORT)).sum::<usize>());
    });
    (map, cost)
}

fn remove<M: Map>(data: &Data) -> (M, f64) {
    let mut map: M = data.built();
    let half = data.shuffled.len() / 2;
    let cost = time(half, || data.shuffled[..half].iter().for_each(|key| map.remove(key)));
    (map, cost)
}

/// Measures a write while a snapshot from just before is held: the cost of a commit concurrent with
/// readers.
fn snapshot_then_write<M: Map>(data: &Data) -> (M, f64) {
    let mut map: M = data.built();
    let writes = if M::COPIES { 2 } else { data.shuffled.len() / 10 };
    let value = (data.value)();
    let cost = time(writes, || {
        for key in &data.shuffled[..writes] {
            let snapshot = map.clone();
            map.insert(key, value.clone());
            black_box(snapshot);
        }
    });
    (map, cost)
}

fn snapshot_then_append<M: Map>(data: &Data) -> (M, f64) {
    let mut map: M = data.built();
    let writes = if M::COPIES { 2 } else { data.shuffled.len() / 10 };
    let value = (data.value)();
    let cost = time(writes, || {
        for number in 0..writes as u64 {
            let snapshot = map.clone();
            map.insert(&Key::from((u64::MAX / 2 + number).to_be_bytes()), value.clone());
            black_box(snapshot);
        }
    });
    (map, cost)
}

/// Prints a table row: the same work on each map in turn, the least of all rounds.
fn row(
    label: &str,
    data: &Data,
    ours: Work<Tree<Value>>,
    std: Work<BTreeMap<Key, Value>>,
    imbl: Work<OrdMap<Key, Value>>,
) {
    let mut least = [f64::MAX; 3];
    for _ in 0..ROUNDS {
        for (least, cost) in least.iter_mut().zip([ours(data).1, std(data).1, imbl(data).1]) {
            *least = least.min(cost);
        }
    }
    print_row(label, least);
}

fn print_row(label: &str, [ours, std, imbl]: [f64; 3]) {
    println!(
        "| {label:<38} | {ours:>8.1} | {std:>12.1} | {imbl:>8.1} | {:>10.2} | {:>6.2} |",
        std / ours,
        imbl / ours
    );
}

macro_rules! rows {
    ($kind:literal, $data:expr, $($label:literal: $work:ident),+) => {
        $(row(concat!($kind, ": ", $label), $data, $work, $work, $work);)+
    };
}

/// Returns the memory growth of a separate process in bytes per entry.
fn memory(map: &str, kind: &str, order: &str, entries: usize) -> f64 {
    let run = || -> Option<f64> {
        let program = std::env::current_exe().ok()?;
        let output =
            Command::new(program).args(["build", map, kind, order, &entries.to_string()]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    run().unwrap_or(f64::NAN)
}

/// The process started by [`memory`]: builds one map and prints its bytes per entry.
fn build(arguments: &[String]) {
    let [map, kind, order, entries] = arguments else { return };
    let entries = entries.parse().unwrap_or(1);
    let data = if kind == "records" { Data::records(entries) } else { Data::index(entries) };
    let keys = if order == "sorted" { &data.sorted } else { &data.shuffled };
    let before = resident_bytes();
    match map.as_str() {
        "ours" => drop(fill::<Tree<Value>>(keys, before)),
        "imbl" => drop(fill::<OrdMap<Key, Value>>(keys, before)),
        _ => drop(fill::<BTreeMap<Key, Value>>(keys, before)),
    }
}

fn fill<M: Map>(keys: &[Key], before: f64) -> M {
    let mut map = M::default();
    // Empty values: the documents' own bytes are equal for all maps.
    keys.iter().for_each(|key| map.insert(key, Value::empty()));
    println!("{}", (resident_bytes() - before) / keys.len() as f64);
    map
}

fn resident_bytes() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = stat.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

fn print_line(label: &str, nanoseconds: f64) {
    println!("{label:<60} {nanoseconds:>9.1}");
}

/// Measures calls of the engine: a document with two indexes and an oplog entry, and the
/// clean-slate operations.
fn engine_calls(entries: usize) {
    const TREES: [Ident; 4] = [Ident(1), Ident(2), Ident(3), Ident(4)];
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    TREES.iter().for_each(|ident| batch.create(*ident));
    commit(&engine, batch);
    let mut random = Random(3);
    let mut insert = |number: usize| {
        let (record, document) = ((number as u64).to_be_bytes(), Value::from(vec![1; 120]));
        let mut batch = Batch::with_capacity(TREES.len());
        batch.put(TREES[0], record, document.clone());
        batch.put(TREES[1], random.next().to_be_bytes(), record);
        batch.put(TREES[2], random.next().to_be_bytes(), record);
        batch.put(TREES[3], record, document);
        commit(&engine, batch);
    };
    let half = entries / 2;
    print_line("commit of 4 puts", time(half, || (0..half).for_each(&mut insert)));
    let beside = time(entries / 10, || {
        for number in half..half + entries / 10 {
            let snapshot = engine.snapshot();
            insert(number);
            drop(snapshot);
        }
    });
    print_line("commit of 4 puts while a snapshot is held", beside);
    let keys: Vec<[u8; 8]> = (0..half).map(|_| (random.next() % half as u64).to_be_bytes()).collect();
    let get = time(half, || {
        for key in &keys {
            black_box(engine.snapshot().get(TREES[0], key).is_ok());
        }
    });
    print_line("snapshot and get, at random", get);
    let seek = time(half, || {
        for key in &keys {
            let range = Range { lower: Bound::Included(Key::from(key)), upper: Bound::Unbounded };
            if let Ok(mut cursor) = engine.snapshot().scan(TREES[0], range, Direction::Forward) {
                black_box(cursor.next().is_ok());
            }
        }
    });
    print_line("snapshot, scan and first entry, at random", seek);
    let slate = time(1000, || {
        for _ in 0..1000 {
            let mut batch = Batch::new();
            batch.fork(TREES[0], Ident(9));
            commit(&engine, batch);
            let mut batch = Batch::new();
            batch.drop_ident(Ident(9));
            commit(&engine, batch);
        }
    });
    print_line("fork a full tree and drop the fork: two commits", slate);
}

fn commit(engine: &MemoryEngine, batch: Batch) {
    if let Err(error) = engine.commit(batch) {
        println!("the engine failed: {error}");
    }
}

/// Measures the savings of inline forms over plain allocations.
fn inline_forms() {
    let (key, value) = ([7u8; 18], [7u8; 8]);
    let make = |label: &str, work: &dyn Fn()| {
        print_line(label, time(10_000_000, || (0..10_000_000).for_each(|_| work())));
    };
    make("make and drop a key of 18 bytes: Key", &|| drop(black_box(Key::from(black_box(&key)))));
    make("make and drop a key of 18 bytes: Vec<u8>", &|| drop(black_box(black_box(&key).to_vec())));
    make("make and drop a value of 8 bytes: Value", &|| drop(black_box(Value::from(black_box(&value)))));
    make("make and drop a value of 8 bytes: Arc<[u8]>", &|| {
        drop(black_box(Arc::<[u8]>::from(black_box(&value).as_slice())));
    });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "build") {
        return build(&arguments[1..]);
    }
    let entries = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(1_000_000);
    println!("{entries} entries, ns of CPU time per operation");
    println!(
        "| work                                   |     ours | {:>12} | {:>8} | BTreeMap/ours | imbl/ours |",
        BTreeMap::<Key, Value>::NAME,
        OrdMap::<Key, Value>::NAME
    );
    println!("|---|---|---|---|---|---|");
    let records = Data::records(entries);
    rows!("records", &records, "insert in order": insert_in_order, "get at random": get, "scan, per entry": scan,
        "100 entries from a random key": short_scans, "remove at random": remove,
        "snapshot, then write at random": snapshot_then_write, "snapshot, then append": snapshot_then_append);
    drop(records);
    let index = Data::index(entries);
    rows!("index", &index, "insert at random": insert_at_random, "insert in order": insert_in_order, "get at random": get,
        "scan, per entry": scan, "100 entries from a random key": short_scans, "remove at random": remove,
        "snapshot, then write at random": snapshot_then_write);
    drop(index);
    for (kind, order) in [("records", "sorted"), ("index", "sorted"), ("index", "shuffled")] {
        let bytes = ["ours", "BTreeMap", "imbl"].map(|map| memory(map, kind, order, entries));
        print_row(&format!("{kind}: bytes per entry, {order}"), bytes);
    }
    println!("\nns of CPU time");
    engine_calls(entries);
    inline_forms();
}

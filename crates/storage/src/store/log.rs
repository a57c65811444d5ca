//! The log: the changes of every commit in the order of their times, up to a size in bytes.
//!
//! An entry has numbered parts, stored by the time of the commit and their number. They are added
//! to the batch that they describe, so that either both are stored or neither. The log is a chain
//! of trees. New entries go into the last tree. The first tree is dropped once the log exceeds its
//! limit, at a cost independent of its size. A separate tree lists them.

use crate::mark;
use crate::{Batch, Cursor, Direction, Engine, Ident, Key, Range, Result, Snapshot, Value};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Tree with the list of the log's trees: by number, with the time of the first entry.
pub const LOG: Ident = Ident(u64::MAX - 1);

/// First ident of the log's trees, which are numbered. A database's own idents count up from one
/// and never reach it.
const SEGMENTS: u64 = LOG_TREES.0;

/// Least ident of the log's trees.
pub const LOG_TREES: Ident = Ident(1 << 62);

/// Number of steps in which the log is trimmed.
const STEPS: u64 = 16;

/// Retention of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Size limit of all entries in bytes. The oldest entries beyond it are removed.
    pub bytes: u64,
}

/// The entry of one commit.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// Time of the commit.
    pub time: u64,
    /// Parts of the entry, by number.
    pub parts: Vec<(u32, Value)>,
}

/// The writer of the log, owned by the holder of the commit lock.
#[derive(Debug)]
pub(super) struct Log {
    segments: VecDeque<Segment>,
    next_number: u64,
    bytes_max: u64,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    number: u64,
    bytes: u64,
}

/// The addition of a commit to the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extension {
    started: Option<Started>,
    bytes: u64,
}

/// A tree that begins with a commit, and the number of old trees that the commit drops.
#[derive(Debug, Clone, Copy)]
struct Started {
    segment: Segment,
    dropped: usize,
}

impl Segment {
    fn ident(self) -> Ident {
        Ident(SEGMENTS + self.number)
    }
}

fn key(time: u64, part: u32) -> Key {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&time.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    Key::from(key)
}

fn read_key(key: &[u8]) -> Option<(u64, u32)> {
    let (time, part) = key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*time), u32::from_be_bytes(part.try_into().ok()?)))
}

fn number_of(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_be_bytes)
}

impl Log {
    /// Opens the log of an engine. Creates it if it does not exist.
    pub(super) fn open(engine: &dyn Engine, options: LogOptions) -> Result<Log> {
        let snapshot = engine.snapshot();
        let mut log = Log { segments: VecDeque::new(), next_number: 0, bytes_max: options.bytes.max(STEPS) };
        if !snapshot.contains(LOG)? {
            let mut batch = Batch::new();
            batch.create(LOG);
            engine.commit(batch)?;
            return Ok(log);
        }
        for number in numbers(snapshot.as_ref())? {
            let segment = Segment { number, bytes: 0 };
            let bytes = snapshot.bytes(segment.ident())?;
            debug_assert!(log.next_number <= number, "tree {number} of the log is out of order");
            log.segments.push_back(Segment { bytes, ..segment });
            log.next_number = number + 1;
        }
        Ok(log)
    }

    /// Removes the log of an engine, if it exists, before changes without log entries.
    pub(super) fn remove(engine: &dyn Engine) -> Result<()> {
        let snapshot = engine.snapshot();
        if !snapshot.contains(LOG)? {
            return Ok(());
        }
        let mut batch = Batch::new();
        for number in numbers(snapshot.as_ref())? {
            batch.drop_ident(Segment { number, bytes: 0 }.ident());
        }
        batch.drop_ident(LOG);
        drop(snapshot);
        engine.commit(batch).map(drop)
    }

    /// Adds an entry to the batch that it describes. Returns the addition to be [noted](Self::note)
    /// after the commit.
    pub(super) fn extend(&self, batch: &mut Batch, time: u64, parts: Vec<(u32, Value)>) -> Extension {
        debug_assert!(parts.is_sorted_by(|(a, _), (b, _)| a < b), "parts are out of order");
        let last = self.segments.back().copied().filter(|last| last.bytes < self.bytes_max / STEPS);
        let started = last.is_none().then(|| self.begin_segment(batch, time));
        let ident = last.or(started.map(|started| started.segment)).map_or(LOG, Segment::ident);
        debug_assert!((LOG_TREES..LOG).contains(&ident), "{ident:?} is no tree of the log");
        let mut bytes = 0;
        for (part, value) in parts {
            bytes += 12 + value.len() as u64;
            // Commit times are unique.
            batch.put_new(ident, key(time, part), value);
        }
        Extension { started, bytes }
    }

    fn begin_segment(&self, batch: &mut Batch, time: u64) -> Started {
        let segment = Segment { number: self.next_number, bytes: 0 };
        debug_assert!(self.segments.iter().all(|other| other.number < segment.number), "{segment:?} exists");
        batch.create(segment.ident());
        batch.put(LOG, segment.number.to_be_bytes(), time.to_be_bytes());
        let (mut held, mut dropped) = (self.bytes(), 0);
        // The latest entries stay, whatever their size: change streams have not read them yet.
        for oldest in self.segments.iter().take(self.segments.len().saturating_sub(1)) {
            if held <= self.bytes_max {
                break;
            }
            debug_assert!(held >= oldest.bytes, "{oldest:?} has more than {held} bytes");
            mark!("the log is trimmed");
            held -= oldest.bytes;
            dropped += 1;
            batch.drop_ident(oldest.ident());
            batch.delete(LOG, oldest.number.to_be_bytes());
        }
        Started { segment, dropped }
    }

    /// Records an addition after its commit.
    pub(super) fn note(&mut self, extension: Extension) {
        if let Some(Started { segment, dropped }) = extension.started {
            debug_assert_eq!(segment.number, self.next_number, "another commit came between");
            debug_assert!(dropped <= self.segments.len(), "{dropped} trees of {}", self.segments.len());
            self.next_number = segment.number + 1;
            self.segments.drain(..dropped);
            self.segments.push_back(segment);
        }
        debug_assert!(!self.segments.is_empty(), "an entry is in no tree");
        if let Some(last) = self.segments.back_mut() {
            last.bytes += extension.bytes;
        }
    }

    /// Returns the number of trees created so far.
    pub(super) fn steps(&self) -> u64 {
        self.next_number
    }

    /// Returns the size limit of all entries in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.bytes_max
    }

    /// Changes the size limit of all entries. They are trimmed as the log grows.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.bytes_max = bytes.max(STEPS);
    }

    /// Returns the size of all entries in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// Returns the numbers of the log's trees, in order.
fn numbers(snapshot: &dyn Snapshot) -> Result<Vec<u64>> {
    let mut list = snapshot.scan(LOG, Range::all(), Direction::Forward)?;
    let mut numbers = Vec::new();
    while let Some((key, _)) = list.next()? {
        numbers.push(number_of(key));
    }
    Ok(numbers)
}

/// A cursor over the entries of one state of the log.
pub struct LogCursor {
    snapshot: Arc<dyn Snapshot>,
    direction: Direction,
    bounds: (Bound<u64>, Bound<u64>),
    /// Remaining trees, in the direction of the scan.
    rest: VecDeque<u64>,
    /// The present tree, and the scan of it.
    cursor: Option<(Ident, Box<dyn Cursor>)>,
    /// First part of the next entry.
    ahead: Option<(u64, u32, Value)>,
}

impl LogCursor {
    /// Returns a cursor over the entries between two times, the lower first in both directions.
    /// Without a log, it is empty.
    pub fn new(
        snapshot: Arc<dyn Snapshot>,
        bounds: (Bound<u64>, Bound<u64>),
        direction: Direction,
    ) -> Result<LogCursor> {
        let mut rest = VecDeque::new();
        if snapshot.contains(LOG)? {
            let mut list = snapshot.scan(LOG, Range::all(), Direction::Forward)?;
            while let Some((key, first)) = list.next()? {
                let begins_before = match bounds.0 {
                    Bound::Included(lower) | Bound::Excluded(lower) => number_of(&first) <= lower,
                    Bound::Unbounded => false,
                };
                if begins_before {
                    // All entries of earlier trees are before the bound.
                    rest.clear();
                }
                rest.push_back(number_of(key));
            }
        }
        if direction == Direction::Backward {
            rest = rest.into_iter().rev().collect();
        }
        Ok(LogCursor { snapshot, direction, bounds, rest, cursor: None, ahead: None })
    }

    fn range(&self) -> Range {
        let (lower, upper) = self.bounds;
        Range {
            lower: match lower {
                Bound::Included(time) => Bound::Included(key(time, 0)),
                Bound::Excluded(time) => Bound::Excluded(key(time, u32::MAX)),
                Bound::Unbounded => Bound::Unbounded,
            },
            upper: match upper {
                Bound::Included(time) => Bound::Included(key(time, u32::MAX)),
                Bound::Excluded(time) => Bound::Excluded(key(time, 0)),
                Bound::Unbounded => Bound::Unbounded,
            },
        }
    }

    fn next_part(&mut self) -> Result<Option<(u64, u32, Value)>> {
        loop {
            if let Some((_, cursor)) = &mut self.cursor {
                if let Some((key, value)) = cursor.next()? {
                    let Some((time, part)) = read_key(key) else {
                        return Err(crate::Error::Corrupted("an entry of the log".to_string()));
                    };
                    return Ok(Some((time, part, value.to_value())));
                }
                self.cursor = None;
            }
            let Some(number) = self.rest.pop_front() else { return Ok(None) };
            let ident = Segment { number, bytes: 0 }.ident();
            self.cursor = Some((ident, self.snapshot.scan(ident, self.range(), self.direction)?));
        }
    }

    /// Returns the next entry, with its parts in ascending order; `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<LogEntry>> {
        self.next_piece(1, usize::MAX)
    }

    /// Returns part 0 of the next entry, and its parts from `from` on up to about this number of bytes. The piece has
    /// at least two of them if they exist, and as many bytes as part 0. If parts are missing, the cursor has no further
    /// use.
    pub fn next_piece(&mut self, from: u32, bytes_max: usize) -> Result<Option<LogEntry>> {
        let first = match self.ahead.take() {
            Some(first) => first,
            None => match self.next_part()? {
                Some(first) => first,
                None => return Ok(None),
            },
        };
        if from > 1
            && let Some((ident, _)) = self.cursor
        {
            debug_assert_eq!(self.direction, Direction::Forward, "a piece of an entry");
            let range = Range { lower: Bound::Included(key(first.0, from)), ..self.range() };
            self.cursor = Some((ident, self.snapshot.scan(ident, range, self.direction)?));
        }
        let (mut bytes, bytes_max) = (0, bytes_max.max(first.2.len()));
        let mut entry = LogEntry { time: first.0, parts: vec![(first.1, first.2)] };
        while (bytes < bytes_max || entry.parts.len() < 3)
            && let Some(next) = self.next_part()?
        {
            if next.0 != entry.time {
                self.ahead = Some(next);
                break;
            }
            bytes += next.2.len();
            entry.parts.push((next.1, next.2));
        }
        if self.direction == Direction::Backward {
            entry.parts.reverse();
        }
        Ok(Some(entry))
    }
}

/// Returns the time of the oldest entry.
pub(super) fn first_time(snapshot: &Arc<dyn Snapshot>) -> Result<Option<u64>> {
    let bounds = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = LogCursor::new(snapshot.clone(), bounds, Direction::Forward)?;
    Ok(cursor.next_part()?.map(|(time, _, _)| time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryEngine;

    fn entries(engine: &MemoryEngine, lower: Bound<u64>, direction: Direction) -> Vec<(u64, usize)> {
        let mut cursor = LogCursor::new(engine.snapshot(), (lower, Bound::Unbounded), direction).unwrap();
        let mut entries = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            assert!(entry.parts.iter().enumerate().all(|(at, (part, _))| at == *part as usize));
            entries.push((entry.time, entry.parts.len()));
        }
        entries
    }

    #[test]
    fn the_log_is_read_from_anywhere_and_trimmed_at_its_beginning() {
        let engine = MemoryEngine::new();
        let mut log = Log::open(&engine, LogOptions { bytes: 16_000 }).unwrap();
        for time in 1..=400u64 {
            let mut batch = Batch::new();
            let value = Value::from([7; 88].as_slice());
            let parts = (0..1 + time as u32 % 2).map(|part| (part, value.clone())).collect();
            let extension = log.extend(&mut batch, time, parts);
            engine.commit(batch).unwrap();
            log.note(extension);
        }
        assert!(log.bytes() <= 17_000, "{}", log.bytes());
        let all = entries(&engine, Bound::Unbounded, Direction::Forward);
        let first = all[0].0;
        assert!(first > 280 && all.len() as u64 == 401 - first);
        assert_eq!(first_time(&engine.snapshot()).unwrap(), Some(first));
        assert!(all.iter().all(|(time, parts)| *parts as u64 == 1 + time % 2));
        assert_eq!(entries(&engine, Bound::Excluded(398), Direction::Forward), [(399, 2), (400, 1)]);
        assert_eq!(entries(&engine, Bound::Included(399), Direction::Backward), [(400, 1), (399, 2)]);
        // With a lower limit, the oldest entries are removed as new ones are added.
        log.set_limit(8_000);
        for time in 401..=420u64 {
            let mut batch = Batch::new();
            let extension = log.extend(&mut batch, time, vec![(0, Value::from([7; 88].as_slice()))]);
            engine.commit(batch).unwrap();
            log.note(extension);
        }
        assert!(log.bytes() <= 8_600, "{}", log.bytes());
        // A large entry is removed later than by the next one.
        for (time, bytes) in [(421, 9_000), (422, 100), (423, 400), (424, 100), (425, 100)] {
            let mut batch = Batch::new();
            let extension = log.extend(&mut batch, time, vec![(0, Value::from(vec![7; bytes].as_slice()))]);
            engine.commit(batch).unwrap();
            log.note(extension);
            let first = first_time(&engine.snapshot()).unwrap();
            assert!(first <= Some(421) || time > 423, "{first:?} at {time}");
        }
        assert!(log.bytes() <= 8_000, "{}", log.bytes());
        let piece = |from, bytes| {
            let bounds = (Bound::Included(426), Bound::Unbounded);
            let mut cursor = LogCursor::new(engine.snapshot(), bounds, Direction::Forward).unwrap();
            let parts = cursor.next_piece(from, bytes).unwrap().unwrap().parts;
            let is_last = parts.last().is_some_and(|(part, _)| *part == 9);
            assert!(!is_last || cursor.next_entry().unwrap().is_some_and(|next| next.time == 427));
            parts.into_iter().map(|(part, _)| part).collect::<Vec<_>>()
        };
        let mut batch = Batch::new();
        let parts = (0..10).map(|part| (part, Value::from([7; 10].as_slice()))).collect();
        let extension = log.extend(&mut batch, 426, parts);
        engine.commit(batch).unwrap();
        log.note(extension);
        let mut batch = Batch::new();
        let extension = log.extend(&mut batch, 427, vec![(0, Value::from([7].as_slice()))]);
        engine.commit(batch).unwrap();
        log.note(extension);
        assert_eq!(piece(1, 30), [0, 1, 2, 3]);
        assert_eq!(piece(1, 1), [0, 1, 2], "two parts");
        assert_eq!(piece(4, 30), [0, 4, 5, 6]);
        assert_eq!(piece(8, 1000), [0, 8, 9]);
        let again = Log::open(&engine, LogOptions { bytes: 16_000 }).unwrap();
        assert_eq!((again.bytes(), again.next_number), (log.bytes(), log.next_number));
        Log::remove(&engine).unwrap();
        assert!(entries(&engine, Bound::Unbounded, Direction::Forward).is_empty());
    }
}

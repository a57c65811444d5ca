//! The log: what every commit did, in the order of their times, kept up to a number of bytes.
//!
//! An entry has parts, which lie under the time of the commit and their number. They are put into the batch
//! that they tell of, so that there are both or neither. The log is a chain of trees: the last takes new
//! entries, and the first is dropped whole once all of them hold more than they may, which costs the same
//! however much it holds. A tree of its own lists them.

use crate::{Batch, Cursor, Direction, Engine, Ident, Key, Range, Result, Snapshot, Value};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// The tree that lists the trees of the log: by number, with the time that each begins at.
pub const LOG: Ident = Ident(u64::MAX - 1);

/// The trees themselves have idents from here on, by their numbers. A database's own idents count up from
/// one, so that they never come near.
const SEGMENTS: u64 = LOG_TREES.0;

/// The least of those idents.
pub const LOG_TREES: Ident = Ident(1 << 62);

/// In how many steps the log is trimmed.
const STEPS: u64 = 16;

/// How much of the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// The most bytes of all entries, beyond which the oldest go.
    pub bytes: u64,
}

/// The entry of one commit.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// The time of the commit.
    pub time: u64,
    /// The parts that it was given, by their numbers.
    pub parts: Vec<(u32, Value)>,
}

/// The writing end, in the hands of whoever holds the commit lock.
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

/// What a commit adds to the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extension {
    begun: Option<Begun>,
    bytes: u64,
}

/// A tree that begins with a commit, and how many of the oldest end with it.
#[derive(Debug, Clone, Copy)]
struct Begun {
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
    /// The log that an engine holds, made if there is none.
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
            log.segments.push_back(Segment { bytes, ..segment });
            log.next_number = number + 1;
        }
        Ok(log)
    }

    /// Removes the log that an engine holds, if it holds one: changes that it won't tell of are to follow.
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

    /// Adds an entry to the batch that it tells of. Gives what is to be [noted](Self::note) once that is committed.
    pub(super) fn extend(&self, batch: &mut Batch, time: u64, parts: Vec<(u32, Value)>) -> Extension {
        let last = self.segments.back().copied().filter(|last| last.bytes < self.bytes_max / STEPS);
        let begun = last.is_none().then(|| self.begin_segment(batch, time));
        let ident = last.or(begun.map(|begun| begun.segment)).map_or(LOG, Segment::ident);
        let mut bytes = 0;
        for (part, value) in parts {
            bytes += 12 + value.len() as u64;
            // No two commits have one time.
            batch.put_new(ident, key(time, part), value);
        }
        Extension { begun, bytes }
    }

    fn begin_segment(&self, batch: &mut Batch, time: u64) -> Begun {
        let segment = Segment { number: self.next_number, bytes: 0 };
        batch.create(segment.ident());
        batch.put(LOG, segment.number.to_be_bytes(), time.to_be_bytes());
        let (mut held, mut dropped) = (self.bytes(), 0);
        for oldest in &self.segments {
            if held <= self.bytes_max {
                break;
            }
            held -= oldest.bytes;
            dropped += 1;
            batch.drop_ident(oldest.ident());
            batch.delete(LOG, oldest.number.to_be_bytes());
        }
        Begun { segment, dropped }
    }

    /// Goes on as what has been committed left it.
    pub(super) fn note(&mut self, extension: Extension) {
        if let Some(Begun { segment, dropped }) = extension.begun {
            self.next_number = segment.number + 1;
            self.segments.drain(..dropped);
            self.segments.push_back(segment);
        }
        if let Some(last) = self.segments.back_mut() {
            last.bytes += extension.bytes;
        }
    }

    /// How many trees there have been.
    pub(super) fn steps(&self) -> u64 {
        self.next_number
    }

    /// The most bytes of all entries.
    pub(super) fn limit(&self) -> u64 {
        self.bytes_max
    }

    /// Changes the most bytes of all entries: they are trimmed to it as the log grows.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.bytes_max = bytes.max(STEPS);
    }

    /// The bytes of all entries.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// The numbers of the log's trees, in order.
fn numbers(snapshot: &dyn Snapshot) -> Result<Vec<u64>> {
    let mut list = snapshot.scan(LOG, Range::all(), Direction::Forward)?;
    let mut numbers = Vec::new();
    while let Some((key, _)) = list.next()? {
        numbers.push(number_of(key));
    }
    Ok(numbers)
}

/// A walk over the entries of one state of the log.
pub struct LogCursor {
    snapshot: Arc<dyn Snapshot>,
    direction: Direction,
    bounds: (Bound<u64>, Bound<u64>),
    /// The trees still to come, in the direction of the walk.
    rest: VecDeque<u64>,
    cursor: Option<Box<dyn Cursor>>,
    /// The first part of the entry after the one being put together.
    ahead: Option<(u64, u32, Value)>,
}

impl LogCursor {
    /// A walk over the entries whose times lie between two bounds, the lower first whatever the direction.
    /// Without a log there are none.
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
                    // All that the earlier trees hold lies before the bound.
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
            if let Some(cursor) = &mut self.cursor {
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
            self.cursor = Some(self.snapshot.scan(ident, self.range(), self.direction)?);
        }
    }

    /// The next entry, with its parts in ascending order; `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<LogEntry>> {
        let first = match self.ahead.take() {
            Some(first) => first,
            None => match self.next_part()? {
                Some(first) => first,
                None => return Ok(None),
            },
        };
        let mut entry = LogEntry { time: first.0, parts: vec![(first.1, first.2)] };
        while let Some(next) = self.next_part()? {
            if next.0 != entry.time {
                self.ahead = Some(next);
                break;
            }
            entry.parts.push((next.1, next.2));
        }
        if self.direction == Direction::Backward {
            entry.parts.reverse();
        }
        Ok(Some(entry))
    }
}

/// The time of the oldest entry that is kept.
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
        let mut found = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            assert!(entry.parts.iter().enumerate().all(|(at, (part, _))| at == *part as usize));
            found.push((entry.time, entry.parts.len()));
        }
        found
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
        // With less room the oldest go as new ones come.
        log.set_limit(8_000);
        for time in 401..=420u64 {
            let mut batch = Batch::new();
            let extension = log.extend(&mut batch, time, vec![(0, Value::from([7; 88].as_slice()))]);
            engine.commit(batch).unwrap();
            log.note(extension);
        }
        assert!(log.bytes() <= 8_600, "{}", log.bytes());
        let again = Log::open(&engine, LogOptions { bytes: 16_000 }).unwrap();
        assert_eq!((again.bytes(), again.next_number), (log.bytes(), log.next_number));
        Log::remove(&engine).unwrap();
        assert!(entries(&engine, Bound::Unbounded, Direction::Forward).is_empty());
    }
}

//! Snapshots: keys are looked up, and trees scanned, by statements on a session.

use crate::connection::{Param, Row};
use crate::front::Front;
use crate::keys::{self, bounds, run_end, stored};
use crate::log::{OneTree, is_log, log_bounds, scan_of};
use crate::schema::{PAGE_BYTES, Statements};
use crate::session::Session;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use storage::store::LOG;
use storage::{Cursor, Direction, Error, Ident, Key, Range, Result, Snapshot, Value};

/// How many entries the first page of a scan has, and a later one at most.
const PAGES: (usize, usize) = (102, 4096);

/// One state of everything.
#[derive(Clone)]
pub(crate) struct PostgresSnapshot {
    pub(crate) statements: Arc<Statements>,
    pub(crate) session: Arc<Session>,
}

impl PostgresSnapshot {
    fn run(&self, statement: &crate::connection::Statement, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.session.run(statement, params).map_err(Error::from)
    }

    fn size(&self, ident: Ident) -> Result<(u64, u64)> {
        let rows = self.run(&self.statements.size, &[Param::Int(keys::ident(ident))])?;
        let row = rows.first().ok_or(Error::NoSuchIdent(ident))?;
        Ok((row.int(0) as u64, row.int(1) as u64))
    }

    fn cursor(&self, ident: Ident, range: Range, direction: Direction) -> PostgresCursor {
        PostgresCursor {
            snapshot: self.clone(),
            ident,
            range,
            direction,
            with: None,
            page: VecDeque::new(),
            current: None,
            ended: false,
            next_page: PAGES.0,
        }
    }
}

impl Front {
    /// A snapshot, whatever the catalog is.
    pub(crate) fn snapshot(&self) -> PostgresSnapshot {
        self.snapshot_of(None)
    }

    /// A snapshot to which a catalog of this generation belongs.
    pub(crate) fn snapshot_of(&self, generation: Option<u64>) -> PostgresSnapshot {
        let session = Session::new(&self.statements, &self.reads, (&self.known, generation), &self.sessions);
        PostgresSnapshot { statements: self.statements.clone(), session }
    }
}

fn value(row: &Row, column: usize) -> Value {
    Value::from(row.bytes(column).unwrap_or_default())
}

/// The entry and the record of a lookup.
fn both(rows: &[Row]) -> Result<Option<(Value, Value)>> {
    match rows.first() {
        None => Ok(None),
        Some(row) if row.bytes(0).is_none() => Ok(None),
        Some(row) if row.bytes(1).is_some() => Ok(Some((value(row, 0), value(row, 1)))),
        Some(_) => Err(Error::Corrupted("an index names a record that isn't there".to_string())),
    }
}

impl Snapshot for PostgresSnapshot {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        let params = [Param::Int(keys::ident(ident)), Param::Bytes(&stored(key))];
        let rows = self.run(&self.statements.get, &params)?;
        Ok(rows.first().map(|row| value(row, 0)))
    }

    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let key = stored(key);
        let params = [Param::Int(keys::ident(index)), Param::Bytes(&key), Param::Int(keys::ident(records))];
        both(&self.run(&self.statements.lookup, &params)?)
    }

    fn lookup_alone(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let key = stored(key);
        let params = [Param::Int(keys::ident(index)), Param::Bytes(&key), Param::Int(keys::ident(records))];
        let statements = (&*self.statements.lookup, &*self.statements.lookup_alone);
        both(&self.session.run_alone(statements, &params).map_err(Error::from)?)
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        match ident {
            LOG => Ok(Box::new(OneTree::new())),
            _ => Ok(Box::new(self.cursor(ident, range, direction))),
        }
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        self.size(ident).map(|(entries, _)| entries)
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        self.size(ident).map(|(_, bytes)| bytes)
    }

    fn counted(&self, ident: Ident) -> Result<Option<(i64, i64)>> {
        let rows = self.run(&self.statements.counts, &[Param::Int(keys::ident(ident))])?;
        Ok(rows.first().map(|row| (row.int(0), row.int(1))))
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        if is_log(ident) {
            return Ok(true);
        }
        let rows = self.run(&self.statements.contains, &[Param::Int(keys::ident(ident))])?;
        Ok(!rows.is_empty())
    }

    fn confirm(&self) -> Result<()> {
        self.session.confirm().map_err(Error::from)
    }

    fn is_steady(&self) -> bool {
        self.session.is_steady()
    }

    fn keep_state(&self) {
        self.session.be_strict();
    }
}

/// What a scan of an index brings along: records of a tree, whose ids are in the entries' keys, or in their
/// values where the index is unique.
#[derive(Debug, Clone, Copy)]
pub(crate) struct With {
    records: Ident,
    unique: bool,
}

struct Entry {
    key: Key,
    value: Value,
    record: Option<Value>,
}

/// A walk over a range, which is read by the page.
pub(crate) struct PostgresCursor {
    snapshot: PostgresSnapshot,
    ident: Ident,
    /// What has not been read yet.
    range: Range,
    direction: Direction,
    with: Option<With>,
    page: VecDeque<Entry>,
    current: Option<Entry>,
    /// Whether all pages have been read.
    ended: bool,
    next_page: usize,
}

impl PostgresCursor {
    /// Reads the next page.
    fn read(&mut self) -> Result<()> {
        // Whoever has given up the state that he began with may have lost the tree, too.
        if !self.snapshot.is_steady() && !self.snapshot.contains(self.ident)? {
            return Err(Error::NoSuchIdent(self.ident));
        }
        let backward = self.direction == Direction::Backward;
        let ((low, lower), (high, upper)) = bounds(self.ident, &self.range);
        let statements = self.snapshot.statements.clone();
        let limit = self.next_page;
        let mut params = match is_log(self.ident) {
            true => log_bounds(&self.range).map(Param::Int).to_vec(),
            false => {
                vec![Param::Int(low), Param::Bytes(&lower), Param::Int(high), Param::Bytes(&upper)]
            }
        };
        params.push(Param::Int(limit as i64));
        let statement = match self.with {
            None if is_log(self.ident) => scan_of(&statements, self.direction),
            None => &statements.scan[usize::from(backward)],
            Some(with) => {
                params.push(Param::Int(keys::ident(with.records)));
                &statements.scan_records[usize::from(backward) + 2 * usize::from(with.unique)]
            }
        };
        let rows = self.snapshot.run(statement, &params)?;
        let bytes: usize = rows.iter().map(|row| row.bytes(1).map_or(0, <[u8]>::len)).sum();
        let records: usize = rows.iter().map(|row| row.bytes(3).map_or(0, <[u8]>::len)).sum();
        self.ended = rows.len() < limit && bytes.max(records) < PAGE_BYTES;
        self.next_page = (limit * 8).min(PAGES.1);
        for row in &rows {
            if row.bytes(2).is_some() {
                // Those that share the bytes that fit into the index come together, whole and in order.
                let head = row.bytes(0).and_then(|key| key.get(..keys::WHOLE)).unwrap_or_default().to_vec();
                self.read_run(&head)?;
                self.ended = false;
                break;
            }
            self.take(Entry {
                key: Key::from(row.bytes(0).unwrap_or_default()),
                value: value(row, 1),
                record: row.bytes(3).map(Value::from),
            });
        }
        if let Some(last) = self.page.back().map(|entry| entry.key.clone())
            && !self.ended
        {
            self.pass(last);
        }
        Ok(())
    }

    /// Reads all entries whose keys share so many bytes, and goes on behind them.
    fn read_run(&mut self, head: &[u8]) -> Result<()> {
        let end = run_end(head);
        let params = [Param::Int(keys::ident(self.ident)), Param::Bytes(head), Param::Bytes(&end)];
        let rows = self.snapshot.run(&self.snapshot.statements.run.clone(), &params)?;
        let mut run: Vec<Entry> = rows
            .iter()
            .map(|row| Entry {
                key: Key::from(row.bytes(2).or(row.bytes(0)).unwrap_or_default()),
                value: value(row, 1),
                record: None,
            })
            .collect();
        run.sort_by(|a, b| a.key.cmp(&b.key));
        if self.direction == Direction::Backward {
            run.reverse();
        }
        let (before, behind) = (Key::from(head), Key::from(end));
        run.into_iter().for_each(|entry| self.take(entry));
        match self.direction {
            Direction::Forward => self.range.lower = Bound::Included(behind),
            Direction::Backward => self.range.upper = Bound::Excluded(before),
        }
        Ok(())
    }

    fn take(&mut self, entry: Entry) {
        if self.range.contains(&entry.key) {
            self.page.push_back(entry);
        }
    }

    /// Goes on behind a key.
    fn pass(&mut self, key: Key) {
        match self.direction {
            Direction::Forward => {
                let behind = match &self.range.lower {
                    Bound::Included(lower) | Bound::Excluded(lower) => *lower > key,
                    Bound::Unbounded => false,
                };
                if !behind {
                    self.range.lower = Bound::Excluded(key);
                }
            }
            Direction::Backward => {
                let behind = match &self.range.upper {
                    Bound::Included(upper) | Bound::Excluded(upper) => *upper < key,
                    Bound::Unbounded => false,
                };
                if !behind {
                    self.range.upper = Bound::Excluded(key);
                }
            }
        }
    }

    fn is_before(&self, key: &[u8], target: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => key < target,
            Direction::Backward => key > target,
        }
    }
}

impl Cursor for PostgresCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &Value)>> {
        while self.page.is_empty() && !self.ended {
            self.read()?;
        }
        self.current = self.page.pop_front();
        Ok(self.current.as_ref().map(|entry| (&*entry.key, &entry.value)))
    }

    fn bring(&mut self, records: Ident, unique: bool) {
        self.with = Some(With { records, unique });
    }

    fn record(&mut self) -> Option<Value> {
        self.current.as_mut()?.record.take()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        while let Some(first) = self.page.front() {
            if !self.is_before(&first.key, key) {
                return Ok(());
            }
            self.page.pop_front();
        }
        let is_ahead = match (&self.range.lower, &self.range.upper, self.direction) {
            (Bound::Included(at) | Bound::Excluded(at), _, Direction::Forward) => **at < *key,
            (_, Bound::Included(at) | Bound::Excluded(at), Direction::Backward) => **at > *key,
            _ => true,
        };
        if is_ahead {
            match self.direction {
                Direction::Forward => self.range.lower = Bound::Included(Key::from(key)),
                Direction::Backward => self.range.upper = Bound::Included(Key::from(key)),
            }
        }
        Ok(())
    }
}

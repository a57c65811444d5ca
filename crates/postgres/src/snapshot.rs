//! Snapshots: key lookups and tree scans by statements on a session.

use crate::connection::{Param, Row};
use crate::cursor::PostgresCursor;
use crate::front::Front;
use crate::keys::{self, index_key};
use crate::log::{OneTree, is_log};
use crate::pages::PAGE_BYTES;
use crate::scan_group::ScanGroup;
use crate::session::{PostgresSnapshot, Session, value};
use crate::times::unsigned;
use std::collections::HashMap;
use storage::store::LOG;
use storage::{Cursor, Direction, Error, Hints, Ident, Key, Range, RemoteHints, Result, Snapshot, Value};

impl PostgresSnapshot {
    /// Returns the number of entries in a tree and their total size.
    fn size(&self, ident: Ident) -> Result<(u64, u64)> {
        let rows = self.run(&self.statements.size, &[Param::Int(keys::stored_ident(ident))])?;
        let row = rows.first().ok_or(Error::NoSuchIdent(ident))?;
        Ok((row.int(0) as u64, row.int(1) as u64))
    }
}

impl Front {
    /// Returns a snapshot with any generation of the catalog.
    pub(crate) fn snapshot(&self) -> PostgresSnapshot {
        self.snapshot_of(None)
    }

    /// Returns a snapshot that requires this generation of the catalog.
    pub(crate) fn snapshot_of(&self, generation: Option<u64>) -> PostgresSnapshot {
        let session = Session::new(&self.statements, &self.reads, (&self.known, generation), &self.sessions);
        PostgresSnapshot { statements: self.statements.clone(), session }
    }
}

/// Returns the entry and the record of a lookup.
fn entry_and_record(rows: &[Row]) -> Result<Option<(Value, Value)>> {
    match rows.first() {
        None => Ok(None),
        Some(row) if row.bytes(0).is_none() => Ok(None),
        Some(row) if row.bytes(1).is_some() => Ok(Some((value(row, 0), value(row, 1)))),
        Some(_) => Err(Error::Corrupted("an index entry refers to a missing record".to_string())),
    }
}

impl Snapshot for PostgresSnapshot {
    fn get(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        let params = [Param::Int(keys::stored_ident(ident)), Param::Bytes(&index_key(key))];
        let rows = self.run(&self.statements.get, &params)?;
        Ok(rows.first().map(|row| value(row, 0)))
    }

    fn lookup(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let key = index_key(key);
        let params = [
            Param::Int(keys::stored_ident(index)),
            Param::Bytes(&key),
            Param::Int(keys::stored_ident(records)),
        ];
        entry_and_record(&self.run(&self.statements.lookup, &params)?)
    }

    fn lookup_alone(&self, index: Ident, key: &[u8], records: Ident) -> Result<Option<(Value, Value)>> {
        let key = index_key(key);
        let params = [
            Param::Int(keys::stored_ident(index)),
            Param::Bytes(&key),
            Param::Int(keys::stored_ident(records)),
        ];
        let statements = (&*self.statements.lookup, &*self.statements.lookup_alone);
        entry_and_record(&self.session.run_single(statements, &params).map_err(Error::from)?)
    }

    fn scan(&self, ident: Ident, range: Range, direction: Direction) -> Result<Box<dyn Cursor>> {
        match ident {
            LOG => Ok(Box::new(OneTree::new())),
            _ => Ok(Box::new(PostgresCursor::new(self, (ident, range), Hints::default(), direction))),
        }
    }

    fn entries(&self, ident: Ident) -> Result<u64> {
        self.size(ident).map(|(entries, _)| entries)
    }

    fn bytes(&self, ident: Ident) -> Result<u64> {
        self.size(ident).map(|(_, bytes)| bytes)
    }

    fn contains(&self, ident: Ident) -> Result<bool> {
        if is_log(ident) {
            return Ok(true);
        }
        self.has_tree(ident)
    }

    fn remote(&self) -> Option<&dyn RemoteHints> {
        Some(self)
    }
}

impl RemoteHints for PostgresSnapshot {
    fn get_alone(&self, ident: Ident, key: &[u8]) -> Result<Option<Value>> {
        let params = [Param::Int(keys::stored_ident(ident)), Param::Bytes(&index_key(key))];
        let statements = (&*self.statements.get, &*self.statements.get_alone);
        let rows = self.session.run_single(statements, &params).map_err(Error::from)?;
        Ok(rows.first().and_then(|row| row.bytes(0)).map(Value::from))
    }

    fn scan_hinted(
        &self,
        ident: Ident,
        range: Range,
        hints: Hints,
        direction: Direction,
    ) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(PostgresCursor::new(self, (ident, range), hints, direction)))
    }

    fn scan_together(
        &self,
        scans: Vec<(Ident, Range, Hints)>,
        direction: Direction,
    ) -> Result<Vec<Box<dyn Cursor>>> {
        let cursor = |(ident, range, hints)| PostgresCursor::new(self, (ident, range), hints, direction);
        let mut cursors: Vec<PostgresCursor> = scans.into_iter().map(cursor).collect();
        let scan_group = ScanGroup::new(cursors.iter().map(PostgresCursor::first_page), direction);
        cursors.iter_mut().enumerate().for_each(|(number, cursor)| cursor.join(&scan_group, number));
        Ok(cursors.into_iter().map(|cursor| Box::new(cursor) as Box<dyn Cursor>).collect())
    }

    fn prefetch_records(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        self.get_several(ident, keys, Some(PAGE_BYTES / keys.len().max(1)))
    }

    fn counts(&self, idents: &[Ident]) -> Result<Vec<(Ident, i64, i64)>> {
        let stored: Vec<i64> = idents.iter().map(|ident| keys::stored_ident(*ident)).collect();
        let rows = self.run(&self.statements.counts_of, &[Param::Ints(&stored)])?;
        let rows: HashMap<i64, &Row> = rows.iter().map(|row| (row.int(0), row)).collect();
        // A collection without writes has no row.
        let counts = idents.iter().zip(&stored).map(|(ident, stored)| {
            rows.get(stored).map_or((*ident, 0, 0), |row| (*ident, row.int(1), row.int(2)))
        });
        Ok(counts.collect())
    }

    fn commit_times(&self, ident: Ident) -> Result<Vec<(Key, u64)>> {
        let rows = self.run(&self.statements.commit_times, &[Param::Int(keys::stored_ident(ident))])?;
        let entry = |row: &Row| Some((Key::from(row.bytes(0)?), unsigned(row.int(1))));
        Ok(rows.iter().filter_map(entry).collect())
    }

    fn confirm(&self) -> Result<()> {
        self.session.confirm().map_err(Error::from)
    }

    fn is_pinned(&self) -> bool {
        self.session.is_pinned()
    }

    fn pin(&self) {
        self.session.enable_strict_mode();
    }
}

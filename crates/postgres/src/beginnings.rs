//! Prefetch of the first pages of several scans: the first read fetches all of them.

use crate::connection::{Param, Row};
use crate::keys::{self, bounds};
use crate::pages::{Named, PAGE_BYTES, Room, column};
use crate::session::PostgresSnapshot;
use parking_lot::Mutex;
use std::sync::Arc;
use storage::{Direction, Error, Ident, Range, Result};

/// Maximum number of scans that begin together, and the approximate total of their entries.
const TOGETHER: (usize, usize) = (100, 400);

/// Minimum and maximum number of entries for each scan.
const ENTRIES: (usize, usize) = (4, 102);

/// Scans that have not begun, all in one direction.
pub(crate) struct Beginnings {
    direction: Direction,
    entries: usize,
    scans: Mutex<Vec<Scan>>,
}

/// State of one scan of the group.
enum Scan {
    Waiting {
        ident: Ident,
        range: Range,
        named: Option<(Ident, Named)>,
    },
    Read(Vec<Row>),
    /// The prefetched page was taken, or the cursor reads by itself.
    Gone,
}

impl Beginnings {
    pub(crate) fn new(ranges: &[(Ident, Range)], direction: Direction) -> Arc<Beginnings> {
        let scan = |(ident, range): &(Ident, Range)| Scan::Waiting {
            ident: *ident,
            range: range.clone(),
            named: None,
        };
        let together = ranges.len().clamp(1, TOGETHER.0);
        Arc::new(Beginnings {
            direction,
            entries: (TOGETHER.1 / together).clamp(ENTRIES.0, ENTRIES.1),
            scans: Mutex::new(ranges.iter().map(scan).collect()),
        })
    }

    /// Returns the room of each scan.
    pub(crate) fn room(&self) -> Room {
        let all = TOGETHER.1.max(TOGETHER.0 * ENTRIES.0);
        Room { entries: self.entries, longest: PAGE_BYTES / all }
    }

    /// Makes a scan fetch the records of its entries as well.
    pub(crate) fn bring(&self, number: usize, brought: Option<(Ident, Named)>) {
        if let Some(Scan::Waiting { named, .. }) = self.scans.lock().get_mut(number) {
            *named = brought;
        }
    }

    /// Removes a scan from the group: its cursor reads it alone.
    pub(crate) fn leave(&self, number: usize) {
        if let Some(scan) = self.scans.lock().get_mut(number) {
            *scan = Scan::Gone;
        }
    }

    /// Returns the first page of a scan, and reads the first pages of others with it. Returns `None` if the scan has
    /// left the group.
    pub(crate) fn take(&self, snapshot: &PostgresSnapshot, number: usize) -> Result<Option<Vec<Row>>> {
        let mut scans = self.scans.lock();
        if let Some(Scan::Waiting { .. }) = scans.get(number) {
            self.read(snapshot, &mut scans, number)?;
        }
        let scan = scans.get_mut(number).map(|scan| std::mem::replace(scan, Scan::Gone));
        Ok(match scan {
            Some(Scan::Read(rows)) => Some(rows),
            _ => None,
        })
    }

    /// Reads the first pages of this scan and of the scans behind it.
    fn read(&self, snapshot: &PostgresSnapshot, scans: &mut [Scan], first: usize) -> Result<()> {
        let mut asked = Vec::new();
        let (mut idents, mut ends, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
        let mut records = Ident(0);
        for (number, scan) in scans.iter().enumerate().skip(first).take(TOGETHER.0) {
            let Scan::Waiting { ident, range, named } = scan else { continue };
            let (tree, named) = named.unwrap_or((records, Named::Nothing));
            records = tree;
            idents.push(keys::ident(*ident));
            ends.push(bounds(range));
            kinds.push(named as i64);
            asked.push(number);
        }
        let lows: Vec<Option<&[u8]>> = ends.iter().map(|(low, _)| Some(&**low)).collect();
        let highs: Vec<Option<&[u8]>> = ends.iter().map(|(_, high)| Some(&**high)).collect();
        let Room { entries, longest } = self.room();
        let params = [
            Param::Ints(&idents),
            Param::Many(&lows),
            Param::Many(&highs),
            Param::Ints(&kinds),
            Param::Int(entries as i64),
            Param::Int(longest as i64),
            Param::Int(keys::ident(records)),
        ];
        let rows = snapshot.run(snapshot.statements.pages.beginnings(self.direction), &params)?;
        for number in &asked {
            if let Some(scan) = scans.get_mut(*number) {
                *scan = Scan::Read(Vec::new());
            }
        }
        for row in rows {
            let number = usize::try_from(row.int(column::NUMBER) - 1).ok().and_then(|nth| asked.get(nth));
            match number.and_then(|number| scans.get_mut(*number)) {
                Some(Scan::Read(rows)) => rows.push(row),
                _ => return Err(Error::Corrupted("an answer is to no question".to_string())),
            }
        }
        Ok(())
    }
}

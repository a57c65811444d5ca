//! Prefetch of the first pages of several scans: the first read fetches all of them.

use crate::connection::{Param, Row};
use crate::keys::{self, bounds};
use crate::pages::{IdIn, PAGE_BYTES, PageLimits, column};
use crate::session::PostgresSnapshot;
use parking_lot::Mutex;
use std::sync::Arc;
use storage::{Direction, Error, Ident, Range, Result};

/// Maximum number of scans that begin together, and the approximate total of their entries.
const SCANS_MAX: (usize, usize) = (100, 400);

/// Minimum and maximum number of entries for each scan.
const ENTRIES: (usize, usize) = (4, 102);

/// Scans that have not begun, all in one direction.
pub(crate) struct ScanGroup {
    direction: Direction,
    entries: usize,
    scans: Mutex<Vec<Scan>>,
}

/// What the first page of a scan reads.
pub(crate) struct FirstPage {
    pub(crate) ident: Ident,
    pub(crate) range: Range,
    /// The tree of the records that the page carries, and how entries name them.
    pub(crate) named: Option<(Ident, IdIn)>,
}

/// State of one scan of the group.
enum Scan {
    Waiting(FirstPage),
    Read(Vec<Row>),
    /// The prefetched page was taken, or the cursor reads by itself.
    Gone,
}

impl ScanGroup {
    /// `None` stands for a scan that reads its first page by itself.
    pub(crate) fn new(
        scans: impl Iterator<Item = Option<FirstPage>>,
        direction: Direction,
    ) -> Arc<ScanGroup> {
        let scans: Vec<Scan> = scans.map(|page| page.map_or(Scan::Gone, Scan::Waiting)).collect();
        let together = scans.len().clamp(1, SCANS_MAX.0);
        Arc::new(ScanGroup {
            direction,
            entries: (SCANS_MAX.1 / together).clamp(ENTRIES.0, ENTRIES.1),
            scans: Mutex::new(scans),
        })
    }

    /// Returns the room of each scan.
    pub(crate) fn page_limits(&self) -> PageLimits {
        let all = SCANS_MAX.1.max(SCANS_MAX.0 * ENTRIES.0);
        PageLimits { entries: self.entries, longest: PAGE_BYTES / all }
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
        debug_assert!(number < scans.len(), "no scan {number} of {}", scans.len());
        if let Some(Scan::Waiting(_)) = scans.get(number) {
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
        for (number, scan) in scans.iter().enumerate().skip(first).take(SCANS_MAX.0) {
            let Scan::Waiting(FirstPage { ident, range, named }) = scan else { continue };
            let (tree, named) = named.unwrap_or((records, IdIn::Nothing));
            records = tree;
            idents.push(keys::stored_ident(*ident));
            ends.push(bounds(range));
            kinds.push(named as i64);
            asked.push(number);
        }
        debug_assert!(idents.len() <= SCANS_MAX.0 && asked.first() == Some(&first), "{asked:?} for {first}");
        let lows: Vec<Option<&[u8]>> = ends.iter().map(|(low, _)| Some(&**low)).collect();
        let highs: Vec<Option<&[u8]>> = ends.iter().map(|(_, high)| Some(&**high)).collect();
        let PageLimits { entries, longest } = self.page_limits();
        let params = [
            Param::Ints(&idents),
            Param::Many(&lows),
            Param::Many(&highs),
            Param::Ints(&kinds),
            Param::Int(entries as i64),
            Param::Int(longest as i64),
            Param::Int(keys::stored_ident(records)),
        ];
        let rows = snapshot.run(snapshot.statements.pages.scan_group(self.direction), &params)?;
        for number in &asked {
            if let Some(scan) = scans.get_mut(*number) {
                *scan = Scan::Read(Vec::new());
            }
        }
        for row in rows {
            let number = usize::try_from(row.int(column::NUMBER) - 1).ok().and_then(|nth| asked.get(nth));
            match number.and_then(|number| scans.get_mut(*number)) {
                Some(Scan::Read(rows)) => rows.push(row),
                _ => return Err(Error::Corrupted("a reply belongs to no request".to_string())),
            }
        }
        Ok(())
    }
}

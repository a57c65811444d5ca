//! Excerpts of values: pages of the first bytes of each value, once the values of a scan have shown how many it needs.

use crate::connection::Row;
use crate::pages::column;
use std::sync::Arc;
use storage::{Excerpt, Value};

/// Minimum number of values that decide the length of the starts.
const SAMPLE_MIN: usize = 16;

/// Bytes of a start beyond the longest start that the sample needed.
const RESERVE: usize = 16;

/// A scan pays for excerpts while at most one value of this many does not fit into its start.
const MISSES: usize = 8;

/// The excerpts of one scan.
pub(crate) struct Excerpts {
    excerpt: Arc<dyn Excerpt>,
    /// Length of the starts; `None` before the first page.
    length: Option<usize>,
}

impl Excerpts {
    pub(crate) fn new(excerpt: Arc<dyn Excerpt>) -> Excerpts {
        Excerpts { excerpt, length: None }
    }

    /// Returns the length of the starts that the next page has; `None` for a page of whole values.
    pub(crate) fn length(&self) -> Option<usize> {
        self.length
    }

    /// Returns the excerpt of a value that is longer than its start.
    pub(crate) fn of(&self, row: &Row) -> Option<Value> {
        self.excerpt.of_start(row.bytes(column::FETCHED)?)
    }

    /// Learns from a page with this number of values beyond their excerpts. Returns false if further pages need whole
    /// values.
    pub(crate) fn learn(&mut self, rows: &[Row], misses: usize) -> bool {
        if self.length.is_some() {
            return misses * MISSES <= rows.len();
        }
        let values = rows.iter().filter_map(|row| row.bytes(column::FETCHED));
        let (mut bytes, mut longest, mut count) = (0, 0, 0);
        for value in values {
            bytes += value.len();
            longest = longest.max(self.excerpt.bytes_needed(value));
            count += 1;
        }
        let length = longest + RESERVE;
        if count < SAMPLE_MIN || 2 * length * count > bytes {
            return false;
        }
        self.length = Some(length);
        true
    }
}

//! Prefetch hints of a scan for a cursor over a remote store.

use crate::{Range, Value};

/// Returns true if a scan needs an entry, by its key and value.
pub type Chosen = Box<dyn FnMut(&[u8], &Value) -> bool + Send>;

/// The parts of a cursor's range that a scan will read, in the direction of the scan. The scan
/// skips other parts by seeks.
pub trait Ranges: Send {
    /// Moves to the first range not yet passed by a scan that continues at `key`, from any earlier
    /// position.
    fn go_to(&mut self, key: &[u8]);

    /// Returns the next range, which may begin before that key; `None` after the last range and in
    /// all later calls.
    fn next_range(&mut self) -> Option<Range>;
}

/// Prefetch hints of a scan.
#[derive(Default)]
pub struct Wanted {
    /// Ranges of the needed entries; `None` is anywhere.
    pub ranges: Option<Box<dyn Ranges>>,
    /// Filter of the entries whose records will be read; `None` is all.
    pub chosen: Option<Chosen>,
}

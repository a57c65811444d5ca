//! What a walk is going to want, told ahead to a cursor over a store that is far away.

use crate::{Range, Value};

/// Whether a walk wants an entry, by its key and value.
pub type Chosen = Box<dyn FnMut(&[u8], &Value) -> bool + Send>;

/// The parts of a cursor's range that a walk is going to look at, in the direction of the walk: what lies between them
/// it passes by a seek.
pub trait Ranges: Send {
    /// Goes to the first range that isn't passed yet by a walk which goes on at `key`, wherever it was before.
    fn go_to(&mut self, key: &[u8]);

    /// The next range, which may begin before that key; `None` where there is no other, and ever after.
    fn next_range(&mut self) -> Option<Range>;
}

/// What a walk wants of the entries that it passes.
#[derive(Default)]
pub struct Wanted {
    /// Where they lie; `None` is anywhere.
    pub ranges: Option<Box<dyn Ranges>>,
    /// The entries whose records will be asked for; `None` is all.
    pub chosen: Option<Chosen>,
}

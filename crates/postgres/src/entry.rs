//! What a commit tells the log of changes.

use crate::connection::{Param, Row, Statement};
use crate::failure::Answer;
use crate::pool::Lent;
use crate::times::{signed, time_in};
use storage::Value;

/// What a commit tells the log.
pub(crate) struct Entry<'a> {
    /// A number that no other entry has.
    pub(crate) body: i64,
    /// What was known before: its time is a later one.
    pub(crate) since: u64,
    pub(crate) parts: &'a [(u32, Value)],
    pub(crate) ticks: u32,
    pub(crate) earliest: u64,
}

impl Entry<'_> {
    /// Queues the writing of the entry by the statement for it: its answer has the time. Nothing may follow but the commit.
    pub(crate) fn call(&self, lent: &mut Lent, record: &Statement) -> Answer<()> {
        let (numbers, values) = self.parts();
        let [earliest, ticks, bytes] = self.place().map(Param::Int);
        let params =
            [earliest, ticks, Param::Ints(&numbers), Param::Many(&values), bytes, Param::Int(self.body)];
        lent.call(record, &params)
    }

    /// The numbers of its parts, and what they say.
    pub(crate) fn parts(&self) -> (Vec<i64>, Vec<Option<&[u8]>>) {
        self.parts.iter().map(|(number, value)| (i64::from(*number), Some(&**value))).unzip()
    }

    /// What its place depends on: the earliest time that it may have, how many it takes, and its bytes.
    pub(crate) fn place(&self) -> [i64; 3] {
        let bytes: usize = self.parts.iter().map(|(_, value)| 12 + value.len()).sum();
        [signed(self.earliest), i64::from(self.ticks.max(1)), bytes as i64]
    }

    /// The first of its parts.
    pub(crate) fn first_part(&self) -> i64 {
        self.parts.first().map_or(0, |(number, _)| i64::from(*number))
    }
}

/// The time that an entry was given, in the rows of its call.
pub(crate) fn time_given(rows: Option<&Vec<Row>>) -> Option<u64> {
    time_in(rows?)
}

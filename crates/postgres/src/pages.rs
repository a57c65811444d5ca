//! Statements that read a page of a scan: a range of keys, many ranges, or the first pages of many scans; and excerpts.
//!
//! A row has the key, the value, the long key, and the record that the entry names. A page without records has the
//! value in that place. A record longer than the limit is replaced by its length. All statements read kv in the order
//! of its primary key. Conditions name the tree and the ends of its keys separately: for a row range `(ident, key)`,
//! PostgreSQL would scan on to the end of the tree.
//!
//! An excerpt page has the first bytes of each value, once the values of a scan have shown how many it needs.

use crate::connection::{Row, Statement};
use std::sync::Arc;
use storage::{Direction, Excerpt, Value};

/// Approximate maximum of document bytes in a page.
pub(crate) const PAGE_BYTES: usize = 4 << 20;

/// Place of the id of the record that a page adds to each entry: no record, at the end of the key, or at the start of
/// the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdIn {
    Nothing = 0,
    Key = 1,
    Value = 2,
}

/// Column numbers of the rows.
pub(crate) mod column {
    pub(crate) const KEY: usize = 0;
    pub(crate) const VALUE: usize = 1;
    pub(crate) const LONG: usize = 2;
    pub(crate) const LENGTH: usize = 3;
    pub(crate) const FETCHED: usize = 4;
    /// Number of the scan, from one, in a page of many scans.
    pub(crate) const NUMBER: usize = 5;
}

/// Size of a page: number of entries, and the maximum bytes of each document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLimits {
    pub(crate) entries: usize,
    pub(crate) longest: usize,
}

/// The statements for both directions.
pub(crate) struct Pages {
    /// One range of tree `$1`: `$2` and `$3` are its ends, `$4` the number of entries, `$5` the maximum length, `$6`
    /// the tree of the records.
    range: [[Arc<Statement>; 3]; 2],
    /// One range, as in `range`, with the first `$5` bytes of each value. A value that is longer has its length too.
    starts: [Arc<Statement>; 2],
    /// One range, as in `range`: one row about the entries whose values contain `$6`, see [`containing`].
    containing: [Arc<Statement>; 2],
    /// Many ranges of a tree: `$2` and `$3` are arrays of their ends.
    ranges: [[Arc<Statement>; 3]; 2],
    /// Many scans of trees `$1`: `$2` and `$3` are their ends, `$4` the naming of their records. `$5` is the number of
    /// entries of each, `$6` the maximum record length, `$7` the tree of the records.
    scan_group: [Arc<Statement>; 2],
}

/// Record id at the end of a key, and at the start of a value: eight bytes in both.
const IN_KEY: &str = "substr(e.key, octet_length(e.key) - 7)";
const IN_VALUE: &str = "substr(e.value, 1, 8)";

impl Pages {
    /// Makes the statements. `of` inserts the schema into a statement.
    pub(crate) fn new(of: &dyn Fn(&str, &str) -> Arc<Statement>) -> Pages {
        let both = |make: &dyn Fn(&str) -> Arc<Statement>| ["asc", "desc"].map(make);
        let kinds = |make: &dyn Fn(&str, IdIn) -> Arc<Statement>| {
            let kinds = [IdIn::Nothing, IdIn::Key, IdIn::Value];
            ["asc", "desc"].map(|direction| kinds.map(|named| make(direction, named)))
        };
        Pages {
            range: kinds(&|direction, named| {
                of(&format!("range_{direction}_{}", named as u8), &range(direction, named))
            }),
            ranges: kinds(&|direction, named| {
                of(&format!("ranges_{direction}_{}", named as u8), &ranges(direction, named))
            }),
            starts: both(&|direction| of(&format!("starts_{direction}"), &starts(direction))),
            containing: both(&|direction| of(&format!("containing_{direction}"), &containing(direction))),
            scan_group: both(&|direction| of(&format!("beginnings_{direction}"), &scan_group(direction))),
        }
    }

    pub(crate) fn range(&self, direction: Direction, named: IdIn) -> &Statement {
        let [forward, backward] = &self.range;
        of_kind(if direction == Direction::Forward { forward } else { backward }, named)
    }

    pub(crate) fn starts(&self, direction: Direction) -> &Statement {
        let [forward, backward] = &self.starts;
        if direction == Direction::Forward { forward } else { backward }
    }

    pub(crate) fn containing(&self, direction: Direction) -> &Statement {
        let [forward, backward] = &self.containing;
        if direction == Direction::Forward { forward } else { backward }
    }

    pub(crate) fn ranges(&self, direction: Direction, named: IdIn) -> &Statement {
        let [forward, backward] = &self.ranges;
        of_kind(if direction == Direction::Forward { forward } else { backward }, named)
    }

    pub(crate) fn scan_group(&self, direction: Direction) -> &Statement {
        let [forward, backward] = &self.scan_group;
        if direction == Direction::Forward { forward } else { backward }
    }
}

/// Returns the statement for a way of naming records.
fn of_kind([nothing, by_key, by_value]: &[Arc<Statement>; 3], named: IdIn) -> &Statement {
    match named {
        IdIn::Nothing => nothing,
        IdIn::Key => by_key,
        IdIn::Value => by_value,
    }
}

/// Returns SQL for a document, or for its length above the limit.
fn fetched(document: &str, most: &str) -> String {
    format!(
        "case when octet_length({document}) > {most} then octet_length({document}) end, \
         case when octet_length({document}) <= {most} then {document} end"
    )
}

/// Returns the columns of an entry `e` with its record `r`, and the join that finds the record.
fn with_record(named: IdIn, most: &str, records: &str) -> (String, String) {
    let id = match named {
        IdIn::Nothing => {
            let fetched = fetched("e.value", most);
            return (format!("e.key, null::bytea, e.long, {fetched}"), String::new());
        }
        IdIn::Key => IN_KEY,
        IdIn::Value => IN_VALUE,
    };
    let fetched = fetched("r.value", most);
    (
        format!("e.key, e.value, e.long, {fetched}"),
        format!(" left join SCHEMA.kv r on r.ident = {records} and r.key = {id}"),
    )
}

/// Returns the SQL for the entries of one range in a direction.
fn entries(columns: &str, direction: &str) -> String {
    format!(
        "select {columns} from SCHEMA.kv e where ident = $1::int8 and key >= $2::bytea and key < $3::bytea \
         and value is not null order by ident {direction}, key {direction} limit $4::int8"
    )
}

/// Returns the SQL for the starts of the values of one range.
fn starts(direction: &str) -> String {
    let columns = "e.key, null::bytea, e.long, \
                   case when octet_length(e.value) > $5::int8 then octet_length(e.value) end, \
                   substr(e.value, 1, ($5::int8)::int4)";
    entries(columns, direction)
}

/// Column numbers of the row of [`containing`].
pub(crate) mod search_column {
    /// Number of entries in the page.
    pub(crate) const ENTRIES: usize = 0;
    /// All keys of the page, one behind the other.
    pub(crate) const ALL_KEYS: usize = 1;
    /// Keys of the entries with the bytes, the lengths of their values, and values up to the limit.
    pub(crate) const KEYS: usize = 2;
    pub(crate) const LENGTHS: usize = 3;
    pub(crate) const VALUES: usize = 4;
}

/// Returns the SQL that searches the values of one range. The search is below the limit, so that it runs once for each
/// value.
fn containing(direction: &str) -> String {
    let searched = entries("key, case when position($6::bytea in value) > 0 then value end found", direction);
    let aggregate = |value: &str| format!("array_agg({value}) filter (where found is not null)");
    format!(
        "select count(*), string_agg(key, ''), {}, {}, {} from ({searched}) e",
        aggregate("key"),
        aggregate("octet_length(found)::int8"),
        aggregate("case when octet_length(found) <= $5::int8 then found end")
    )
}

/// Returns the SQL for one range in a direction. The outer order names the key alone: with the tree's number, which is
/// a constant in the subquery only, PostgreSQL would sort the page.
fn range(direction: &str, named: IdIn) -> String {
    let (columns, record) = with_record(named, "$5::int8", "$6::int8");
    match named {
        IdIn::Nothing => entries(&columns, direction),
        _ => format!(
            "select {columns} from ({}) e{record} order by e.key {direction}",
            entries("ident, key, value, long", direction)
        ),
    }
}

/// Ranges come in the order of the walk, and the entries of each in the order of their keys. Nested loops keep the
/// order, and the reader verifies it.
fn ranges(direction: &str, named: IdIn) -> String {
    let (columns, record) = with_record(named, "$5::int8", "$6::int8");
    format!(
        "select {columns} from (select x.key, x.value, x.long \
         from unnest($2::bytea[], $3::bytea[]) w(low, high) cross join lateral (\
         select key, value, long from SCHEMA.kv where ident = $1::int8 and key >= w.low and key < w.high \
         and value is not null order by ident {direction}, key {direction} limit $4::int8) x limit $4::int8) e{record}"
    )
}

/// Returns the SQL for the first pages of many scans in a direction.
fn scan_group(direction: &str) -> String {
    let (by_key, by_value) = (IdIn::Key as u8, IdIn::Value as u8);
    let fetched = fetched("r.value", "$6::int8");
    format!(
        "select e.key, e.value, e.long, {fetched}, w.number::int8 \
         from unnest($1::int8[], $2::bytea[], $3::bytea[], $4::int8[]) \
         with ordinality w(ident, low, high, named, number) cross join lateral (\
         select key, value, long from SCHEMA.kv where ident = w.ident and key >= w.low and key < w.high \
         and value is not null order by ident {direction}, key {direction} limit $5::int8) e \
         left join SCHEMA.kv r on w.named > 0 and r.ident = $7::int8 \
         and r.key = case w.named when {by_key} then {IN_KEY} when {by_value} then {IN_VALUE} end"
    )
}

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

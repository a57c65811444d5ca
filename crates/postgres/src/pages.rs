//! Statements that read a page of a scan: a range of keys, many ranges, or the first pages of many scans.
//!
//! A row has the key, the value, the long key, and the record that the entry names. A page without records has the
//! value in that place. A record longer than the limit is replaced by its length. All statements read kv in the order
//! of its primary key. Conditions name the tree and the ends of its keys separately: for a row range `(ident, key)`,
//! PostgreSQL would scan on to the end of the tree.

use crate::connection::Statement;
use std::sync::Arc;
use storage::Direction;

/// Approximate maximum of document bytes in a page.
pub(crate) const PAGE_BYTES: usize = 4 << 20;

/// The addition to an entry: nothing, the record whose id ends the key, or the record whose id begins the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Nothing = 0,
    ByKey = 1,
    ByValue = 2,
}

/// Column numbers of the rows.
pub(crate) mod column {
    pub(crate) const KEY: usize = 0;
    pub(crate) const VALUE: usize = 1;
    pub(crate) const LONG: usize = 2;
    pub(crate) const LENGTH: usize = 3;
    pub(crate) const BROUGHT: usize = 4;
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
        let kinds = |make: &dyn Fn(&str, Named) -> Arc<Statement>| {
            let kinds = [Named::Nothing, Named::ByKey, Named::ByValue];
            ["asc", "desc"].map(|way| kinds.map(|named| make(way, named)))
        };
        Pages {
            range: kinds(&|way, named| of(&format!("range_{way}_{}", named as u8), &range(way, named))),
            ranges: kinds(&|way, named| of(&format!("ranges_{way}_{}", named as u8), &ranges(way, named))),
            scan_group: both(&|way| of(&format!("beginnings_{way}"), &scan_group(way))),
        }
    }

    pub(crate) fn range(&self, direction: Direction, named: Named) -> &Statement {
        let [forward, backward] = &self.range;
        of_kind(if direction == Direction::Forward { forward } else { backward }, named)
    }

    pub(crate) fn ranges(&self, direction: Direction, named: Named) -> &Statement {
        let [forward, backward] = &self.ranges;
        of_kind(if direction == Direction::Forward { forward } else { backward }, named)
    }

    pub(crate) fn scan_group(&self, direction: Direction) -> &Statement {
        let [forward, backward] = &self.scan_group;
        if direction == Direction::Forward { forward } else { backward }
    }
}

/// Returns the statement for a way of naming records.
fn of_kind([nothing, by_key, by_value]: &[Arc<Statement>; 3], named: Named) -> &Statement {
    match named {
        Named::Nothing => nothing,
        Named::ByKey => by_key,
        Named::ByValue => by_value,
    }
}

/// Returns SQL for a document, or for its length above the limit.
fn brought(document: &str, most: &str) -> String {
    format!(
        "case when octet_length({document}) > {most} then octet_length({document}) end, \
         case when octet_length({document}) <= {most} then {document} end"
    )
}

/// Returns the columns of an entry `e` with its record `r`, and the join that finds the record.
fn with_record(named: Named, most: &str, records: &str) -> (String, String) {
    let id = match named {
        Named::Nothing => {
            let brought = brought("e.value", most);
            return (format!("e.key, null::bytea, e.long, {brought}"), String::new());
        }
        Named::ByKey => IN_KEY,
        Named::ByValue => IN_VALUE,
    };
    let brought = brought("r.value", most);
    (
        format!("e.key, e.value, e.long, {brought}"),
        format!(" left join SCHEMA.kv r on r.ident = {records} and r.key = {id}"),
    )
}

/// Returns the SQL for one range in a direction. The outer order names the key alone: with the tree's number, which is a
/// constant in the subquery only, PostgreSQL would sort the page.
fn range(way: &str, named: Named) -> String {
    let (columns, record) = with_record(named, "$5::int8", "$6::int8");
    format!(
        "select {columns} from (select ident, key, value, long from SCHEMA.kv \
         where ident = $1::int8 and key >= $2::bytea and key < $3::bytea \
         and value is not null order by ident {way}, key {way} limit $4::int8) e{record} \
         order by e.key {way}"
    )
}

/// Ranges come in the order of the walk, and the entries of each in the order of their keys. Nested loops keep the
/// order, and the reader verifies it.
fn ranges(way: &str, named: Named) -> String {
    let (columns, record) = with_record(named, "$5::int8", "$6::int8");
    format!(
        "select {columns} from (select x.key, x.value, x.long \
         from unnest($2::bytea[], $3::bytea[]) w(low, high) cross join lateral (\
         select key, value, long from SCHEMA.kv where ident = $1::int8 and key >= w.low and key < w.high \
         and value is not null order by ident {way}, key {way} limit $4::int8) x limit $4::int8) e{record}"
    )
}

/// Returns the SQL for the first pages of many scans in a direction.
fn scan_group(way: &str) -> String {
    let (by_key, by_value) = (Named::ByKey as u8, Named::ByValue as u8);
    let brought = brought("r.value", "$6::int8");
    format!(
        "select e.key, e.value, e.long, {brought}, w.number::int8 \
         from unnest($1::int8[], $2::bytea[], $3::bytea[], $4::int8[]) \
         with ordinality w(ident, low, high, named, number) cross join lateral (\
         select key, value, long from SCHEMA.kv where ident = w.ident and key >= w.low and key < w.high \
         and value is not null order by ident {way}, key {way} limit $5::int8) e \
         left join SCHEMA.kv r on w.named > 0 and r.ident = $7::int8 \
         and r.key = case w.named when {by_key} then {IN_KEY} when {by_value} then {IN_VALUE} end"
    )
}

//! The statements that read a page of a scan: a range of keys, many ranges, or the beginnings of many scans.
//!
//! Rows have the key, the value, the key that is kept whole beside the index, and then what the page is for: the record that an
//! entry names or, where none is asked for, the value. If that is longer than the page has room for, they have its
//! length. All ask for kv by its primary key, in its order; a tree and the ends of its keys are
//! conditions of their own, since PostgreSQL goes on behind the end of a range of rows `(ident, key)` up to the end of the tree.

use crate::connection::Statement;
use std::sync::Arc;
use storage::Direction;

/// The most bytes of documents that a page of a scan brings, about.
pub(crate) const PAGE_BYTES: usize = 4 << 20;

/// What comes with an entry: nothing, or the record whose id is the end of its key, or the beginning of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Nothing = 0,
    ByKey = 1,
    ByValue = 2,
}

/// The columns of their rows.
pub(crate) mod column {
    pub(crate) const KEY: usize = 0;
    pub(crate) const VALUE: usize = 1;
    pub(crate) const LONG: usize = 2;
    pub(crate) const LENGTH: usize = 3;
    pub(crate) const BROUGHT: usize = 4;
    /// Of many scans: the scan's number, from one on.
    pub(crate) const NUMBER: usize = 5;
}

/// How much a page is to have: so many entries, each with a document of so many bytes at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) entries: usize,
    pub(crate) longest: usize,
}

/// The statements, for both directions.
pub(crate) struct Pages {
    /// A range of tree `$1`: `$2` and `$3` are its ends, `$4` how many entries, `$5` the longest that is brought, `$6` the tree of
    /// the records.
    range: [[Arc<Statement>; 3]; 2],
    /// Many ranges of a tree: `$2` and `$3` are their ends.
    ranges: [[Arc<Statement>; 3]; 2],
    /// Many scans of trees `$1`: `$2` and `$3` are their ends, `$4` what comes with their entries, `$5` how many entries each,
    /// `$6` the longest record, `$7` the tree of the records.
    beginnings: [Arc<Statement>; 2],
}

const IN_KEY: &str = "substr(e.key, octet_length(e.key) - 7)";
const IN_VALUE: &str = "substr(e.value, 1, 8)";

impl Pages {
    /// Makes them by a function that places a statement in the schema.
    pub(crate) fn new(of: &dyn Fn(&str, &str) -> Arc<Statement>) -> Pages {
        let both = |make: &dyn Fn(&str) -> Arc<Statement>| ["asc", "desc"].map(make);
        let kinds = |make: &dyn Fn(&str, Named) -> Arc<Statement>| {
            let kinds = [Named::Nothing, Named::ByKey, Named::ByValue];
            ["asc", "desc"].map(|way| kinds.map(|named| make(way, named)))
        };
        Pages {
            range: kinds(&|way, named| of(&format!("range_{way}_{}", named as u8), &range(way, named))),
            ranges: kinds(&|way, named| of(&format!("ranges_{way}_{}", named as u8), &ranges(way, named))),
            beginnings: both(&|way| of(&format!("beginnings_{way}"), &beginnings(way))),
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

    pub(crate) fn beginnings(&self, direction: Direction) -> &Statement {
        let [forward, backward] = &self.beginnings;
        if direction == Direction::Forward { forward } else { backward }
    }
}

fn of_kind([nothing, by_key, by_value]: &[Arc<Statement>; 3], named: Named) -> &Statement {
    match named {
        Named::Nothing => nothing,
        Named::ByKey => by_key,
        Named::ByValue => by_value,
    }
}

/// A document, or its length where it is longer than so much.
fn brought(document: &str, most: &str) -> String {
    format!(
        "case when octet_length({document}) > {most} then octet_length({document}) end, \
         case when octet_length({document}) <= {most} then {document} end"
    )
}

/// The columns of an entry `e` with its record `r`, and how the record is found.
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

fn range(way: &str, named: Named) -> String {
    let (columns, record) = with_record(named, "$5::int8", "$6::int8");
    format!(
        "select {columns} from (select ident, key, value, long from SCHEMA.kv \
         where ident = $1::int8 and key >= $2::bytea and key < $3::bytea \
         and value is not null order by ident {way}, key {way} limit $4::int8) e{record} \
         order by e.ident {way}, e.key {way}"
    )
}

/// The ranges come in the order of the walk, and the entries of each in the order of their keys: nested loops keep it,
/// and whoever reads the rows checks that.
fn ranges(way: &str, named: Named) -> String {
    let (columns, record) = with_record(named, "$5::int8", "$6::int8");
    format!(
        "select {columns} from (select x.key, x.value, x.long \
         from unnest($2::bytea[], $3::bytea[]) w(low, high) cross join lateral (\
         select key, value, long from SCHEMA.kv where ident = $1::int8 and key >= w.low and key < w.high \
         and value is not null order by ident {way}, key {way} limit $4::int8) x limit $4::int8) e{record}"
    )
}

fn beginnings(way: &str) -> String {
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

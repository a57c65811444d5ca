//! Most commits as one statement. The function `apply` has many parameters and statements of its own, which cost more
//! than a small change.
//!
//! The statement is assembled from the parts of a change and prepared like others, since few combinations exist. An
//! earlier statement in the same transaction takes the fence, so this statement sees a later state. A failed
//! expectation fails the whole statement, and other code finds the reason. If nothing is in the way any more, the
//! change goes through `apply`.
//!
//! The module also inserts the name of the schema, and the keys of its advisory locks, into SQL.

use crate::change::{Extras, Sorted, View};
use crate::connection::{Param, Statement};
use crate::failure::{Failure, PgResult};
use crate::times::{Entry, ShortEntry};
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};

/// Possible parts of a change. Each is a bit of the statement number.
const UPDATE: usize = 1;
const DELETE: usize = 2;
const REMOVE: usize = 4;
const INSERT: usize = 8;
const COUNT: usize = 16;
/// A log entry, in the row of its time or in pages.
const LOG: usize = 32;
const PAGED: usize = 64;
/// Several commits: collections, counts and log entries are arrays.
const GROUP: usize = 128;

/// Number of inserted rows from which the rows have a statement of their own. The server then stores no row for
/// `returning`.
const BULK_ROWS: usize = 64;

/// The statements, each made at its first use.
pub(crate) struct Direct {
    /// Name of the schema, quoted.
    schema: String,
    made: [OnceLock<Arc<Statement>>; 256],
    /// Inserts many rows.
    insert: Arc<Statement>,
}

impl Direct {
    /// Creates the table of statements for a quoted schema name.
    pub(crate) fn new(schema: &str) -> Direct {
        let rows = unnested(&["$1::int8[]", "$2::bytea[]", "$3::bytea[]", "$4::bytea[]"].map(str::to_string));
        let sql = format!("insert into SCHEMA.kv (ident, key, long, value) select {rows}");
        Direct {
            schema: schema.to_string(),
            made: [const { OnceLock::new() }; 256],
            insert: Statement::new("insert", in_schema(&sql, schema)),
        }
    }

    /// Calls `work` with the statement for a change and its parameters. Many inserts have a statement of their own,
    /// which is first. Returns the change if no statement fits.
    pub(crate) fn with<'a>(
        &self,
        sorted: Box<Sorted<'a>>,
        extras: &Extras,
        entry: Option<&Entry<'_>>,
        mut work: impl FnMut(&Statement, &[Param<'_>]) -> PgResult<()>,
    ) -> Result<PgResult<()>, Box<Sorted<'a>>> {
        let mut sorted = sorted;
        let [generation_of] = sorted.generations.0[..] else { return Err(sorted) };
        let is_more = [&sorted.same, &sorted.value, &sorted.none_or, &sorted.prefix]
            .iter()
            .any(|group| !group.is_empty());
        if is_more || sorted.remove.compares() || !extras.marks.is_empty() || extras.counts.len() > 1 {
            return Err(sorted);
        }
        let pages = entry.map(|entry| (entry, entry.pages()));
        let inline = pages.as_ref().and_then(|(_, pages)| pages.inline());
        let count = extras.counts.first_key_value();
        sorted.treat_puts_as_inserts();
        if sorted.insert.len() >= BULK_ROWS {
            let bulk = std::mem::take(&mut sorted.insert);
            let rows = View::new(&bulk);
            if let Err(failure) =
                work(&self.insert, &[rows.idents(), rows.keys(), rows.long(), rows.values()])
            {
                return Ok(Err(failure));
            }
        }
        let shape = changes_of(&sorted)
            | if count.is_some() { COUNT } else { 0 }
            | match (entry, inline) {
                (None, _) => 0,
                (Some(_), Some(_)) => LOG,
                (Some(_), None) => PAGED,
            };
        let statement = match self.statement(shape) {
            Ok(statement) => statement,
            Err(failure) => return Ok(Err(failure)),
        };
        let rows = Rows::new(&sorted);
        let mut params =
            vec![Param::Int(generation_of), Param::Int(sorted.generations.1.first().copied().unwrap_or(0))];
        rows.push_to(&mut params);
        if let Some((of, (records, bytes))) = count {
            params.extend([*of, extras.slot, *records, *bytes].map(Param::Int));
        }
        let values = pages.as_ref().map(|(_, pages)| pages.values()).unwrap_or_default();
        if let Some((entry, pages)) = &pages {
            params.push(Param::Int(entry.body));
            match inline {
                Some(page) => params.push(Param::Bytes(page)),
                None => {
                    params.extend([Param::Ints(&pages.first), Param::Ints(&pages.last), Param::Many(&values)])
                }
            }
            params.extend(entry.order_params().map(Param::Int));
        }
        Ok(work(statement, &params))
    }

    /// Calls `work` with the statement for the commits of a group and its parameters. Each row of the result is the
    /// time of an entry.
    pub(crate) fn with_group(
        &self,
        sorted: Sorted<'_>,
        extras: &Extras,
        entries: &[&ShortEntry],
        work: impl FnOnce(&Statement, &[Param<'_>]) -> PgResult<()>,
    ) -> PgResult<()> {
        let mut sorted = sorted;
        sorted.merge_generations();
        let shape = GROUP
            | changes_of(&sorted)
            | if extras.counts.is_empty() { 0 } else { COUNT }
            | if entries.is_empty() { 0 } else { LOG };
        let statement = self.statement(shape)?;
        sorted.treat_puts_as_inserts();
        let rows = Rows::new(&sorted);
        let mut params = vec![Param::Ints(&sorted.generations.0), Param::Ints(&sorted.generations.1)];
        rows.push_to(&mut params);
        let counted: Vec<i64> = extras.counts.keys().copied().collect();
        let (records, bytes): (Vec<i64>, Vec<i64>) = extras.counts.values().copied().unzip();
        if shape & COUNT != 0 {
            params.extend([Param::Ints(&counted), Param::Int(extras.slot)]);
            params.extend([Param::Ints(&records), Param::Ints(&bytes)]);
        }
        let bodies: Vec<i64> = entries.iter().map(|entry| entry.body).collect();
        let pages: Vec<Option<&[u8]>> = entries.iter().map(|entry| Some(&*entry.page)).collect();
        let orders = entries.iter().map(|entry| entry.order);
        let (earliest, (ticks, sizes)): (Vec<i64>, (Vec<i64>, Vec<i64>)) =
            orders.map(|[earliest, ticks, bytes]| (earliest, (ticks, bytes))).unzip();
        if shape & LOG != 0 {
            params.extend([Param::Ints(&bodies), Param::Many(&pages)]);
            params.extend([&earliest, &ticks, &sizes].map(|order| Param::Ints(order)));
        }
        work(statement, &params)
    }

    /// Returns the statement of a shape.
    fn statement(&self, shape: usize) -> PgResult<&Arc<Statement>> {
        let no_statement = || Failure::Unavailable(format!("no statement has the number {shape}"));
        let made = self.made.get(shape).ok_or_else(no_statement)?;
        Ok(made.get_or_init(|| self.assemble(shape)))
    }

    /// Makes the statement of a shape. The conditions count the results of all steps, so every row lock is taken before
    /// the queue lock (`next_time`).
    fn assemble(&self, shape: usize) -> Arc<Statement> {
        let mut parts = Parts { shape, number: 0, steps: Vec::new(), conditions: Vec::new() };
        parts.check_generations();
        parts.change_keys();
        if parts.has(COUNT) {
            parts.add_counts();
        }
        let (end, returned) = match parts.has(LOG | PAGED) {
            true => (parts.insert_entries(), " returning time"),
            false => ("select 1".to_string(), ""),
        };
        let Parts { steps, conditions, .. } = parts;
        let steps = if steps.is_empty() { String::new() } else { format!("with {} ", steps.join(", ")) };
        let sql = format!(
            "{steps}{end} where case when {} then true else SCHEMA.changed() end{returned}",
            conditions.join(" and ")
        );
        Statement::new(format!("direct_{shape}"), in_schema(&sql, &self.schema))
    }
}

/// The parts of a statement that is being made.
struct Parts {
    shape: usize,
    /// Number of parameters.
    number: usize,
    steps: Vec<String>,
    conditions: Vec<String>,
}

impl Parts {
    fn has(&self, bits: usize) -> bool {
        self.shape & bits != 0
    }

    /// Returns the next parameter.
    fn next(&mut self, kind: &str) -> String {
        self.number += 1;
        format!("${}::{kind}", self.number)
    }

    /// Returns the next parameters. Each has a value for each commit of a group.
    fn next_of_commit<const N: usize>(&mut self, kinds: [&str; N]) -> [String; N] {
        let array = if self.has(GROUP) { "[]" } else { "" };
        kinds.map(|kind| self.next(&format!("{kind}{array}")))
    }

    /// Adds a step and a condition for the number of its rows.
    fn add(&mut self, name: &str, sql: String, condition: &str) {
        let returned = if name == "counted" { "ident" } else { "1" };
        self.steps.push(format!("{name} as ({sql} returning {returned})"));
        self.conditions.push(format!("(select count(*) from {name}) {condition}"));
    }

    /// Adds the condition that the generations of the collections are unchanged.
    fn check_generations(&mut self) {
        let [of, generation] = self.next_of_commit(["int8"; 2]);
        self.conditions.push(match self.has(GROUP) {
            true => format!(
                "(select count(*) from unnest({of}, {generation}) x(i, g) \
                 join SCHEMA.generations t on t.ident = x.i and t.generation = x.g) = cardinality({of})"
            ),
            false => format!(
                "exists (select from SCHEMA.generations where ident = {of} and generation = {generation})"
            ),
        });
    }

    /// Adds the steps that change keys.
    fn change_keys(&mut self) {
        if self.has(UPDATE) {
            let rows = ["int8[]", "bytea[]", "bytea[]", "bytea[]"].map(|kind| self.next(kind));
            let sql = format!(
                "update SCHEMA.kv t set value = x.v from unnest({}) x(i, k, v, h) \
                 where t.ident = x.i and t.key = x.k and sha256(t.value) = x.h",
                rows.join(", ")
            );
            self.add("updated", sql, &format!("= cardinality({})", rows[0]));
        }
        if self.has(DELETE) {
            let rows = ["int8[]", "bytea[]", "bytea[]"].map(|kind| self.next(kind));
            let sql = format!(
                "delete from SCHEMA.kv t using unnest({}) x(i, k, h) \
                 where t.ident = x.i and t.key = x.k and sha256(t.value) = x.h",
                rows.join(", ")
            );
            self.add("deleted", sql, &format!("= cardinality({})", rows[0]));
        }
        if self.has(REMOVE) {
            let rows = ["int8[]", "bytea[]"].map(|kind| self.next(kind)).join(", ");
            let sql = format!(
                "delete from SCHEMA.kv t using unnest({rows}) x(i, k) where t.ident = x.i and t.key = x.k"
            );
            self.add("removed", sql, ">= 0");
        }
        if self.has(INSERT) {
            let rows = unnested(&["int8[]", "bytea[]", "bytea[]", "bytea[]"].map(|kind| self.next(kind)));
            let sql = format!("insert into SCHEMA.kv (ident, key, long, value) select {rows}");
            self.add("inserted", sql, "> 0");
        }
    }

    /// Adds the steps that add to the counts.
    fn add_counts(&mut self) {
        let [of] = self.next_of_commit(["int8"]);
        let slot = self.next("int8");
        let [records, bytes] = self.next_of_commit(["int8"; 2]);
        let [update, insert] = counts([of, slot, records, bytes], self.has(GROUP));
        self.add("counted", update, ">= 0");
        self.add("first", insert, ">= 0");
    }

    /// Adds the pages of a log entry and returns the start of the statement that inserts the entries.
    fn insert_entries(&mut self) -> String {
        let [body] = self.next_of_commit(["int8"]);
        let mut value = "null::bytea".to_string();
        if self.has(LOG) {
            [value] = self.next_of_commit(["bytea"]);
            // `find_out` may have decided that this commit does not exist.
            let matches = if self.has(GROUP) { format!("any({body})") } else { body.clone() };
            self.conditions.push(format!("not exists (select from SCHEMA.log where body = {matches})"));
        } else {
            let pages = unnested(&["int8[]", "int8[]", "bytea[]"].map(|kind| self.next(kind)));
            let sql = format!("insert into SCHEMA.log select {body}, {pages}");
            self.add("paged", sql, "> 0");
        }
        let [earliest, ticks, bytes] = self.next_of_commit(["int8"; 3]);
        match self.has(GROUP) {
            true => format!(
                "insert into SCHEMA.log_order select SCHEMA.next_time(x.e, x.t), x.o, x.b, x.v \
                 from unnest({body}, {value}, {earliest}, {ticks}, {bytes}) x(o, v, e, t, b)"
            ),
            false => format!(
                "insert into SCHEMA.log_order select SCHEMA.next_time({earliest}, {ticks}), {body}, {bytes}, {value}"
            ),
        }
    }
}

/// Returns the statements that add to the counts of a tree, or of each tree of a group: an update of its row, named
/// `counted`, and the insert of a missing row. An insert that finds the row would lock it first, with a record of the
/// write-ahead log.
fn counts([ident, slot, records, bytes]: [String; 4], is_group: bool) -> [String; 2] {
    let rows = format!("from unnest({ident}, {records}, {bytes}) x(i, r, b)");
    let [of, more, more_bytes, from] = match is_group {
        true => ["x.i", "x.r", "x.b", &rows],
        false => [&*ident, &records, &bytes, ""],
    };
    let update = format!(
        "update SCHEMA.counts t set records = t.records + {more}, bytes = t.bytes + {more_bytes} {from} \
         where t.ident = {of} and t.slot = {slot}"
    );
    let insert = format!(
        "insert into SCHEMA.counts as t select {of}, {slot}, {more}, {more_bytes} {from} \
         where not exists (select from counted where ident = {of}) on conflict (ident, slot) do update \
         set records = t.records + excluded.records, bytes = t.bytes + excluded.bytes"
    );
    [update, insert]
}

/// Bits of the steps that change keys, for a statement number.
fn changes_of(sorted: &Sorted<'_>) -> usize {
    let Sorted { insert, put, update, delete, remove, .. } = sorted;
    let parts = [
        (UPDATE, !update.is_empty()),
        (DELETE, !delete.is_empty()),
        (REMOVE, !remove.is_empty()),
        (INSERT, !insert.is_empty() || !put.is_empty()),
    ];
    parts.iter().filter(|(_, is_there)| *is_there).map(|(bit, _)| bit).sum()
}

/// The groups of rows of a statement.
struct Rows<'a> {
    update: View<'a>,
    delete: View<'a>,
    remove: View<'a>,
    insert: View<'a>,
}

impl<'a> Rows<'a> {
    fn new(sorted: &'a Sorted<'a>) -> Rows<'a> {
        let Sorted { insert, update, delete, remove, .. } = sorted;
        let [update, delete, remove, insert] = [update, delete, remove, insert].map(View::new);
        Rows { update, delete, remove, insert }
    }

    /// Adds the parameters of the groups that are not empty.
    fn push_to<'p>(&'p self, params: &mut Vec<Param<'p>>) {
        let Rows { update, delete, remove, insert } = self;
        if !update.is_empty() {
            params.extend([update.idents(), update.keys(), update.values(), update.digests()]);
        }
        if !delete.is_empty() {
            params.extend([delete.idents(), delete.keys(), delete.digests()]);
        }
        if !remove.is_empty() {
            params.extend([remove.idents(), remove.keys()]);
        }
        if !insert.is_empty() {
            params.extend([insert.idents(), insert.keys(), insert.long(), insert.values()]);
        }
    }
}

/// Returns a select list that makes rows of arrays. In the FROM clause, PostgreSQL would copy all rows first.
fn unnested(arrays: &[String]) -> String {
    arrays.iter().map(|array| format!("unnest({array})")).collect::<Vec<_>>().join(", ")
}

/// SQL condition that separates standbys from other readers of the log, such as subscribers.
const STANDBY: &str =
    "not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')";

/// Returns a name as a quoted SQL identifier.
pub(crate) fn quoted(schema: &str) -> String {
    format!("\"{}\"", schema.replace('"', "\"\""))
}

/// Returns SQL with the schema name and the keys of its advisory locks inserted.
pub(crate) fn in_schema(sql: &str, quoted: &str) -> String {
    let key = |name: &str| format!("({}::int8)", lock_of(name, quoted));
    sql.replace("STANDBY", STANDBY)
        .replace("SCHEMA", quoted)
        .replace("FENCE", &key("fence"))
        .replace("QUEUE", &key("queue"))
}

/// Returns the key of the fence of a schema.
pub(crate) fn fence(schema: &str) -> i64 {
    lock_of("fence", &quoted(schema))
}

/// Returns the key of an advisory lock. These keys are shared by the whole database.
fn lock_of(name: &str, quoted: &str) -> i64 {
    let digest = Sha256::digest(format!("vellum {name} {quoted}").as_bytes());
    digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte)) as i64
}

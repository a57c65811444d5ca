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
use crate::times::Entry;
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

/// The statements, each made at its first use.
pub(crate) struct Direct {
    /// Name of the schema, quoted.
    schema: String,
    made: [OnceLock<Arc<Statement>>; 128],
}

impl Direct {
    /// Creates the table of statements for a quoted schema name.
    pub(crate) fn new(schema: &str) -> Direct {
        Direct { schema: schema.to_string(), made: [const { OnceLock::new() }; 128] }
    }

    /// Calls `work` with the statement for a change and its parameters. Returns the change if no statement fits.
    pub(crate) fn with<'a, T>(
        &self,
        sorted: Box<Sorted<'a>>,
        extras: &Extras,
        entry: Option<&Entry<'_>>,
        work: impl FnOnce(&Statement, &[Param<'_>]) -> T,
    ) -> Result<T, Box<Sorted<'a>>> {
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
        let Sorted { insert, put, update, delete, remove, .. } = &*sorted;
        let count = extras.counts.first_key_value();
        let parts = [
            (UPDATE, !update.is_empty()),
            (DELETE, !delete.is_empty()),
            (REMOVE, !remove.is_empty()),
            (INSERT, !insert.is_empty() || !put.is_empty()),
            (COUNT, count.is_some()),
            (LOG, inline.is_some()),
            (PAGED, entry.is_some() && inline.is_none()),
        ];
        let shape = parts.iter().filter(|(_, is_there)| *is_there).map(|(bit, _)| bit).sum::<usize>();
        let Some(made) = self.made.get(shape) else { return Err(sorted) };
        let statement = made.get_or_init(|| self.assemble(shape));
        sorted.treat_puts_as_inserts();
        let Sorted { generations, insert, update, delete, remove, .. } = &*sorted;
        let [insert, update, delete, remove] = [insert, update, delete, remove].map(View::new);
        let mut params =
            vec![Param::Int(generation_of), Param::Int(generations.1.first().copied().unwrap_or(0))];
        if shape & UPDATE != 0 {
            params.extend([update.idents(), update.keys(), update.values(), update.digests()]);
        }
        if shape & DELETE != 0 {
            params.extend([delete.idents(), delete.keys(), delete.digests()]);
        }
        if shape & REMOVE != 0 {
            params.extend([remove.idents(), remove.keys()]);
        }
        if shape & INSERT != 0 {
            params.extend([insert.idents(), insert.keys(), insert.long(), insert.values()]);
        }
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

    /// Makes the statement of a shape. The conditions count the results of all steps, so every row lock is taken before
    /// the queue lock (`next_time`).
    fn assemble(&self, shape: usize) -> Arc<Statement> {
        let mut number = 0;
        let mut next = |kind: &str| {
            number += 1;
            format!("${number}::{kind}")
        };
        let mut conditions = vec![format!(
            "exists (select from SCHEMA.generations where ident = {} and generation = {})",
            next("int8"),
            next("int8")
        )];
        let mut steps = Vec::new();
        let mut add = |name: &str, sql: String, condition: String| {
            steps.push(format!("{name} as ({sql} returning 1)"));
            conditions.push(format!("(select count(*) from {name}) {condition}"));
        };
        if shape & UPDATE != 0 {
            let rows = [next("int8[]"), next("bytea[]"), next("bytea[]"), next("bytea[]")];
            let sql = format!(
                "update SCHEMA.kv t set value = x.v from unnest({}) x(i, k, v, h) \
                 where t.ident = x.i and t.key = x.k and sha256(t.value) = x.h",
                rows.join(", ")
            );
            add("updated", sql, format!("= cardinality({})", rows[0]));
        }
        if shape & DELETE != 0 {
            let rows = [next("int8[]"), next("bytea[]"), next("bytea[]")];
            let sql = format!(
                "delete from SCHEMA.kv t using unnest({}) x(i, k, h) \
                 where t.ident = x.i and t.key = x.k and sha256(t.value) = x.h",
                rows.join(", ")
            );
            add("deleted", sql, format!("= cardinality({})", rows[0]));
        }
        if shape & REMOVE != 0 {
            let rows = [next("int8[]"), next("bytea[]")].join(", ");
            let sql = format!(
                "delete from SCHEMA.kv t using unnest({rows}) x(i, k) where t.ident = x.i and t.key = x.k"
            );
            add("removed", sql, ">= 0".to_string());
        }
        if shape & INSERT != 0 {
            let rows = unnested(&[next("int8[]"), next("bytea[]"), next("bytea[]"), next("bytea[]")]);
            let sql = format!("insert into SCHEMA.kv (ident, key, long, value) select {rows}");
            add("inserted", sql, "> 0".to_string());
        }
        if shape & COUNT != 0 {
            let [update, insert] = counts([(); 4].map(|()| next("int8")));
            add("counted", update, "<= 1".to_string());
            add("first", insert, "<= 1".to_string());
        }
        let mut end = "select 1".to_string();
        let mut given = "";
        if shape & (LOG | PAGED) != 0 {
            let body = next("int8");
            let mut value = "null::bytea".to_string();
            if shape & LOG != 0 {
                value = next("bytea");
            } else {
                let pages = unnested(&[next("int8[]"), next("int8[]"), next("bytea[]")]);
                let sql = format!("insert into SCHEMA.log select {body}, {pages}");
                add("told", sql, "> 0".to_string());
            }
            let (earliest, ticks, bytes) = (next("int8"), next("int8"), next("int8"));
            if shape & LOG != 0 {
                // `find_out` may have decided that this commit does not exist.
                conditions.push(format!("not exists (select from SCHEMA.log where body = {body})"));
            }
            end = format!(
                "insert into SCHEMA.log_order \
                 select SCHEMA.next_time({earliest}, {ticks}), {body}, {bytes}, {value}"
            );
            given = " returning time";
        }
        let steps = if steps.is_empty() { String::new() } else { format!("with {} ", steps.join(", ")) };
        let sql = format!(
            "{steps}{end} where case when {} then true else SCHEMA.changed() end{given}",
            conditions.join(" and ")
        );
        Statement::new(format!("direct_{shape}"), in_schema(&sql, &self.schema))
    }
}

/// Returns the statements that add to the counts of a tree: an update of its row, named `counted`, and the insert of a
/// missing row. An insert that finds the row would lock it first, with a record of the write-ahead log.
fn counts([ident, slot, records, bytes]: [String; 4]) -> [String; 2] {
    let update = format!(
        "update SCHEMA.counts set records = records + {records}, bytes = bytes + {bytes} \
         where ident = {ident} and slot = {slot}"
    );
    let insert = format!(
        "insert into SCHEMA.counts as t select {ident}, {slot}, {records}, {bytes} \
         where not exists (select from counted) on conflict (ident, slot) do update \
         set records = t.records + excluded.records, bytes = t.bytes + excluded.bytes"
    );
    [update, insert]
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
    let key = |what: &str| format!("({}::int8)", lock_of(what, quoted));
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
fn lock_of(what: &str, quoted: &str) -> i64 {
    let digest = Sha256::digest(format!("vellum {what} {quoted}").as_bytes());
    digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte)) as i64
}

//! Most commits by one statement, without the function `apply`, whose many parameters and statements of its own cost
//! more than the change does.
//!
//! The statement is put together from the parts that a change has, and prepared like others: so few are ever made. It
//! comes behind another, in the same transaction, that takes the fence: what it sees is later than that. What isn't as
//! expected fails the whole statement; why is found out elsewhere, and where nothing is in the way any more the change
//! goes through `apply`.
//!
//! SQL with the schema's name, and the keys of its advisory locks, put in place.

use crate::change::{Extras, Sorted, View};
use crate::connection::{Param, Statement};
use crate::times::Entry;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};

/// What a change may have, each a bit of the number of its statement.
const UPDATE: usize = 1;
const DELETE: usize = 2;
const REMOVE: usize = 4;
const FREE: usize = 8;
const COUNT: usize = 16;
const LOG: usize = 32;

/// The statements, each made when it is first needed.
pub(crate) struct Direct {
    /// The schema's name, quoted.
    schema: String,
    made: [OnceLock<Arc<Statement>>; 64],
}

impl Direct {
    /// The statements on the schema of this quoted name.
    pub(crate) fn new(schema: &str) -> Direct {
        Direct { schema: schema.to_string(), made: [const { OnceLock::new() }; 64] }
    }

    /// Runs something with the statement for a change, and its parameters; gives the change back where there is none.
    pub(crate) fn with<'a, T>(
        &self,
        sorted: Box<Sorted<'a>>,
        extras: &Extras,
        entry: Option<&Entry<'_>>,
        work: impl FnOnce(&Statement, &[Param<'_>]) -> T,
    ) -> Result<T, Box<Sorted<'a>>> {
        let mut sorted = sorted;
        let [generation_of] = sorted.generations.0[..] else { return Err(sorted) };
        let is_more = [&sorted.own, &sorted.value, &sorted.none_or, &sorted.under]
            .iter()
            .any(|group| !group.is_empty());
        if is_more || sorted.remove.compares() || !extras.marks.is_empty() || extras.counts.len() > 1 {
            return Err(sorted);
        }
        let Sorted { free, put, update, delete, remove, .. } = &*sorted;
        let count = extras.counts.first_key_value();
        let parts = [
            (UPDATE, !update.is_empty()),
            (DELETE, !delete.is_empty()),
            (REMOVE, !remove.is_empty()),
            (FREE, !free.is_empty() || !put.is_empty()),
            (COUNT, count.is_some()),
            (LOG, entry.is_some()),
        ];
        let shape = parts.iter().filter(|(_, is_there)| *is_there).map(|(bit, _)| bit).sum::<usize>();
        let Some(made) = self.made.get(shape) else { return Err(sorted) };
        let statement = made.get_or_init(|| self.make(shape));
        sorted.take_all_for_free();
        let Sorted { generations, free, update, delete, remove, .. } = &*sorted;
        let [free, update, delete, remove] = [free, update, delete, remove].map(View::new);
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
        if shape & FREE != 0 {
            params.extend([free.idents(), free.keys(), free.long(), free.values()]);
        }
        if let Some((of, (records, bytes))) = count {
            params.extend([*of, extras.slot, *records, *bytes].map(Param::Int));
        }
        let told = entry.map(|entry| (entry, entry.parts()));
        if let Some((entry, (numbers, values))) = &told {
            params.extend([Param::Int(entry.body), Param::Ints(numbers), Param::Many(values)]);
            params.extend(entry.place().map(Param::Int));
        }
        Ok(work(statement, &params))
    }

    /// The statement of a shape. Whatever locks rows is done before the place in the queue is taken, since it is
    /// counted first.
    fn make(&self, shape: usize) -> Arc<Statement> {
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
        if shape & FREE != 0 {
            let rows = [next("int8[]"), next("bytea[]"), next("bytea[]"), next("bytea[]")].join(", ");
            let sql = format!("insert into SCHEMA.kv (ident, key, long, value) select * from unnest({rows})");
            add("inserted", sql, "> 0".to_string());
        }
        if shape & COUNT != 0 {
            let row = [next("int8"), next("int8"), next("int8"), next("int8")].join(", ");
            let sql = format!(
                "insert into SCHEMA.counts as t values ({row}) on conflict (ident, slot) do update \
                 set records = t.records + excluded.records, bytes = t.bytes + excluded.bytes"
            );
            add("counted", sql, "= 1".to_string());
        }
        let mut end = "select 1".to_string();
        let mut given = "";
        if shape & LOG != 0 {
            let (body, parts) = (next("int8"), [next("int8[]"), next("bytea[]")].join(", "));
            let sql = format!("insert into SCHEMA.log select {body}, x.* from unnest({parts}) x");
            add("told", sql, "> 0".to_string());
            let (earliest, ticks, bytes) = (next("int8"), next("int8"), next("int8"));
            end = format!(
                "insert into SCHEMA.log_order select SCHEMA.next_time({earliest}, {ticks}), {body}, {bytes}"
            );
            given = " returning time";
        }
        let steps = if steps.is_empty() { String::new() } else { format!("with {} ", steps.join(", ")) };
        let sql = format!(
            "{steps}{end} where case when {} then true else SCHEMA.changed() end{given}",
            conditions.join(" and ")
        );
        Statement::new(format!("direct_{shape}"), placed(&sql, &self.schema))
    }
}

/// What tells a standby from others who read the server's log, such as subscribers.
const STANDBY: &str =
    "not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')";

/// A name as SQL takes it.
pub(crate) fn quoted(schema: &str) -> String {
    format!("\"{}\"", schema.replace('"', "\"\""))
}

/// SQL with the schema's name, and the keys of its advisory locks.
pub(crate) fn placed(sql: &str, quoted: &str) -> String {
    let key = |what: &str| format!("({}::int8)", lock_of(what, quoted));
    sql.replace("STANDBY", STANDBY)
        .replace("SCHEMA", quoted)
        .replace("FENCE", &key("fence"))
        .replace("QUEUE", &key("queue"))
}

/// The key of the schema's fence.
pub(crate) fn fence(schema: &str) -> i64 {
    lock_of("fence", &quoted(schema))
}

/// The key of an advisory lock: such keys are the whole database's.
fn lock_of(what: &str, quoted: &str) -> i64 {
    let digest = Sha256::digest(format!("vellum {what} {quoted}").as_bytes());
    digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte)) as i64
}

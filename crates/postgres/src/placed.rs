//! SQL with the schema's name, and the keys of its advisory locks, put in place.

use sha2::{Digest, Sha256};

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

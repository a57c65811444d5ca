//! Poolers between a front and its server, as PgBouncer: refused, since a front sets its sessions up by start-up
//! options, keeps prepared statements in them, and knows them from one transaction to the next.

use crate::config::Config;
use crate::connection::{Connection, Statement};
use crate::failure::{Answer, Failure};
use crate::lives::Lives;

/// What is to be done about it.
const ADVICE: &str = "connect to PostgreSQL itself: a front's own pools bound its connections";

/// What a server's refusal to begin a session means, or of what a new one asks first, where it is a pooler's.
pub(crate) fn explain(failure: Failure) -> Failure {
    match &failure {
        Failure::Server { message, .. } if message.contains("unsupported startup parameter") => {
            Failure::Lost(format!("poolers such as PgBouncer are not supported ({message}): {ADVICE}"))
        }
        // A statement is there already, or isn't there any more: another connection's session.
        Failure::Server { .. } if failure.is("42P05") || failure.is("26000") => shared(),
        _ => failure,
    }
}

fn shared() -> Failure {
    Failure::Lost(format!(
        "what lies between this program and PostgreSQL, a pooler such as PgBouncer, gives several connections one \
         session, which is not supported: {ADVICE}"
    ))
}

/// Refuses a pooler that lets sessions begin, and keeps the options from them, or gives one session to several
/// transactions at a time.
pub(crate) fn refuse(config: &Config, lives: &Lives, connection: &mut Connection) -> Answer<()> {
    let asked = Statement::new(
        "session",
        "select pg_backend_pid(), (current_setting('plan_cache_mode') = 'force_generic_plan' \
         and current_setting('synchronous_commit') = 'off' and current_setting('lock_timeout') = '50ms')::int4",
    );
    let session = |connection: &mut Connection| -> Answer<(i64, bool)> {
        let rows = connection.one(&asked, &[])?;
        Ok(rows.first().map_or((0, false), |row| (row.int(0), row.int(1) != 0)))
    };
    let (process, is_set_up) = session(connection).map_err(explain)?;
    if !is_set_up {
        return Err(Failure::Lost(format!(
            "what lies between this program and PostgreSQL, a pooler such as PgBouncer, keeps its start-up options \
             from the server, which is not supported: {ADVICE}"
        )));
    }
    if connection.is_to(process) {
        return Ok(());
    }
    // Whoever answers for the server may still give each connection a session of its own.
    let another = Connection::open(config, lives).and_then(|mut another| session(&mut another));
    match another.map_err(explain)?.0 == process {
        true => Err(shared()),
        false => Ok(()),
    }
}

//! Table of all commands, sorted by name.
//!
//! `listCommands`, the stable API, the counters of `serverStatus` and the dispatcher read it.
//! [`ALIASES`] holds older spellings.

use super::crud::*;
use super::ddl::*;
use super::diagnostics::*;
use super::sets::*;
use super::settings::*;
use super::users::*;
use super::{clean_slate, cursors, sessions};
use crate::access::{Action, Command, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use base::{Result, err};
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// All commands, sorted by name.
pub(crate) static ROWS: &[Row] = &[
    merge_users::MERGE,
    sessions::ABORT_TRANSACTION,
    aggregate::AGGREGATE,
    refused("appendOplogNote", Requirements::Cluster(Action::AppendOplogNote)).admin_only(),
    apply_ops::APPLY_OPS,
    login::AUTHENTICATE,
    refused("autoCompact", Requirements::Cluster(Action::Compact)).admin_only(),
    server_info::BUILD_INFO,
    bulk_write::BULK_WRITE,
    indexes::CHECK_SHARDING_INDEX,
    refused(
        "cleanupStructuredEncryptionData",
        Requirements::Collection(Action::CleanupStructuredEncryptionData),
    ),
    collections::CLONE_COLLECTION_AS_CAPPED,
    collections::COLL_MOD,
    statistics::COLL_STATS,
    sessions::COMMIT_TRANSACTION,
    maintenance::COMPACT,
    refused(
        "compactStructuredEncryptionData",
        Requirements::Collection(Action::CompactStructuredEncryptionData),
    ),
    test_commands::CONFIGURE_FAIL_POINT,
    maintenance::CONN_POOL_STATS,
    server_info::CONNECTION_STATUS,
    collections::CONVERT_TO_CAPPED,
    find::COUNT,
    collections::CREATE,
    indexes::CREATE_INDEXES,
    roles::CREATE,
    indexes::CREATE_SEARCH_INDEXES,
    accounts::CREATE,
    current_op::CURRENT_OP,
    statistics::DATA_SIZE,
    refused("dbCheck", Requirements::Collection(Action::DbCheck)),
    maintenance::DB_HASH,
    statistics::DB_STATS,
    delete::DELETE,
    clean_slate::DIFF_DATABASE,
    find::DISTINCT,
    collections::DROP,
    roles::DROP_ALL,
    accounts::DROP_ALL,
    alone::DROP_CONNECTIONS,
    collections::DROP_DATABASE,
    indexes::DROP_INDEXES,
    roles::DROP,
    indexes::DROP_SEARCH_INDEX,
    clean_slate::DROP_SNAPSHOT,
    accounts::DROP,
    sessions::END_SESSIONS,
    explain::EXPLAIN,
    server_info::FEATURES,
    maintenance::FILE_MD5,
    find::FIND,
    find_and_modify::FIND_AND_MODIFY,
    refused("flushRouterConfig", Requirements::Cluster(Action::FlushRouterConfig)).admin_only(),
    clean_slate::FORK_DATABASE,
    maintenance::FSYNC,
    maintenance::FSYNC_UNLOCK,
    parameters::GET,
    server_info::GET_CMD_LINE_OPTS,
    set_settings::GET,
    maintenance::GET_DIAGNOSTIC_DATA,
    admin::GET_LOG,
    cursors::GET_MORE,
    parameters::GET_PARAMETER,
    refused("getShardMap", Requirements::Cluster(Action::GetShardMap)).admin_only(),
    roles::GRANT_PRIVILEGES,
    roles::GRANT_ROLES,
    accounts::GRANT_ROLES,
    hello::HELLO,
    server_info::HOST_INFO,
    insert::INSERT,
    alone::INVALIDATE_USER_CACHE,
    hello::IS_MASTER,
    sessions::KILL_ALL_SESSIONS,
    sessions::KILL_ALL_SESSIONS_BY_PATTERN,
    cursors::KILL_CURSORS,
    current_op::KILL_OP,
    sessions::KILL_SESSIONS,
    listings::LIST_COLLECTIONS,
    server_info::LIST_COMMANDS,
    listings::LIST_DATABASES,
    indexes::LIST_INDEXES,
    indexes::LIST_SEARCH_INDEXES,
    clean_slate::LIST_SNAPSHOTS,
    maintenance::LOCK_INFO,
    admin::LOG_ROTATE,
    login::LOGOUT,
    refused("mapReduce", Requirements::By(requirements::map_reduce)),
    server_info::PING,
    plan_cache::CLEAR,
    plan_cache::CLEAR_FILTERS,
    plan_cache::LIST_FILTERS,
    plan_cache::SET_FILTER,
    admin::PROFILE,
    indexes::RE_INDEX,
    maintenance::REFRESH_SESSION_CACHE,
    sessions::REFRESH_SESSIONS,
    refused("releaseMemory", Requirements::Nothing),
    query_settings::REMOVE,
    collections::RENAME_COLLECTION,
    replication_changes::ABORT_CATCH_UP,
    replication_changes::FREEZE,
    replication::GET_CONFIG,
    alone::GET_ROLLBACK_ID,
    replication::GET_STATUS,
    replication_changes::INITIATE,
    replication_changes::MAINTENANCE,
    replication_changes::RECONFIG,
    replication_changes::RESIZE_OPLOG,
    replication_changes::STEP_DOWN,
    refused("replSetStepUp", Requirements::Cluster(Action::ReplSetStateChange)).admin_only(),
    replication_changes::SYNC_FROM,
    clean_slate::RESET_DATABASE,
    clean_slate::RESTORE_DATABASE,
    roles::REVOKE_PRIVILEGES,
    roles::REVOKE_ROLES,
    accounts::REVOKE_ROLES,
    info::INFO,
    admin::ROTATE_CERTIFICATES,
    login::CONTINUE,
    login::START,
    server_status::SERVER_STATUS,
    parameters::SET,
    set_settings::SET,
    admin::SET_FEATURE_COMPATIBILITY_VERSION,
    refused("setIndexCommitQuorum", Requirements::Collection(Action::CreateIndex)),
    parameters::SET_PARAMETER,
    query_settings::SET,
    set_settings::SET_BLOCK,
    alone::SHARDING_STATE,
    admin::SHUTDOWN,
    clean_slate::SNAPSHOT_DATABASE,
    refused("startRecordingTraffic", Requirements::Cluster(Action::TrafficRecord)).admin_only(),
    sessions::START_SESSION,
    refused("stopRecordingTraffic", Requirements::Cluster(Action::TrafficRecord)).admin_only(),
    statistics::STRICT_REPORT,
    server_status::TOP,
    update::UPDATE,
    roles::UPDATE,
    indexes::UPDATE_SEARCH_INDEX,
    accounts::UPDATE,
    info::USERS_INFO,
    validate::VALIDATE,
    validate::VALIDATE_METADATA,
    clean_slate::BACKUP,
    test_commands::VELLUM_CLOCK,
    statistics::SLOW_QUERIES,
    statistics::WORKING_SET,
    server_info::WHATS_MY_URI,
];

/// Alternative names of commands, sorted.
static ALIASES: &[(&str, &str)] = &[
    ("buildinfo", "buildInfo"),
    ("collstats", "collStats"),
    ("datasize", "dataSize"),
    ("dbstats", "dbStats"),
    ("deleteIndexes", "dropIndexes"),
    ("findandmodify", "findAndModify"),
    ("ismaster", "isMaster"),
    ("mapreduce", "mapReduce"),
];

/// Creates a row for a MongoDB command that is not implemented. Its handler refuses it by name.
const fn refused(name: &'static str, requirements: Requirements) -> Row {
    Row::admin(name, not_implemented, requirements).help("Not implemented.")
}

/// Returns all commands in the order of [`ROWS`].
pub(crate) fn commands() -> impl Iterator<Item = &'static Command> {
    ROWS.iter().map(|row| &row.command)
}

/// Returns the name of the command at an index of [`ROWS`]; empty beyond the end.
pub(crate) fn name_at(at: usize) -> &'static str {
    ROWS.get(at).map_or("", |row| row.command.name)
}

/// Returns the row of the command with this name or alias.
pub(crate) fn row(name: &str) -> Option<&'static Row> {
    position(name).and_then(|at| ROWS.get(at))
}

/// Returns the command of this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    row(name).map(|row| &row.command)
}

/// Returns the index in [`ROWS`] of the command with this name or alias.
pub(crate) fn position(name: &str) -> Option<usize> {
    POSITIONS.get(name).copied()
}

/// Indexes in [`ROWS`] by name and alias. Each request looks one up, and a binary search has eight comparisons.
static POSITIONS: LazyLock<HashMap<&str, usize, FixedState>> = LazyLock::new(|| {
    let mut positions: HashMap<_, _, _> = commands().map(|command| command.name).zip(0..).collect();
    for (alias, name) in ALIASES {
        positions.extend(positions.get(name).map(|at| (*alias, *at)));
    }
    positions
});

/// Refuses the command.
///
/// Errors: NotImplemented with its name.
fn not_implemented(call: &mut Call<'_>) -> Result<HandlerStatus> {
    Err(err!(NotImplemented, "the command '{}' is not implemented", call.command.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_are_sorted_and_found_in() {
        let names: Vec<&str> = commands().map(|command| command.name).collect();
        assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
        assert!(ALIASES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for command in commands() {
            assert_eq!(find(command.name).map(|found| found.name), Some(command.name));
            assert!(command.help.ends_with('.'), "{}", command.name);
        }
        for (alias, name) in ALIASES {
            assert_eq!(find(alias).map(|found| found.name), Some(*name));
        }
        assert!(find("getlasterror").is_none());
        assert!(find("").is_none());
    }
}

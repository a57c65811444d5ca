//! The table of all commands: name, handler, privileges, properties.
//!
//! Each command has one row, sorted by name. `listCommands`, the stable API, the counters of
//! `serverStatus` and the dispatcher read it. Alternative names are in [`ALIASES`].

use crate::access::{Action, Needs, needs};
use crate::call::{Answer, Call};
use crate::commands::*;
use base::Result;

/// A handler: takes its declared fields, makes one call, and writes its reply.
pub(crate) type Handler = fn(&mut Call<'_>) -> Result<Answer>;

/// Effect of a command on data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reads documents or the catalog.
    Read,
    /// Changes documents or the catalog.
    Write,
    /// Concerns the server, a connection or a session.
    Admin,
}

/// A row of the table.
pub(crate) struct Command {
    /// Name in MongoDB's spelling.
    pub(crate) name: &'static str,
    /// One sentence for `listCommands`.
    pub(crate) help: &'static str,
    /// Effect on data.
    pub(crate) kind: Kind,
    /// Required privileges.
    pub(crate) needs: Needs,
    /// True if the command runs only on the database `admin`.
    pub(crate) admin_only: bool,
    /// True if the command may run before authentication.
    pub(crate) without_auth: bool,
    /// True if version 1 of the stable API has the command.
    pub(crate) stable_api: bool,
    /// True if the command supports read concerns other than local.
    pub(crate) takes_read_concern: bool,
    /// True if the command supports a write concern.
    pub(crate) takes_write_concern: bool,
    /// True if the command may be part of a transaction.
    pub(crate) in_transactions: bool,
    /// True if the command is retryable with a transaction number.
    pub(crate) retryable_write: bool,
    /// True if the command contains secrets, which are redacted.
    pub(crate) has_secrets: bool,
    /// Handler of the command.
    pub(crate) run: Handler,
}

impl Command {
    /// Creates a row. The methods below add properties. Writes support a write concern.
    pub(crate) const fn new(
        name: &'static str,
        kind: Kind,
        help: &'static str,
        run: Handler,
        needs: Needs,
    ) -> Command {
        Command {
            name,
            help,
            kind,
            needs,
            admin_only: false,
            without_auth: false,
            stable_api: false,
            takes_read_concern: false,
            takes_write_concern: matches!(kind, Kind::Write),
            in_transactions: false,
            retryable_write: false,
            has_secrets: false,
            run,
        }
    }

    /// Creates a row for a MongoDB command that is not implemented. Its handler refuses it by name.
    const fn refused(name: &'static str, needs: Needs) -> Command {
        Command::new(name, Kind::Admin, "Not implemented.", refused::not_implemented, needs)
    }

    /// Restricts the command to `admin`.
    pub(crate) const fn admin_only(mut self) -> Command {
        self.admin_only = true;
        self
    }

    /// Allows the command before authentication.
    pub(crate) const fn without_auth(mut self) -> Command {
        self.without_auth = true;
        self
    }

    /// Adds the command to version 1 of the stable API.
    pub(crate) const fn stable_api(mut self) -> Command {
        self.stable_api = true;
        self
    }

    /// Allows read concerns other than local.
    pub(crate) const fn takes_read_concern(mut self) -> Command {
        self.takes_read_concern = true;
        self
    }

    /// Allows the command in transactions.
    pub(crate) const fn in_transactions(mut self) -> Command {
        self.in_transactions = true;
        self
    }

    /// Makes a write retryable with a transaction number, and allows it in transactions.
    pub(crate) const fn retryable_write(mut self) -> Command {
        self.retryable_write = true;
        self.in_transactions()
    }

    /// Marks the command as containing secrets, which are redacted.
    pub(crate) const fn has_secrets(mut self) -> Command {
        self.has_secrets = true;
        self
    }

    /// Returns true if the command commits or aborts transactions.
    pub(crate) fn ends_transactions(&self) -> bool {
        matches!(self.name, "abortTransaction" | "commitTransaction")
    }

    /// Returns true if the command supports snapshot reads at one cluster time.
    pub(crate) fn reads_snapshots(&self) -> bool {
        matches!(self.name, "aggregate" | "distinct" | "find" | "getMore")
    }

    /// Refuses a write concern for a write.
    pub(crate) const fn without_write_concern(mut self) -> Command {
        self.takes_write_concern = false;
        self
    }

    /// Allows a write concern for a command that is not a write.
    pub(crate) const fn takes_write_concern(mut self) -> Command {
        self.takes_write_concern = true;
        self
    }
}

/// All commands, sorted by name.
pub(crate) static COMMANDS: &[Command] = &[
    merge_users::MERGE,
    transactions::ABORT_TRANSACTION,
    aggregate::AGGREGATE,
    Command::refused("appendOplogNote", Needs::Cluster(Action::AppendOplogNote)).admin_only(),
    apply_ops::APPLY_OPS,
    authenticate::AUTHENTICATE,
    Command::refused("autoCompact", Needs::Cluster(Action::Compact)).admin_only(),
    diagnostics::BUILD_INFO,
    bulk_write::BULK_WRITE,
    check_sharding_index::CHECK_SHARDING_INDEX,
    Command::refused(
        "cleanupStructuredEncryptionData",
        Needs::Collection(Action::CleanupStructuredEncryptionData),
    ),
    collections::CLONE_COLLECTION_AS_CAPPED,
    collections::COLL_MOD,
    statistics::COLL_STATS,
    transactions::COMMIT_TRANSACTION,
    maintenance::COMPACT,
    Command::refused(
        "compactStructuredEncryptionData",
        Needs::Collection(Action::CompactStructuredEncryptionData),
    ),
    fail_point::CONFIGURE_FAIL_POINT,
    maintenance::CONN_POOL_STATS,
    diagnostics::CONNECTION_STATUS,
    collections::CONVERT_TO_CAPPED,
    count::COUNT,
    collections::CREATE,
    indexes::CREATE_INDEXES,
    roles::CREATE,
    search_indexes::CREATE,
    users::CREATE,
    current_op::CURRENT_OP,
    statistics::DATA_SIZE,
    Command::refused("dbCheck", Needs::Database(Action::DbCheck)),
    maintenance::DB_HASH,
    statistics::DB_STATS,
    delete::DELETE,
    diff_database::DIFF_DATABASE,
    distinct::DISTINCT,
    collections::DROP,
    roles::DROP_ALL,
    users::DROP_ALL,
    alone::DROP_CONNECTIONS,
    collections::DROP_DATABASE,
    indexes::DROP_INDEXES,
    roles::DROP,
    search_indexes::DROP,
    clean_slate::DROP_SNAPSHOT,
    users::DROP,
    sessions::END_SESSIONS,
    explain::EXPLAIN,
    diagnostics::FEATURES,
    maintenance::FILE_MD5,
    find::FIND,
    find_and_modify::FIND_AND_MODIFY,
    Command::refused("flushRouterConfig", Needs::Cluster(Action::FlushRouterConfig)).admin_only(),
    clean_slate::FORK_DATABASE,
    fsync::FSYNC,
    fsync::FSYNC_UNLOCK,
    cluster_parameters::GET,
    diagnostics::GET_CMD_LINE_OPTS,
    default_concerns::GET,
    maintenance::GET_DIAGNOSTIC_DATA,
    admin::GET_LOG,
    get_more::GET_MORE,
    parameters::GET_PARAMETER,
    Command::refused("getShardMap", Needs::Cluster(Action::GetShardMap)).admin_only(),
    roles::GRANT_PRIVILEGES,
    roles::GRANT_ROLES,
    user_roles::GRANT,
    hello::HELLO,
    diagnostics::HOST_INFO,
    insert::INSERT,
    alone::INVALIDATE_USER_CACHE,
    hello::IS_MASTER,
    sessions::KILL_ALL_SESSIONS,
    sessions::KILL_ALL_SESSIONS_BY_PATTERN,
    kill_cursors::KILL_CURSORS,
    current_op::KILL_OP,
    sessions::KILL_SESSIONS,
    listings::LIST_COLLECTIONS,
    diagnostics::LIST_COMMANDS,
    listings::LIST_DATABASES,
    indexes::LIST_INDEXES,
    search_indexes::LIST,
    clean_slate::LIST_SNAPSHOTS,
    maintenance::LOCK_INFO,
    admin::LOG_ROTATE,
    login::LOGOUT,
    Command::refused("mapReduce", Needs::By(needs::map_reduce)),
    diagnostics::PING,
    plan_cache::CLEAR,
    plan_cache::CLEAR_FILTERS,
    plan_cache::LIST_FILTERS,
    plan_cache::SET_FILTER,
    admin::PROFILE,
    indexes::RE_INDEX,
    maintenance::REFRESH_SESSION_CACHE,
    sessions::REFRESH_SESSIONS,
    Command::refused("removeQuerySettings", Needs::Cluster(Action::QuerySettings)).admin_only(),
    collections::RENAME_COLLECTION,
    replication_member::ABORT_CATCH_UP,
    replication_changes::FREEZE,
    replication::GET_CONFIG,
    alone::GET_ROLLBACK_ID,
    replication::GET_STATUS,
    replication_changes::INITIATE,
    replication_member::MAINTENANCE,
    replication_changes::RECONFIG,
    replication_member::RESIZE_OPLOG,
    replication_changes::STEP_DOWN,
    Command::refused("replSetStepUp", Needs::Cluster(Action::ReplSetStateChange)).admin_only(),
    replication_member::SYNC_FROM,
    clean_slate::RESET_DATABASE,
    clean_slate::RESTORE_DATABASE,
    roles::REVOKE_PRIVILEGES,
    roles::REVOKE_ROLES,
    user_roles::REVOKE,
    roles_info::INFO,
    admin::ROTATE_CERTIFICATES,
    login::CONTINUE,
    login::START,
    server_status::SERVER_STATUS,
    cluster_parameters::SET,
    default_concerns::SET,
    admin::SET_FEATURE_COMPATIBILITY_VERSION,
    Command::refused("setIndexCommitQuorum", Needs::Collection(Action::CreateIndex)),
    parameters::SET_PARAMETER,
    Command::refused("setQuerySettings", Needs::Cluster(Action::QuerySettings)).admin_only(),
    user_write_block::SET,
    alone::SHARDING_STATE,
    admin::SHUTDOWN,
    clean_slate::SNAPSHOT_DATABASE,
    Command::refused("startRecordingTraffic", Needs::Cluster(Action::TrafficRecord)).admin_only(),
    sessions::START_SESSION,
    Command::refused("stopRecordingTraffic", Needs::Cluster(Action::TrafficRecord)).admin_only(),
    strict_report::STRICT_REPORT,
    server_status::TOP,
    update::UPDATE,
    roles::UPDATE,
    search_indexes::UPDATE,
    users::UPDATE,
    users_info::USERS_INFO,
    validate::VALIDATE,
    validate_metadata::VALIDATE_METADATA,
    backup::BACKUP,
    vellum_clock::VELLUM_CLOCK,
    slow_queries::SLOW_QUERIES,
    working_set::WORKING_SET,
    diagnostics::WHATS_MY_URI,
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

/// Returns the command of this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    position(name).and_then(|at| COMMANDS.get(at))
}

/// Returns the position in [`COMMANDS`] of the command with this name or alias.
pub(crate) fn position(name: &str) -> Option<usize> {
    let by_name = |name: &str| COMMANDS.binary_search_by(|command| command.name.cmp(name)).ok();
    by_name(name).or_else(|| {
        let at = ALIASES.binary_search_by(|alias| alias.0.cmp(name)).ok()?;
        by_name(ALIASES.get(at)?.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_are_sorted_and_found_in() {
        for pair in COMMANDS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} < {}", pair[0].name, pair[1].name);
        }
        assert!(ALIASES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for command in COMMANDS {
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

//! The table of all commands: what each is called, does, and may be used for.
//!
//! One row per command, sorted by name; `listCommands`, the stable API, the counters of
//! `serverStatus` and the dispatcher all read it. Older spellings stand in [`ALIASES`].

use crate::access::{Action, Needs, needs};
use crate::call::{Answer, Call};
use crate::commands::*;
use base::Result;

/// A handler: reads its declared fields, makes its one call, writes its reply.
pub(crate) type Handler = fn(&mut Call<'_>) -> Result<Answer>;

/// What a command does to data.
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
    /// The name in MongoDB's spelling.
    pub(crate) name: &'static str,
    /// One sentence for `listCommands`.
    pub(crate) help: &'static str,
    /// What it does to data.
    pub(crate) kind: Kind,
    /// What whoever runs it must be allowed to do.
    pub(crate) needs: Needs,
    /// Whether it runs on the database `admin` alone.
    pub(crate) admin_only: bool,
    /// Whether it may run before authentication.
    pub(crate) without_auth: bool,
    /// Whether it belongs to version 1 of the stable API.
    pub(crate) stable_api: bool,
    /// Whether it takes a read concern other than local.
    pub(crate) takes_read_concern: bool,
    /// Whether it takes a write concern.
    pub(crate) takes_write_concern: bool,
    /// Whether it may be part of a transaction.
    pub(crate) in_transactions: bool,
    /// Whether it is retryable with a transaction number.
    pub(crate) retryable_write: bool,
    /// Whether it carries secrets, which others don't see.
    pub(crate) has_secrets: bool,
    /// What runs it.
    pub(crate) run: Handler,
}

impl Command {
    /// A row; what else applies is added by the methods below. Writes take a write concern.
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

    /// A command of MongoDB's that this server doesn't implement, refused by its name.
    const fn refused(name: &'static str, needs: Needs) -> Command {
        Command::new(name, Kind::Admin, "Not implemented.", refused::not_implemented, needs)
    }

    /// Runs on `admin` alone.
    pub(crate) const fn admin_only(mut self) -> Command {
        self.admin_only = true;
        self
    }

    /// May run before authentication.
    pub(crate) const fn without_auth(mut self) -> Command {
        self.without_auth = true;
        self
    }

    /// Belongs to version 1 of the stable API.
    pub(crate) const fn stable_api(mut self) -> Command {
        self.stable_api = true;
        self
    }

    /// Takes a read concern other than local.
    pub(crate) const fn takes_read_concern(mut self) -> Command {
        self.takes_read_concern = true;
        self
    }

    /// May be part of a transaction.
    pub(crate) const fn in_transactions(mut self) -> Command {
        self.in_transactions = true;
        self
    }

    /// Is a write that may be retried with a transaction number, and part of a transaction.
    pub(crate) const fn retryable_write(mut self) -> Command {
        self.retryable_write = true;
        self.in_transactions()
    }

    /// Carries secrets, which others don't see.
    pub(crate) const fn has_secrets(mut self) -> Command {
        self.has_secrets = true;
        self
    }

    /// Whether it commits or aborts transactions.
    pub(crate) fn ends_transactions(&self) -> bool {
        matches!(self.name, "abortTransaction" | "commitTransaction")
    }

    /// Whether it can read as of one cluster time.
    pub(crate) fn reads_snapshots(&self) -> bool {
        matches!(self.name, "aggregate" | "distinct" | "find" | "getMore")
    }

    /// Takes no write concern, though it is a write.
    pub(crate) const fn without_write_concern(mut self) -> Command {
        self.takes_write_concern = false;
        self
    }

    /// Takes a write concern, though it isn't a write.
    pub(crate) const fn takes_write_concern(mut self) -> Command {
        self.takes_write_concern = true;
        self
    }
}

/// Every command, sorted by name.
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

/// Other spellings of a command's name, sorted.
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

/// The command of this name or alias.
pub(crate) fn find(name: &str) -> Option<&'static Command> {
    position(name).and_then(|at| COMMANDS.get(at))
}

/// Where the command of this name or alias stands in [`COMMANDS`].
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

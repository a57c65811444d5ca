//! Privileges of each built-in role, as in MongoDB (`builtin_roles.yml`).
//!
//! A function adds the privileges of one role and may call the functions of the roles that it includes.
//! [`builtin`](super::builtin) lists the roles. A new action of a command goes to the roles that may run the command.

use super::action::Action::{self, *};
use super::action::Actions;
use super::privilege::{Privilege, add};
use super::resource::Pattern;

/// Privileges collected for a role.
#[derive(Default)]
pub(super) struct RolePrivileges(pub(super) Vec<Privilege>);

impl RolePrivileges {
    fn on(&mut self, resource: Pattern, actions: Actions) -> &mut RolePrivileges {
        add(&mut self.0, Privilege { resource, actions });
        self
    }

    fn cluster(&mut self, actions: &[Action]) -> &mut RolePrivileges {
        self.on(Pattern::Cluster, Actions::of(actions))
    }

    fn any_normal(&mut self, actions: Actions) -> &mut RolePrivileges {
        self.on(Pattern::AnyNormal, actions)
    }

    fn any_buckets(&mut self, actions: Actions) -> &mut RolePrivileges {
        self.on(Pattern::Buckets(String::new(), String::new()), actions)
    }

    fn database(&mut self, database: &str, actions: Actions) -> &mut RolePrivileges {
        self.on(Pattern::Database(database.into()), actions)
    }

    fn named(&mut self, name: &str, actions: Actions) -> &mut RolePrivileges {
        self.on(Pattern::Named(name.into()), actions)
    }

    fn exact(&mut self, database: &str, name: &str, actions: Actions) -> &mut RolePrivileges {
        self.on(Pattern::Collection(database.into(), name.into()), actions)
    }
}

/// Actions that several roles share.
const FIND: Actions = Actions::one(Find);

const READ: Actions = Actions::of(&[
    ChangeStream,
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
]);

const READ_WRITE: Actions = READ.and(Actions::of(&[
    CleanupStructuredEncryptionData,
    CompactStructuredEncryptionData,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    DropIndex,
    DropSearchIndex,
    Insert,
    Remove,
    RenameCollectionSameDB,
    Update,
    UpdateSearchIndex,
]));

const USER_ADMIN: Actions = Actions::of(&[
    ChangeCustomData,
    ChangePassword,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantRole,
    RevokeRole,
    SetAuthenticationRestriction,
    ViewRole,
    ViewUser,
]);

const DB_ADMIN: Actions = Actions::of(&[
    Analyze,
    BypassDocumentValidation,
    CollMod,
    CollStats,
    Compact,
    ConfigureQueryAnalyzer,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DbStats,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropSearchIndex,
    EnableProfiler,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheIndexFilter,
    PlanCacheRead,
    PlanCacheWrite,
    ReIndex,
    RenameCollectionSameDB,
    StorageDetails,
    UpdateSearchIndex,
    Validate,
]);

const PROFILE: Actions = READ.and(Actions::of(&[ConvertToCapped, CreateCollection, DropCollection]));

const READ_AND_INDEX: Actions =
    READ.and(Actions::of(&[CreateIndex, CreateSearchIndexes, DropIndex, DropSearchIndex]));

const MONITOR_DATABASES: Actions =
    Actions::of(&[CollStats, DbStats, GetDatabaseVersion, GetShardVersion, IndexStats]);

const SHARDING: Actions = Actions::of(&[
    AnalyzeShardKey,
    EnableSharding,
    MoveCollection,
    RefineCollectionShardKey,
    ReshardCollection,
])
.and(Actions::one(UnshardCollection));

const MANAGE_DATABASES: Actions =
    SHARDING.and(Actions::of(&[ClearJumboFlag, ConfigureQueryAnalyzer, MoveChunk, SplitChunk, SplitVector]));

const WRITE: Actions = Actions::of(&[Insert, Remove, Update]);

const RESTORE: Actions = Actions::of(&[
    BypassDocumentValidation,
    CollMod,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    Insert,
    UpdateSearchIndex,
]);

const CLEAN_SLATE: Actions = Actions::of(&[
    VellumForkDatabase,
    VellumListSnapshots,
    VellumResetDatabase,
    VellumRestoreDatabase,
    VellumSnapshotDatabase,
]);

pub(super) fn read(database: &str, to: &mut RolePrivileges) {
    to.database(database, READ).exact(database, "system.js", READ);
}

pub(super) fn read_write(database: &str, to: &mut RolePrivileges) {
    to.database(database, READ_WRITE).exact(database, "system.js", READ_WRITE);
}

pub(super) fn user_admin(database: &str, to: &mut RolePrivileges) {
    to.database(database, USER_ADMIN);
}

pub(super) fn db_admin(database: &str, to: &mut RolePrivileges) {
    to.database(database, DB_ADMIN).exact(database, "system.profile", PROFILE);
}

pub(super) fn db_owner(database: &str, to: &mut RolePrivileges) {
    read_write(database, to);
    db_admin(database, to);
    user_admin(database, to);
}

pub(super) fn enable_sharding(_: &str, to: &mut RolePrivileges) {
    to.any_normal(SHARDING);
}

pub(super) fn read_any(_: &str, to: &mut RolePrivileges) {
    to.any_normal(READ).cluster(&[ListDatabases]).named("system.js", READ).any_buckets(READ);
}

pub(super) fn read_write_any(database: &str, to: &mut RolePrivileges) {
    read_any(database, to);
    to.any_normal(READ_WRITE).named("system.js", READ_WRITE).any_buckets(READ_WRITE);
}

pub(super) fn user_admin_any(_: &str, to: &mut RolePrivileges) {
    to.any_normal(USER_ADMIN.and(Actions::one(ListCachedAndActiveUsers)));
    to.database("local", USER_ADMIN).database("config", USER_ADMIN);
    to.cluster(&[AuthSchemaUpgrade, InvalidateUserCache, ListDatabases, ViewUser]);
    to.exact("admin", "system.users", READ_AND_INDEX).exact("admin", "system.roles", READ_AND_INDEX);
    to.named("system.users", READ).exact("admin", "system.version", READ);
    to.exact("admin", "system.backup_users", READ);
}

pub(super) fn db_admin_any(_: &str, to: &mut RolePrivileges) {
    to.cluster(&[ApplyOps, ListDatabases]).any_normal(DB_ADMIN);
    to.named("system.profile", PROFILE).any_buckets(DB_ADMIN);
}

pub(super) fn cluster_monitor(_: &str, to: &mut RolePrivileges) {
    read("config", to);
    read("local", to);
    to.cluster(&[
        AllCollectionStats,
        ConnPoolStats,
        GetCmdLineOpts,
        GetDefaultRWConcern,
        GetLog,
        GetParameter,
        GetShardMap,
        HostInfo,
        Inprog,
        ListDatabases,
        ListSampledQueries,
        ListSessions,
        ListShards,
        Netstat,
        OperationMetrics,
        ReplSetGetConfig,
        ReplSetGetStatus,
        ServerStatus,
        ShardedDataDistribution,
        ShardingState,
        Top,
        UseUUID,
    ]);
    to.any_normal(MONITOR_DATABASES).database("config", MONITOR_DATABASES);
    to.exact("config", "system.sessions", MONITOR_DATABASES).database("local", MONITOR_DATABASES);
    for name in ["system.replset", "replset.election", "replset.minvalid"] {
        to.exact("local", name, FIND);
    }
    to.named("system.profile", FIND);
}

pub(super) fn host_manager(_: &str, to: &mut RolePrivileges) {
    to.cluster(&[
        ApplicationMessage,
        AuditConfigure,
        ConnPoolSync,
        DropConnections,
        FlushRouterConfig,
        Fsync,
        InvalidateUserCache,
        KillAnyCursor,
        KillAnySession,
        Killop,
        LogRotate,
        OidReset,
        OidcListKeys,
        OidcRefreshKeys,
        ReplSetResizeOplog,
        Resync,
        RotateCertificates,
        SetParameter,
        Shutdown,
        Touch,
        TrafficRecord,
        Unlock,
    ]);
    to.any_normal(Actions::one(KillCursors));
}

pub(super) fn cluster_manager(_: &str, to: &mut RolePrivileges) {
    read("config", to);
    to.cluster(&[
        AddShard,
        AppendOplogNote,
        ApplicationMessage,
        CheckMetadataConsistency,
        CleanupOrphaned,
        FlushRouterConfig,
        GetChangeStreamState,
        GetClusterParameter,
        GetDefaultRWConcern,
        ListSessions,
        ListShards,
        QuerySettings,
        QueryStatsRead,
        QueryStatsReadTransformed,
        RemoveShard,
        ReplSetConfigure,
        ReplSetGetConfig,
        ReplSetGetStatus,
        ReplSetStateChange,
        Resync,
        RunTenantMigration,
        SetChangeStreamState,
        SetClusterParameter,
        SetDefaultRWConcern,
        SetFeatureCompatibilityVersion,
        TransitionFromDedicatedConfigServer,
        TransitionToDedicatedConfigServer,
    ]);
    to.any_normal(MANAGE_DATABASES).any_buckets(MANAGE_DATABASES);
    to.database("config", MANAGE_DATABASES.and(WRITE)).database("local", MANAGE_DATABASES.and(WRITE));
    to.exact("local", "system.replset", READ).exact("local", "system.healthlog", READ);
    to.on(Pattern::Any, Actions::one(DbCheck));
    to.exact("local", "replset.election", WRITE).exact("local", "replset.minvalid", WRITE);
}

pub(super) fn cluster_admin(database: &str, to: &mut RolePrivileges) {
    cluster_monitor(database, to);
    host_manager(database, to);
    cluster_manager(database, to);
    to.any_normal(Actions::one(DropDatabase));
    to.on(Pattern::Any, Actions::of(&[ExportCollection, ImportCollection]));
}

pub(super) fn queryable_backup(_: &str, to: &mut RolePrivileges) {
    to.on(Pattern::Any, Actions::of(&[CollStats, ListCollections, ListIndexes, ListSearchIndexes]));
    to.any_normal(FIND).any_buckets(FIND).cluster(&[GetParameter, ListDatabases, UseUUID]);
    to.database("config", FIND).database("local", FIND);
    to.exact("local", "replset.election", FIND).exact("local", "replset.minvalid", FIND);
    for name in ["system.js", "system.users", "system.profile"] {
        to.named(name, FIND);
    }
    for name in ["system.backup_users", "system.roles", "system.version"] {
        to.exact("admin", name, FIND);
    }
    to.exact("config", "settings", FIND);
}

pub(super) fn backup(database: &str, to: &mut RolePrivileges) {
    queryable_backup(database, to);
    to.cluster(&[AppendOplogNote, ServerStatus, SetUserWriteBlockMode]);
    to.exact("config", "settings", Actions::of(&[Insert, Update]));
}

pub(super) fn restore(_: &str, to: &mut RolePrivileges) {
    to.cluster(&[ApplyOps, BypassWriteBlockingMode, ForceUUID, GetParameter, SetUserWriteBlockMode, UseUUID]);
    to.database("local", RESTORE).database("config", RESTORE).any_buckets(RESTORE);
    for name in ["system.replset", "replset.election", "replset.minvalid"] {
        to.exact("local", name, RESTORE);
    }
    to.on(Pattern::Any, Actions::one(ListCollections));
    to.any_normal(RESTORE.and(USER_ADMIN)).named("system.js", RESTORE);
    to.exact("admin", "tempusers", FIND).exact("admin", "temproles", FIND);
    to.exact("admin", "system.backup_users", RESTORE).exact("admin", "system.version", RESTORE.and(FIND));
    to.named("system.users", RESTORE.and(Actions::of(&[Find, Remove, Update])));
    to.exact("admin", "system.roles", Actions::one(CreateIndex));
}

pub(super) fn root(database: &str, to: &mut RolePrivileges) {
    cluster_admin(database, to);
    user_admin_any(database, to);
    db_admin_any(database, to);
    read_write_any(database, to);
    backup(database, to);
    restore(database, to);
    direct_shard_operations(database, to);
    clean_slate_any(database, to);
    to.on(Pattern::Any, Actions::one(Validate)).cluster(&[BypassDefaultMaxTimeMS, UseTenant]);
    to.exact("config", "system.preimages", Actions::of(&[Find, Remove]));
    to.exact("config", "system.change_collection", WRITE.and(FIND));
}

pub(super) fn direct_shard_operations(_: &str, to: &mut RolePrivileges) {
    to.cluster(&[IssueDirectShardOperations]);
}

pub(super) fn system(_: &str, to: &mut RolePrivileges) {
    to.on(Pattern::Any, Actions::ALL);
}

pub(super) fn clean_slate(database: &str, to: &mut RolePrivileges) {
    to.database(database, CLEAN_SLATE);
}

pub(super) fn clean_slate_any(_: &str, to: &mut RolePrivileges) {
    to.any_normal(CLEAN_SLATE).cluster(&[VellumSetClock, VellumSetFailPoint, VellumStrictReport]);
}

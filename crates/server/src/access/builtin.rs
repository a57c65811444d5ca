//! The roles that every server has: those of MongoDB 8.0, and Vellum's own for its clean-slate commands.

use super::action::Action::{self, *};
use super::action::Actions;
use super::privilege::{Privilege, add};
use super::resource::Pattern;
use crate::auth::names::RoleName;

/// A role that is there without having been made.
pub(crate) struct Builtin {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whether it is a role of `admin` alone; others are there in every database, and about it.
    pub(crate) admin_only: bool,
    /// Grants what it grants in a database.
    grant: fn(&str, &mut Granted),
}

/// What a role has granted so far.
#[derive(Default)]
pub(crate) struct Granted(Vec<Privilege>);

impl Granted {
    fn on(&mut self, resource: Pattern, actions: Actions) -> &mut Granted {
        add(&mut self.0, Privilege { resource, actions });
        self
    }

    fn cluster(&mut self, actions: &[Action]) -> &mut Granted {
        self.on(Pattern::Cluster, Actions::of(actions))
    }

    fn any_normal(&mut self, actions: Actions) -> &mut Granted {
        self.on(Pattern::AnyNormal, actions)
    }

    fn any_buckets(&mut self, actions: Actions) -> &mut Granted {
        self.on(Pattern::Buckets(String::new(), String::new()), actions)
    }

    fn database(&mut self, database: &str, actions: Actions) -> &mut Granted {
        self.on(Pattern::Database(database.into()), actions)
    }

    fn named(&mut self, name: &str, actions: Actions) -> &mut Granted {
        self.on(Pattern::Named(name.into()), actions)
    }

    fn exact(&mut self, database: &str, name: &str, actions: Actions) -> &mut Granted {
        self.on(Pattern::Collection(database.into(), name.into()), actions)
    }
}

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

/// Every built-in role, sorted by name.
// tidy: sorted
pub(crate) static BUILTIN: &[Builtin] = &[
    Builtin { name: "__queryableBackup", admin_only: true, grant: queryable_backup },
    Builtin { name: "__system", admin_only: true, grant: system },
    Builtin { name: "backup", admin_only: true, grant: backup },
    Builtin { name: "clusterAdmin", admin_only: true, grant: cluster_admin },
    Builtin { name: "clusterManager", admin_only: true, grant: cluster_manager },
    Builtin { name: "clusterMonitor", admin_only: true, grant: cluster_monitor },
    Builtin { name: "dbAdmin", admin_only: false, grant: db_admin },
    Builtin { name: "dbAdminAnyDatabase", admin_only: true, grant: db_admin_any },
    Builtin { name: "dbOwner", admin_only: false, grant: db_owner },
    Builtin { name: "directShardOperations", admin_only: true, grant: direct_shard_operations },
    Builtin { name: "enableSharding", admin_only: false, grant: enable_sharding },
    Builtin { name: "hostManager", admin_only: true, grant: host_manager },
    Builtin { name: "read", admin_only: false, grant: read },
    Builtin { name: "readAnyDatabase", admin_only: true, grant: read_any },
    Builtin { name: "readWrite", admin_only: false, grant: read_write },
    Builtin { name: "readWriteAnyDatabase", admin_only: true, grant: read_write_any },
    Builtin { name: "restore", admin_only: true, grant: restore },
    Builtin { name: "root", admin_only: true, grant: root },
    Builtin { name: "userAdmin", admin_only: false, grant: user_admin },
    Builtin { name: "userAdminAnyDatabase", admin_only: true, grant: user_admin_any },
    Builtin { name: "vellumCleanSlate", admin_only: false, grant: clean_slate },
    Builtin { name: "vellumCleanSlateAnyDatabase", admin_only: true, grant: clean_slate_any },
];

fn find(role: &RoleName) -> Option<&'static Builtin> {
    let at = BUILTIN.binary_search_by(|builtin| builtin.name.cmp(&role.role)).ok()?;
    let known = BUILTIN.get(at)?;
    let is_there = role.db == "admin" || !known.admin_only && !role.db.is_empty() && role.db != "$external";
    is_there.then_some(known)
}

/// Whether a name is that of a built-in role.
pub(crate) fn is_builtin(role: &RoleName) -> bool {
    find(role).is_some()
}

/// What a built-in role grants; `None` where there is none of this name.
pub(crate) fn privileges(role: &RoleName) -> Option<Vec<Privilege>> {
    let mut granted = Granted::default();
    (find(role)?.grant)(&role.db, &mut granted);
    Some(granted.0)
}

/// The built-in roles of a database, by name.
pub(crate) fn of_database(database: &str) -> Vec<RoleName> {
    let roles = BUILTIN.iter().map(|builtin| RoleName::new(builtin.name, database));
    roles.filter(is_builtin).collect()
}

fn read(database: &str, to: &mut Granted) {
    to.database(database, READ).exact(database, "system.js", READ);
}

fn read_write(database: &str, to: &mut Granted) {
    to.database(database, READ_WRITE).exact(database, "system.js", READ_WRITE);
}

fn user_admin(database: &str, to: &mut Granted) {
    to.database(database, USER_ADMIN);
}

fn db_admin(database: &str, to: &mut Granted) {
    to.database(database, DB_ADMIN).exact(database, "system.profile", PROFILE);
}

fn db_owner(database: &str, to: &mut Granted) {
    read_write(database, to);
    db_admin(database, to);
    user_admin(database, to);
}

fn enable_sharding(_: &str, to: &mut Granted) {
    to.any_normal(SHARDING);
}

fn read_any(_: &str, to: &mut Granted) {
    to.any_normal(READ).cluster(&[ListDatabases]).named("system.js", READ).any_buckets(READ);
}

fn read_write_any(database: &str, to: &mut Granted) {
    read_any(database, to);
    to.any_normal(READ_WRITE).named("system.js", READ_WRITE).any_buckets(READ_WRITE);
}

fn user_admin_any(_: &str, to: &mut Granted) {
    to.any_normal(USER_ADMIN.and(Actions::one(ListCachedAndActiveUsers)));
    to.database("local", USER_ADMIN).database("config", USER_ADMIN);
    to.cluster(&[AuthSchemaUpgrade, InvalidateUserCache, ListDatabases, ViewUser]);
    to.exact("admin", "system.users", READ_AND_INDEX).exact("admin", "system.roles", READ_AND_INDEX);
    to.named("system.users", READ).exact("admin", "system.version", READ);
    to.exact("admin", "system.backup_users", READ);
}

fn db_admin_any(_: &str, to: &mut Granted) {
    to.cluster(&[ApplyOps, ListDatabases]).any_normal(DB_ADMIN);
    to.named("system.profile", PROFILE).any_buckets(DB_ADMIN);
}

fn cluster_monitor(_: &str, to: &mut Granted) {
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

fn host_manager(_: &str, to: &mut Granted) {
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

fn cluster_manager(_: &str, to: &mut Granted) {
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

fn cluster_admin(database: &str, to: &mut Granted) {
    cluster_monitor(database, to);
    host_manager(database, to);
    cluster_manager(database, to);
    to.any_normal(Actions::one(DropDatabase));
    to.on(Pattern::Any, Actions::of(&[ExportCollection, ImportCollection]));
}

fn queryable_backup(_: &str, to: &mut Granted) {
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

fn backup(database: &str, to: &mut Granted) {
    queryable_backup(database, to);
    to.cluster(&[AppendOplogNote, ServerStatus, SetUserWriteBlockMode]);
    to.exact("config", "settings", Actions::of(&[Insert, Update]));
}

fn restore(_: &str, to: &mut Granted) {
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

fn root(database: &str, to: &mut Granted) {
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

fn direct_shard_operations(_: &str, to: &mut Granted) {
    to.cluster(&[IssueDirectShardOperations]);
}

fn system(_: &str, to: &mut Granted) {
    to.on(Pattern::Any, Actions::ALL);
}

fn clean_slate(database: &str, to: &mut Granted) {
    to.database(database, CLEAN_SLATE);
}

fn clean_slate_any(_: &str, to: &mut Granted) {
    to.any_normal(CLEAN_SLATE).cluster(&[VellumSetClock, VellumSetFailPoint, VellumStrictReport]);
}

#[cfg(test)]
mod tests {
    use super::super::privilege::Privileges;
    use super::super::resource::Resource::{Cluster, Collection, Database};
    use super::*;

    fn role(name: &str, database: &str) -> Privileges {
        Privileges::new(privileges(&RoleName::new(name, database)).unwrap())
    }

    #[test]
    fn roles_are_there_where_they_belong() {
        assert!(is_builtin(&RoleName::new("read", "d")) && !is_builtin(&RoleName::new("root", "d")));
        assert!(
            !is_builtin(&RoleName::new("read", "$external")) && !is_builtin(&RoleName::new("reads", "d"))
        );
        assert_eq!(of_database("d").len(), 7);
        assert_eq!(of_database("admin").len(), BUILTIN.len());
    }

    #[test]
    fn a_role_of_a_database_ends_at_it() {
        let read = role("read", "d");
        assert!(read.allows(Collection("d", "c"), Find) && read.allows(Collection("d", "system.js"), Find));
        for resource in [Collection("x", "c"), Collection("d", "system.users"), Database("x"), Cluster] {
            assert!(!read.allows(resource, Find));
        }
        assert!(!read.allows(Collection("d", "c"), Insert));
        assert!(role("dbOwner", "d").allows(Database("d"), CreateUser));
    }

    #[test]
    fn any_database_leaves_out_those_of_the_server() {
        let any = role("readWriteAnyDatabase", "admin");
        assert!(
            any.allows(Collection("x", "c"), Insert) && any.allows(Collection("x", "system.buckets.c"), Find)
        );
        assert!(
            !any.allows(Collection("local", "c"), Find) && !any.allows(Collection("x", "system.users"), Find)
        );
        let users = role("userAdminAnyDatabase", "admin");
        assert!(users.allows(Collection("admin", "system.users"), Find));
        assert!(!users.allows(Collection("admin", "system.users"), Insert));
    }

    #[test]
    fn the_system_may_do_anything_and_root_nearly() {
        let (system, root) = (role("__system", "admin"), role("root", "admin"));
        assert!(system.allows(Cluster, Internal) && !root.allows(Cluster, Internal));
        assert!(root.allows(Collection("local", "system.x"), Validate));
        assert!(!root.allows(Collection("local", "system.x"), Find));
        assert!(!root.allows(Cluster, Impersonate) && root.allows(Database("d"), VellumForkDatabase));
        assert!(!role("readWriteAnyDatabase", "admin").allows(Database("d"), VellumResetDatabase));
    }
}

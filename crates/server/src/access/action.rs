//! Action types of privileges: MongoDB 8.0's, Vellum's own, and sets of them.

use std::collections::BTreeSet;

/// Declares the actions in the order of their names, with both tables.
macro_rules! actions {
    ($($variant:ident = $name:literal,)*) => {
        /// An action type.
        // The names are MongoDB's.
        #[allow(clippy::enum_variant_names)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Action {
            $(#[doc = concat!("`", $name, "`.")] $variant,)*
        }

        /// All actions, sorted by name.
        const ALL: &[Action] = &[$(Action::$variant,)*];

        /// Names of all actions, in the same order.
        const NAMES: &[&str] = &[$($name,)*];
    };
}

// Actions that begin with `vellum` are Vellum's own.
actions! {
    AddShard = "addShard",
    AdvanceClusterTime = "advanceClusterTime",
    AllCollectionStats = "allCollectionStats",
    Analyze = "analyze",
    AnalyzeShardKey = "analyzeShardKey",
    AnyAction = "anyAction",
    AppendOplogNote = "appendOplogNote",
    ApplicationMessage = "applicationMessage",
    ApplyOps = "applyOps",
    AuditConfigure = "auditConfigure",
    AuditLogRotate = "auditLogRotate",
    AuthCheck = "authCheck",
    AuthSchemaUpgrade = "authSchemaUpgrade",
    Authenticate = "authenticate",
    BypassDefaultMaxTimeMS = "bypassDefaultMaxTimeMS",
    BypassDocumentValidation = "bypassDocumentValidation",
    BypassWriteBlockingMode = "bypassWriteBlockingMode",
    ChangeCustomData = "changeCustomData",
    ChangeOwnCustomData = "changeOwnCustomData",
    ChangeOwnPassword = "changeOwnPassword",
    ChangePassword = "changePassword",
    ChangeStream = "changeStream",
    CheckFreeMonitoringStatus = "checkFreeMonitoringStatus",
    CheckMetadataConsistency = "checkMetadataConsistency",
    CleanupOrphaned = "cleanupOrphaned",
    CleanupStructuredEncryptionData = "cleanupStructuredEncryptionData",
    ClearJumboFlag = "clearJumboFlag",
    CloseAllDatabases = "closeAllDatabases",
    CollMod = "collMod",
    CollStats = "collStats",
    Compact = "compact",
    CompactStructuredEncryptionData = "compactStructuredEncryptionData",
    ConfigureQueryAnalyzer = "configureQueryAnalyzer",
    ConnPoolStats = "connPoolStats",
    ConnPoolSync = "connPoolSync",
    ConvertToCapped = "convertToCapped",
    CpuProfiler = "cpuProfiler",
    CreateCollection = "createCollection",
    CreateDatabase = "createDatabase",
    CreateIndex = "createIndex",
    CreateRole = "createRole",
    CreateSearchIndexes = "createSearchIndexes",
    CreateUser = "createUser",
    DbCheck = "dbCheck",
    DbHash = "dbHash",
    DbStats = "dbStats",
    DropAllRolesFromDatabase = "dropAllRolesFromDatabase",
    DropAllUsersFromDatabase = "dropAllUsersFromDatabase",
    DropCollection = "dropCollection",
    DropConnections = "dropConnections",
    DropDatabase = "dropDatabase",
    DropIndex = "dropIndex",
    DropRole = "dropRole",
    DropSearchIndex = "dropSearchIndex",
    DropUser = "dropUser",
    Emptycapped = "emptycapped",
    EnableProfiler = "enableProfiler",
    EnableSharding = "enableSharding",
    ExportCollection = "exportCollection",
    Find = "find",
    FlushRouterConfig = "flushRouterConfig",
    ForceUUID = "forceUUID",
    Fsync = "fsync",
    FsyncUnlock = "fsyncUnlock",
    GetChangeStreamState = "getChangeStreamState",
    GetClusterParameter = "getClusterParameter",
    GetCmdLineOpts = "getCmdLineOpts",
    GetDatabaseVersion = "getDatabaseVersion",
    GetDefaultRWConcern = "getDefaultRWConcern",
    GetLog = "getLog",
    GetParameter = "getParameter",
    GetShardMap = "getShardMap",
    GetShardVersion = "getShardVersion",
    GrantPrivilegesToRole = "grantPrivilegesToRole",
    GrantRole = "grantRole",
    GrantRolesToRole = "grantRolesToRole",
    GrantRolesToUser = "grantRolesToUser",
    HostInfo = "hostInfo",
    Impersonate = "impersonate",
    ImportCollection = "importCollection",
    IndexStats = "indexStats",
    Inprog = "inprog",
    Insert = "insert",
    Internal = "internal",
    InvalidateUserCache = "invalidateUserCache",
    IssueDirectShardOperations = "issueDirectShardOperations",
    KillAnyCursor = "killAnyCursor",
    KillAnySession = "killAnySession",
    KillCursors = "killCursors",
    Killop = "killop",
    ListCachedAndActiveUsers = "listCachedAndActiveUsers",
    ListCollections = "listCollections",
    ListCursors = "listCursors",
    ListDatabases = "listDatabases",
    ListIndexes = "listIndexes",
    ListSampledQueries = "listSampledQueries",
    ListSearchIndexes = "listSearchIndexes",
    ListSessions = "listSessions",
    ListShards = "listShards",
    LogRotate = "logRotate",
    MoveChunk = "moveChunk",
    MoveCollection = "moveCollection",
    Netstat = "netstat",
    OidReset = "oidReset",
    OidcListKeys = "oidcListKeys",
    OidcRefreshKeys = "oidcRefreshKeys",
    OperationMetrics = "operationMetrics",
    PlanCacheIndexFilter = "planCacheIndexFilter",
    PlanCacheRead = "planCacheRead",
    PlanCacheWrite = "planCacheWrite",
    QuerySettings = "querySettings",
    QueryStatsRead = "queryStatsRead",
    QueryStatsReadTransformed = "queryStatsReadTransformed",
    ReIndex = "reIndex",
    RefineCollectionShardKey = "refineCollectionShardKey",
    Remove = "remove",
    RemoveShard = "removeShard",
    RenameCollection = "renameCollection",
    RenameCollectionSameDB = "renameCollectionSameDB",
    RepairDatabase = "repairDatabase",
    ReplSetConfigure = "replSetConfigure",
    ReplSetGetConfig = "replSetGetConfig",
    ReplSetGetStatus = "replSetGetStatus",
    ReplSetHeartbeat = "replSetHeartbeat",
    ReplSetReconfig = "replSetReconfig",
    ReplSetResizeOplog = "replSetResizeOplog",
    ReplSetStateChange = "replSetStateChange",
    ReshardCollection = "reshardCollection",
    Resync = "resync",
    RevokePrivilegesFromRole = "revokePrivilegesFromRole",
    RevokeRole = "revokeRole",
    RevokeRolesFromRole = "revokeRolesFromRole",
    RevokeRolesFromUser = "revokeRolesFromUser",
    RotateCertificates = "rotateCertificates",
    RunAsLessPrivilegedUser = "runAsLessPrivilegedUser",
    RunTenantMigration = "runTenantMigration",
    ServerStatus = "serverStatus",
    SetAuthenticationRestriction = "setAuthenticationRestriction",
    SetChangeStreamState = "setChangeStreamState",
    SetClusterParameter = "setClusterParameter",
    SetDefaultRWConcern = "setDefaultRWConcern",
    SetFeatureCompatibilityVersion = "setFeatureCompatibilityVersion",
    SetFreeMonitoring = "setFreeMonitoring",
    SetParameter = "setParameter",
    SetUserWriteBlockMode = "setUserWriteBlockMode",
    ShardCollection = "shardCollection",
    ShardedDataDistribution = "shardedDataDistribution",
    ShardingState = "shardingState",
    Shutdown = "shutdown",
    SplitChunk = "splitChunk",
    SplitVector = "splitVector",
    StorageDetails = "storageDetails",
    Top = "top",
    Touch = "touch",
    TrafficRecord = "trafficRecord",
    TransitionFromDedicatedConfigServer = "transitionFromDedicatedConfigServer",
    TransitionToDedicatedConfigServer = "transitionToDedicatedConfigServer",
    Unlock = "unlock",
    UnshardCollection = "unshardCollection",
    Update = "update",
    UpdateRole = "updateRole",
    UpdateSearchIndex = "updateSearchIndex",
    UpdateUser = "updateUser",
    UseTenant = "useTenant",
    UseUUID = "useUUID",
    Validate = "validate",
    VellumForkDatabase = "vellumForkDatabase",
    VellumListSnapshots = "vellumListSnapshots",
    VellumResetDatabase = "vellumResetDatabase",
    VellumRestoreDatabase = "vellumRestoreDatabase",
    VellumSetClock = "vellumSetClock",
    VellumSetFailPoint = "vellumSetFailPoint",
    VellumSnapshotDatabase = "vellumSnapshotDatabase",
    VellumStrictReport = "vellumStrictReport",
    ViewRole = "viewRole",
    ViewUser = "viewUser",
}

impl Action {
    /// Returns the name in MongoDB's spelling.
    pub(crate) fn name(self) -> &'static str {
        NAMES.get(self as usize).copied().unwrap_or_default()
    }

    /// Returns the action of this name.
    pub(crate) fn of_name(name: &str) -> Option<Action> {
        let at = NAMES.binary_search(&name).ok()?;
        ALL.get(at).copied()
    }
}

/// Number of 64-bit words in a set.
const WORDS: usize = ALL.len().div_ceil(64);

/// A set of actions, as a bit set.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Actions([u64; WORDS]);

impl std::fmt::Debug for Actions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Actions {
    /// The empty set.
    pub(crate) const NONE: Actions = Actions([0; WORDS]);

    /// The set of all actions.
    pub(crate) const ALL: Actions = Actions::of(ALL);

    /// Returns the set of the listed actions.
    pub(crate) const fn of(list: &[Action]) -> Actions {
        let mut actions = Actions::NONE;
        let mut at = 0;
        while at < list.len() {
            let number = list[at] as usize;
            actions.0[number / 64] |= 1 << (number % 64);
            at += 1;
        }
        actions
    }

    /// Returns the set of one action.
    pub(crate) const fn one(action: Action) -> Actions {
        Actions::of(&[action])
    }

    /// Returns the union of both sets.
    pub(crate) const fn and(mut self, other: Actions) -> Actions {
        let mut at = 0;
        while at < WORDS {
            self.0[at] |= other.0[at];
            at += 1;
        }
        self
    }

    /// Returns the difference: the actions that are not in the other set.
    pub(crate) fn without(mut self, other: Actions) -> Actions {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= !other;
        }
        self
    }

    /// Returns true if the set is empty.
    pub(crate) fn is_empty(self) -> bool {
        self == Actions::NONE
    }

    /// Returns true if the set contains this action.
    pub(crate) fn contains(self, action: Action) -> bool {
        let number = action as usize;
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Iterates over the actions, sorted by name. The full set yields only `anyAction`.
    pub(crate) fn iter(self) -> impl Iterator<Item = Action> {
        let listed: &[Action] = if self == Actions::ALL { &[Action::AnyAction] } else { ALL };
        listed.iter().copied().filter(move |action| self.contains(*action))
    }

    /// Parses names and adds unknown names to `unknown`. `anyAction` stands for all actions.
    pub(crate) fn parse(names: &[&str], unknown: &mut BTreeSet<String>) -> Actions {
        let mut actions = Actions::NONE;
        for name in names {
            match Action::of_name(name) {
                Some(Action::AnyAction) => actions = Actions::ALL,
                Some(action) => actions = actions.and(Actions::one(action)),
                None => _ = unknown.insert(name.to_string()),
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.windows(2).all(|pair| pair[0] < pair[1]));
        for action in ALL {
            assert_eq!(Action::of_name(action.name()), Some(*action));
        }
        assert_eq!(Action::of_name("Find"), None);
    }

    #[test]
    fn sets_of_actions_round_trip() {
        let mut unknown = BTreeSet::new();
        let some = Actions::parse(&["validate", "find", "addShard"], &mut unknown);
        let names: Vec<_> = some.iter().map(Action::name).collect();
        assert_eq!(names, ["addShard", "find", "validate"]);
        assert!(some.contains(Action::Find) && !some.contains(Action::Insert));
        assert!(some.without(some).is_empty());
        let any = Actions::parse(&["find", "anyAction"], &mut unknown);
        assert!(any == Actions::ALL && any.contains(Action::VellumSetClock));
        assert_eq!(any.iter().collect::<Vec<_>>(), [Action::AnyAction]);
        assert!(unknown.is_empty());
        assert!(Actions::parse(&["swim", "find", "fly", "swim"], &mut unknown) == Actions::one(Action::Find));
        assert_eq!(unknown.into_iter().collect::<Vec<_>>(), ["fly", "swim"]);
    }
}

//! Parameters of MongoDB 8.0 without a meaning here. They are known by name and refused.

use base::{Error, err};

/// Parameters that MongoDB can change at run time, sorted.
const CHANGEABLE: &[&str] = &[
    "analyzeShardKeyNumMostCommonValues",
    "analyzeShardKeyNumRanges",
    "autoMergerIntervalSecs",
    "autoMergerThrottlingMS",
    "balancerMigrationsThrottlingMs",
    "batchUserMultiDeletes",
    "batchedDeletesTargetBatchDocs",
    "batchedDeletesTargetBatchTimeMS",
    "changeStreamDisableFilterOptimization",
    "chunkDefragmentationThrottlingMS",
    "clusterAuthMode",
    "createRollbackDataFiles",
    "diagnosticDataCollectionDirectorySizeMB",
    "diagnosticDataCollectionFileSizeMB",
    "diagnosticDataCollectionPeriodMillis",
    "diagnosticDataCollectionSamplesPerChunk",
    "diagnosticDataCollectionSamplesPerInterimUpdate",
    "disableJavaScriptJIT",
    "disableResumableRangeDeleter",
    "enableDetailedConnectionHealthMetricLogLines",
    "enableElectionHandoff",
    "enableFlowControl",
    "findChunksOnConfigTimeoutMS",
    "flowControlMaxSamples",
    "flowControlMinTicketsPerSecond",
    "flowControlSamplePeriod",
    "flowControlTargetLagSeconds",
    "flowControlWarnThresholdSeconds",
    "heapProfilingEnabled",
    "httpVerboseLogging",
    "indexBuildMinAvailableDiskSpaceMB",
    "initialSyncTransientErrorRetryPeriodSeconds",
    "internalDocumentSourceCursorBatchSizeBytes",
    "internalDocumentSourceLookupCacheSizeBytes",
    "internalInsertMaxBatchSize",
    "internalMaxSubPipelineViewDepth",
    "internalPipelineLengthLimit",
    "internalQueryCacheDisableInactiveEntries",
    "internalQueryCacheEvictionRatio",
    "internalQueryCacheMaxEntriesPerCollection",
    "internalQueryCacheWorksGrowthCoefficient",
    "internalQueryCollectionMaxNoOfDocumentsToChooseHashJoin",
    "internalQueryDefaultDOP",
    "internalQueryDisableLookupExecutionUsingHashJoin",
    "internalQueryEnumerationMaxIntersectPerAnd",
    "internalQueryEnumerationMaxOrSolutions",
    "internalQueryEnumerationPreferLockstepOrEnumeration",
    "internalQueryExecYieldIterations",
    "internalQueryExecYieldPeriodMS",
    "internalQueryFLEAlwaysUseEncryptedCollScanMode",
    "internalQueryForceIntersectionPlans",
    "internalQueryIgnoreUnknownJSONSchemaKeywords",
    "internalQueryJavaScriptFnTimeoutMillis",
    "internalQueryMaxJsEmitBytes",
    "internalQueryMaxMapReduceExpressionBytes",
    "internalQueryMaxScansToExplode",
    "internalQueryPlanEvaluationCollFraction",
    "internalQueryPlanEvaluationMaxResults",
    "internalQueryPlanEvaluationWorks",
    "internalQueryPlanOrChildrenIndependently",
    "internalQueryPlannerEnableHashIntersection",
    "internalQueryPlannerEnableIndexIntersection",
    "internalQueryPlannerGenerateCoveredWholeIndexScans",
    "internalQueryPlannerMaxIndexedSolutions",
    "internalQueryProhibitBlockingMergeOnMongoS",
    "internalQueryStatsCacheSize",
    "internalQueryStatsErrorsAreCommandFatal",
    "internalQueryStatsRateLimit",
    "jsHeapLimitMB",
    "maxIndexBuildMemoryUsageMegabytes",
    "maxNumActiveUserIndexBuilds",
    "maxValidateMemoryUsageMB",
    "migrateCloneInsertionBatchDelayMS",
    "migrateCloneInsertionBatchSize",
    "minNumChunksForSessionsCollection",
    "mirrorReads",
    "oplogInitialFindMaxSeconds",
    "orphanCleanupDelaySecs",
    "persistedChunkCacheUpdateMaxBatchSize",
    "planCacheSize",
    "queryAnalysisSamplerConfigurationRefreshSecs",
    "rangeDeleterBatchDelayMS",
    "rangeDeleterBatchSize",
    "rangeDeleterHighPriority",
    "redactEncryptedFields",
    "replBatchLimitBytes",
    "replBatchLimitOperations",
    "reshardingMinimumOperationDurationMillis",
    "rollbackTimeLimitSecs",
    "shutdownTimeoutMillisForSignaledShutdown",
    "slowConnectionThresholdMillis",
    "storageEngineConcurrencyAdjustmentAlgorithm",
    "storageEngineConcurrentReadTransactions",
    "storageEngineConcurrentWriteTransactions",
    "storeFindAndModifyImagesInSideCollection",
    "tcmallocAggressiveMemoryDecommit",
    "tcmallocMaxTotalThreadCacheBytes",
    "tcmallocReleaseRate",
    "timeseriesIdleBucketExpiryMemoryUsageThreshold",
    "timeseriesSideBucketCatalogMemoryUsageThreshold",
    "traceExceptions",
    "ttlIndexDeleteTargetDocs",
    "ttlIndexDeleteTargetTimeMS",
    "ttlMonitorBatchDeletes",
    "ttlMonitorSubPassTargetSecs",
    "waitForSecondaryBeforeNoopWriteMS",
    "wiredTigerConcurrentReadTransactions",
    "wiredTigerConcurrentWriteTransactions",
    "wiredTigerEngineRuntimeConfig",
];

/// Parameters that MongoDB sets only at startup, sorted.
const FIXED: &[&str] = &[
    "KeysRotationIntervalSec",
    "ShardingTaskExecutorPoolHostTimeoutMS",
    "ShardingTaskExecutorPoolMaxConnecting",
    "ShardingTaskExecutorPoolMaxSize",
    "ShardingTaskExecutorPoolMinSize",
    "ShardingTaskExecutorPoolRefreshRequirementMS",
    "ShardingTaskExecutorPoolRefreshTimeoutMS",
    "TransactionRecordMinimumLifetimeMinutes",
    "allowMultipleArbiters",
    "allowRolesFromX509Certificates",
    "authFailedDelayMs",
    "chunkMigrationConcurrency",
    "connPoolMaxConnsPerHost",
    "connPoolMaxInUseConnsPerHost",
    "diagnosticDataCollectionDirectoryPath",
    "disableLogicalSessionCacheRefresh",
    "disableNonTLSConnectionLogging",
    "disableSplitHorizonIPCheck",
    "enableOverrideClusterChainingSetting",
    "globalConnPoolIdleTimeoutMinutes",
    "honorSystemUmask",
    "indexMaxNumGeneratedKeysPerDocument",
    "initialSyncMethod",
    "initialSyncSourceReadPreference",
    "logicalSessionRefreshMillis",
    "maxAcceptableLogicalClockDriftSecs",
    "maxSessions",
    "ocspEnabled",
    "ocspValidationRefreshPeriodSecs",
    "opensslCipherConfig",
    "opensslCipherSuiteConfig",
    "opensslDiffieHellmanParameters",
    "oplogBatchDelayMillis",
    "oplogFetcherUsesExhaust",
    "periodicNoopIntervalSecs",
    "processUmask",
    "recoverFromOplogAsStandalone",
    "replWriterMinThreadCount",
    "replWriterThreadCount",
    "saslHostName",
    "saslServiceName",
    "saslauthdPath",
    "skipShardingConfigurationChecks",
    "suppressNoTLSPeerCertificateWarning",
    "tcpFastOpenClient",
    "tcpFastOpenQueueSize",
    "tcpFastOpenServer",
    "timeseriesBucketMaxCount",
    "timeseriesBucketMaxSize",
    "tlsClusterAuthX509Override",
    "tlsOCSPStaplingTimeoutSecs",
    "tlsOCSPVerifyTimeoutSecs",
    "tlsUseSystemCA",
    "tlsWithholdClientCertificate",
    "tlsX509ClusterAuthDNOverride",
    "tlsX509ExpirationWarningThresholdDays",
    "wiredTigerFileHandleCloseIdleTime",
    "wiredTigerFileHandleCloseMinimum",
    "wiredTigerFileHandleCloseScanInterval",
];

/// Returns the error for a read of a listed parameter; `None` for other names.
pub(crate) fn unreadable_parameter(name: &str) -> Option<Error> {
    let is_known = CHANGEABLE.binary_search(&name).is_ok() || FIXED.binary_search(&name).is_ok();
    is_known.then(|| nothing_here(name))
}

/// Returns the error for a change of a listed parameter; `None` for other names.
pub(super) fn not_set(name: &str) -> Option<Error> {
    let fixed = || FIXED.binary_search(&name).is_ok();
    match CHANGEABLE.binary_search(&name) {
        Ok(_) => Some(nothing_here(name)),
        Err(_) => fixed().then(|| super::not_at_runtime(name)),
    }
}

fn nothing_here(name: &str) -> Error {
    err!(NotImplemented, "the parameter '{name}' has no meaning in this server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_and_name_nothing_that_is_here() {
        let sorted = |names: &[&str]| names.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(sorted(CHANGEABLE) && sorted(FIXED));
        let here = |name: &&&str| crate::state::parameters::position(name).is_some();
        assert_eq!(CHANGEABLE.iter().chain(FIXED).find(here), None);
        assert_eq!(not_set("planCacheSize").map(|error| error.code().number()), Some(238));
        assert_eq!(not_set("saslHostName").map(|error| error.code().number()), Some(20));
        assert!(unreadable_parameter("nonsense").is_none());
    }
}

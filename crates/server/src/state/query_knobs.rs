//! `queryKnobs` of query settings: MongoDB's parameters that settings override for one query shape.
//!
//! The names are those of MongoDB 9.0 (src/mongo/db/query/query_knobs). `noTableScan` is supported. The other knobs
//! choose among plans that only MongoDB has, or limit what Vellum does not limit for one shape. They are refused.

use base::bson::{Builder, Document, Value};
use base::{Result, bail, err};

/// The knob that refuses scans of collections.
const NO_TABLE_SCAN: &str = "noTableScan";

/// Names of the other knobs.
const UNSUPPORTED: &[&str] = &[
    "cbrCEMode",
    "changeStreamRespectsReadPreference",
    "changeStreamUpdateLookupMaxBatchSize",
    "changeStreamUpdateLookupMaxInputBytes",
    "changeStreamUpdateLookupMaxOutputBytes",
    "collectionMaxDataSizeBytesToChooseHashJoin",
    "collectionMaxNoOfDocumentsToChooseHashJoin",
    "collectionMaxStorageSizeBytesToChooseHashJoin",
    "disableLookupExecutionUsingHashJoin",
    "disablePlanCache",
    "disableSingleFieldExpressExecutor",
    "documentSourceBucketAutoMaxMemoryBytes",
    "documentSourceDensifyMaxMemoryBytes",
    "documentSourceGraphLookupMaxMemoryBytes",
    "documentSourceGroupMaxMemoryBytes",
    "documentSourceLookupCacheSizeBytes",
    "documentSourceSetWindowFieldsMaxMemoryBytes",
    "enableChangeStreamMatchExpressionReordering",
    "enumerationMaxIntersectPerAnd",
    "enumerationMaxOrSolutions",
    "enumerationPreferLockstepOrEnumeration",
    "forceIntersectionPlans",
    "maxEstimatedScanBytes",
    "maxEstimatedScanBytesDryRun",
    "maxScansToExplode",
    "minRequiredImprovementRatioForCostBasedRankerChoice",
    "mixedPlanRankingStrategy",
    "nearStageMaxMemoryBytes",
    "numWorksPerPlanForMPEstimation",
    "operationResponseMaxMS",
    "planEvaluationCollFraction",
    "planEvaluationMaxResults",
    "planEvaluationWorks",
    "planOrChildrenIndependently",
    "planRanker",
    "planTieBreakingWithIndexHeuristics",
    "planTotalEvaluationCollFraction",
    "plannerEnableCountScanForUnfilteredCount",
    "plannerEnableHashIntersection",
    "plannerEnableIndexIntersection",
    "plannerEnableIndexPruning",
    "plannerEnableSortIndexIntersection",
    "plannerGenerateCoveredWholeIndexScans",
    "plannerMaxIndexedSolutions",
    "plannerPushdownFilterToIxscanForSort",
    "plannerUseMultiplannerForSingleSolutions",
    "queryMaxAddToSetBytes",
    "queryMaxConcatArraysBytes",
    "queryMaxMemoryUsageBytesPerOperation",
    "queryMaxPercentileAccumulatorBytes",
    "queryMaxPushBytes",
    "queryMaxSetUnionBytes",
    "queryMaxSpoolMemoryUsageBytes",
    "queryTopNAccumulatorBytes",
    "samplingCEMethod",
    "samplingCEMethodForPersistentSamples",
    "samplingConfidenceInterval",
    "samplingMarginOfError",
    "samplingSizeOverride",
    "sbeDisableGroupPushdown",
    "sbeDisableLookupPushdown",
    "sbeDisableLookupUnwindPushdown",
    "sbeDisableTimeSeriesPushdown",
    "sbeHashAggApproxMemoryUseInBytesBeforeSpill",
    "sbeHashJoinApproxMemoryUseInBytesBeforeSpill",
    "sbeHashLookupApproxMemoryUseInBytesBeforeSpill",
    "sbePlanEvaluationMaxMemoryBytes",
    "searchIdLookupMaxBatchSize",
    "searchIdLookupMaxInputBytes",
    "searchIdLookupMaxOutputBytes",
    "textOrStageMaxMemoryBytes",
];

/// Knobs of one shape. A knob that is absent keeps its earlier value; null removes it.
#[derive(Default)]
pub(crate) struct QueryKnobs {
    no_table_scan: Option<Option<bool>>,
}

impl QueryKnobs {
    /// Reads knobs.
    ///
    /// Errors: 12194500 for an unknown name, 12194501 for a bad value, NotImplemented for a knob without support.
    pub(crate) fn read(knobs: Document<'_>) -> Result<QueryKnobs> {
        let mut read = QueryKnobs::default();
        for knob in knobs {
            let name = knob.name();
            if UNSUPPORTED.contains(&name) {
                // Null removes a knob. No settings have this one.
                if matches!(knob.value(), Value::Null) {
                    continue;
                }
                bail!(NotImplemented, "the query knob '{name}' is not supported");
            }
            if name != NO_TABLE_SCAN {
                bail!(12194500, "'{name}' is not a query knob of query settings");
            }
            read.no_table_scan = Some(match knob.value() {
                Value::Null => None,
                Value::Boolean(refuses) => Some(refuses),
                value => Some(
                    value
                        .as_number()
                        .map(|number| number.to_f64() != 0.0)
                        .ok_or_else(|| err!(12194501, "the query knob '{name}' does not accept {value}"))?,
                ),
            });
        }
        Ok(read)
    }

    /// Returns these knobs, and the knobs of before that they do not name.
    pub(crate) fn over(self, before: &QueryKnobs) -> QueryKnobs {
        QueryKnobs { no_table_scan: self.no_table_scan.or(before.no_table_scan) }
    }

    /// Returns the knobs without nulls; `None` if there is no other.
    pub(crate) fn effective(self) -> Option<QueryKnobs> {
        self.no_table_scan().is_some().then_some(self)
    }

    /// Returns true or false if a knob refuses or allows scans of collections.
    pub(crate) fn no_table_scan(&self) -> Option<bool> {
        self.no_table_scan.flatten()
    }

    /// Appends the knobs as the field `queryKnobs`.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        out.begin_document(c"queryKnobs").append_optional(c"noTableScan", self.no_table_scan()).end();
    }
}

//! `queryKnobs` of query settings: MongoDB's parameters that settings override for one query shape.
//!
//! The names, types and bounds are those of MongoDB 9.0 (src/mongo/db/query/query_knobs). Most of them choose among
//! plans that only MongoDB has, so that they are stored and shown and choose nothing.

use base::bson::{Builder, Document, DocumentBuf, Element, Value};
use base::{Result, bail, err};

/// What a knob takes.
#[derive(Clone, Copy)]
enum Kind {
    Bool,
    /// An int within bounds.
    Int(i32, i32),
    /// A long within bounds.
    Long(i64, i64),
    /// A double within bounds.
    Double(f64, f64),
    /// One of these strings.
    Enum(&'static [&'static str]),
    /// A limit or a rule for results, which Vellum does not have for one shape.
    Unsupported,
}

use Kind::{Bool, Double, Enum, Int, Long, Unsupported};

const POSITIVE_LONG: Kind = Long(1, i64::MAX);
const NATURAL_INT: Kind = Int(0, i32::MAX);
const POSITIVE_INT: Kind = Int(1, i32::MAX);
const SAMPLES: Kind = Enum(&["random", "chunk"]);

/// The knob that refuses scans of collections.
const NO_TABLE_SCAN: &str = "noTableScan";

/// All knobs, sorted by name.
const KNOBS: &[(&str, Kind)] = &[
    ("cbrCEMode", Enum(&["exactCE", "histogramCE", "samplingCE", "heuristicCE"])),
    ("changeStreamRespectsReadPreference", Bool),
    ("changeStreamUpdateLookupMaxBatchSize", Int(1, 1024)),
    ("changeStreamUpdateLookupMaxInputBytes", Long(1, 16 << 20)),
    ("changeStreamUpdateLookupMaxOutputBytes", Long(1, 16 << 20)),
    ("collectionMaxDataSizeBytesToChooseHashJoin", POSITIVE_LONG),
    ("collectionMaxNoOfDocumentsToChooseHashJoin", POSITIVE_LONG),
    ("collectionMaxStorageSizeBytesToChooseHashJoin", POSITIVE_LONG),
    ("disableLookupExecutionUsingHashJoin", Bool),
    ("disablePlanCache", Bool),
    ("disableSingleFieldExpressExecutor", Bool),
    ("documentSourceBucketAutoMaxMemoryBytes", Unsupported),
    ("documentSourceDensifyMaxMemoryBytes", Unsupported),
    ("documentSourceGraphLookupMaxMemoryBytes", Unsupported),
    ("documentSourceGroupMaxMemoryBytes", Unsupported),
    ("documentSourceLookupCacheSizeBytes", Long(0, i64::MAX)),
    ("documentSourceSetWindowFieldsMaxMemoryBytes", Unsupported),
    ("enableChangeStreamMatchExpressionReordering", Bool),
    ("enumerationMaxIntersectPerAnd", NATURAL_INT),
    ("enumerationMaxOrSolutions", NATURAL_INT),
    ("enumerationPreferLockstepOrEnumeration", Bool),
    ("forceIntersectionPlans", Bool),
    ("maxEstimatedScanBytes", Unsupported),
    ("maxEstimatedScanBytesDryRun", Unsupported),
    ("maxScansToExplode", NATURAL_INT),
    ("minRequiredImprovementRatioForCostBasedRankerChoice", Double(1.0, 10.0)),
    ("mixedPlanRankingStrategy", Enum(&["NoMultiplanningResults", "EstimateRankingEffort"])),
    ("nearStageMaxMemoryBytes", Unsupported),
    (NO_TABLE_SCAN, Bool),
    ("numWorksPerPlanForMPEstimation", Int(101, 9999)),
    ("operationResponseMaxMS", Unsupported),
    ("planEvaluationCollFraction", Double(0.0, 1.0)),
    ("planEvaluationMaxResults", POSITIVE_INT),
    ("planEvaluationWorks", POSITIVE_INT),
    ("planOrChildrenIndependently", Bool),
    ("planRanker", Enum(&["multiPlanning", "costBased", "mixed"])),
    ("planTieBreakingWithIndexHeuristics", Bool),
    ("planTotalEvaluationCollFraction", Double(0.0, f64::INFINITY)),
    ("plannerEnableCountScanForUnfilteredCount", Bool),
    ("plannerEnableHashIntersection", Bool),
    ("plannerEnableIndexIntersection", Bool),
    ("plannerEnableIndexPruning", Bool),
    ("plannerEnableSortIndexIntersection", Bool),
    ("plannerGenerateCoveredWholeIndexScans", Bool),
    ("plannerMaxIndexedSolutions", NATURAL_INT),
    ("plannerPushdownFilterToIxscanForSort", Bool),
    ("plannerUseMultiplannerForSingleSolutions", Bool),
    ("queryMaxAddToSetBytes", Unsupported),
    ("queryMaxConcatArraysBytes", Unsupported),
    ("queryMaxMemoryUsageBytesPerOperation", Unsupported),
    ("queryMaxPercentileAccumulatorBytes", Unsupported),
    ("queryMaxPushBytes", Unsupported),
    ("queryMaxSetUnionBytes", Unsupported),
    ("queryMaxSpoolMemoryUsageBytes", Unsupported),
    ("queryTopNAccumulatorBytes", Unsupported),
    ("samplingCEMethod", SAMPLES),
    ("samplingCEMethodForPersistentSamples", SAMPLES),
    ("samplingConfidenceInterval", Enum(&["90", "95", "99"])),
    ("samplingMarginOfError", Double(1.0, 10.0)),
    ("samplingSizeOverride", NATURAL_INT),
    ("sbeDisableGroupPushdown", Bool),
    ("sbeDisableLookupPushdown", Bool),
    ("sbeDisableLookupUnwindPushdown", Bool),
    ("sbeDisableTimeSeriesPushdown", Bool),
    ("sbeHashAggApproxMemoryUseInBytesBeforeSpill", POSITIVE_LONG),
    ("sbeHashJoinApproxMemoryUseInBytesBeforeSpill", POSITIVE_LONG),
    ("sbeHashLookupApproxMemoryUseInBytesBeforeSpill", POSITIVE_LONG),
    ("sbePlanEvaluationMaxMemoryBytes", NATURAL_INT),
    ("searchIdLookupMaxBatchSize", Int(1, 1024)),
    ("searchIdLookupMaxInputBytes", Long(1, 16 << 20)),
    ("searchIdLookupMaxOutputBytes", Long(1, 16 << 20)),
    ("textOrStageMaxMemoryBytes", Unsupported),
];

/// Knobs with values of their types. Null removes a knob from the settings of before.
pub(crate) struct QueryKnobs(DocumentBuf);

impl QueryKnobs {
    /// Reads knobs.
    ///
    /// Errors: 12194500 for an unknown name, 12194501 for a bad value, NotImplemented for a knob without support.
    pub(crate) fn read(knobs: Document<'_>) -> Result<QueryKnobs> {
        let mut out = Builder::new();
        for knob in knobs {
            let name = knob.name();
            let known = KNOBS.binary_search_by_key(&name, |(name, _)| name).ok().and_then(|at| KNOBS.get(at));
            let Some((_, kind)) = known else {
                bail!(12194500, "'{name}' is not a query knob of query settings");
            };
            if matches!(kind, Unsupported) {
                bail!(NotImplemented, "the query knob '{name}' is not supported");
            }
            let value = match knob.value() {
                Value::Null => Value::Null,
                value => kind.convert(value).ok_or_else(|| {
                    err!(12194501, "the query knob '{name}' does not accept {}", knob.value())
                })?,
            };
            out.append(knob.field_name(), value);
        }
        Ok(QueryKnobs(out.finish()))
    }

    /// These knobs, and the knobs of before that they do not name.
    pub(crate) fn over(self, before: &QueryKnobs) -> QueryKnobs {
        let mut out = Builder::new();
        let names = |element: &Element<'_>| self.0.view().find(element.name()).is_some();
        for element in before.0.view().iter().filter(|element| !names(element)).chain(self.0.view()) {
            out.append_element(&element);
        }
        QueryKnobs(out.finish())
    }

    /// The knobs without nulls; `None` if there is no other.
    pub(crate) fn effective(&self) -> Option<QueryKnobs> {
        let mut out = Builder::new();
        for element in self.0.view().iter().filter(|element| !matches!(element.value(), Value::Null)) {
            out.append_element(&element);
        }
        let out = out.finish();
        (!out.view().is_empty()).then_some(QueryKnobs(out))
    }

    /// Whether scans of collections are refused, if a knob says so.
    pub(crate) fn no_table_scan(&self) -> Option<bool> {
        self.0.view().get(NO_TABLE_SCAN).and_then(|value| value.as_bool())
    }

    pub(crate) fn view(&self) -> Document<'_> {
        self.0.view()
    }
}

impl Kind {
    /// The value in the knob's type; `None` if it is of another type or out of bounds.
    fn convert(self, value: Value<'_>) -> Option<Value<'_>> {
        let integer = || value.as_number().and_then(|number| number.to_i64_exact());
        match (self, value) {
            (Bool, Value::Boolean(_)) => Some(value),
            (Bool, _) => value.as_number().map(|number| Value::Boolean(number.to_f64() != 0.0)),
            (Int(least, most), _) => {
                let number = i32::try_from(integer()?).ok()?;
                (least..=most).contains(&number).then_some(Value::Int32(number))
            }
            (Long(least, most), _) => {
                let number = integer()?;
                (least..=most).contains(&number).then_some(Value::Int64(number))
            }
            (Double(least, most), _) => {
                let number = value.as_number()?.to_f64();
                (least..=most).contains(&number).then_some(Value::Double(number))
            }
            (Enum(names), Value::String(name)) => names.contains(&name).then_some(value),
            (Enum(_) | Unsupported, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_sorted_by_name() {
        assert!(KNOBS.is_sorted_by_key(|(name, _)| name));
    }
}

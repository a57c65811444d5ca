//! The table of all stages, sorted by name.

use super::definition::Documents::{Events, Own};
use super::definition::{Parser, Rights, RunsOn, Stable, StageDefinition};
use super::external::{self, External};
use super::parse::{Parsed, Scope};
use super::{
    bucket, bucket_auto, change_stream, count, densify, explained, facet, fill, geo_near, graph_lookup,
    group, limit, lookup, r#match, merge, optimize, out, project, redact, replace_root, sample,
    set_window_fields, sort, source, union_with, unwind,
};
use base::bson::{Array, Element};
use base::{Error, Result, err};

/// Defines a stage that runs in the pipeline.
const fn stage(name: &'static str, parse: fn(&Element<'_>, &Scope<'_>) -> Result<Parsed>) -> StageDefinition {
    StageDefinition::new(name, Parser::Stage(parse))
}

/// Defines a source of documents in the database or the server. Transactions cannot run it.
const fn external(name: &'static str, parse: fn(&Element<'_>) -> Result<External>) -> StageDefinition {
    StageDefinition::new(name, Parser::External(parse)).documents_from(Own).not_in_transactions()
}

/// Defines a stage that MongoDB supports only with its search process.
const fn search(name: &'static str) -> StageDefinition {
    StageDefinition::new(name, Parser::Refused(search_not_enabled)).first()
}

/// Defines a known stage without an implementation.
const fn refused(name: &'static str) -> StageDefinition {
    StageDefinition::new(name, Parser::Refused(not_implemented)).first()
}

/// All of MongoDB's stages by name, including refused stages.
pub(crate) static STAGES: &[StageDefinition] = &[
    stage("$_internalInhibitOptimization", optimize::parse_barrier).in_streams(),
    stage("$_internalSplitPipeline", optimize::parse_barrier),
    stage("$addFields", project::parse_add_fields).in_streams(),
    stage("$bucket", bucket::parse),
    stage("$bucketAuto", bucket_auto::parse).creates_documents(),
    stage("$changeStream", change_stream::parse_change_stream)
        .documents_from(Events)
        .runs_on(RunsOn::Any)
        .in_streams()
        .not_in_joins()
        .not_in_transactions()
        .only_read_concern("majority")
        .stable(Stable::If(change_stream::is_stable))
        .requires(Rights::By(change_stream::rights)),
    stage("$changeStreamSplitLargeEvent", change_stream::parse_split_large_event).only_in_streams(),
    external("$collStats", external::parse_coll_stats)
        .requires(Rights::Collection("collStats"))
        .stable(Stable::If(external::only_counts)),
    stage("$count", count::parse_count).creates_documents().explained_by(count::explained_count),
    external("$currentOp", external::parse_current_op)
        .runs_on(RunsOn::Admin)
        .only_read_concern("local")
        .requires(Rights::By(external::current_op_rights))
        .stable(Stable::No),
    stage("$densify", densify::parse).explained_by(explained::densify),
    stage("$documents", source::parse_documents).documents_from(Own).runs_on(RunsOn::Database),
    stage("$facet", facet::parse).not_in_facet().creates_documents().reads(facet::inputs),
    stage("$fill", fill::parse),
    stage("$geoNear", geo_near::parse).first(),
    stage("$graphLookup", graph_lookup::parse).reads(graph_lookup::inputs),
    stage("$group", group::parse).creates_documents(),
    external("$indexStats", external::parse_index_stats)
        .requires(Rights::Collection("indexStats"))
        .stable(Stable::No),
    stage("$limit", limit::parse_limit),
    refused("$listCatalog").documents_from(Own).requires(Rights::Collection("listCollections")),
    stage("$listClusterCatalog", source::parse_list_cluster_catalog)
        .documents_from(Own)
        .runs_on(RunsOn::Any)
        .only_read_concern("local")
        .not_in_transactions()
        .requires(Rights::By(source::list_cluster_catalog_rights))
        .stable(Stable::No),
    external("$listLocalSessions", external::parse_list_sessions)
        .runs_on(RunsOn::Database)
        .only_read_concern("local")
        .requires(Rights::By(external::list_sessions_rights))
        .stable(Stable::No),
    refused("$listSampledQueries").documents_from(Own).requires(Rights::Cluster("listSampledQueries")),
    search("$listSearchIndexes").documents_from(Own).requires(Rights::Collection("listSearchIndexes")),
    external("$listSessions", external::parse_list_sessions)
        .runs_on(RunsOn::Sessions)
        .requires(Rights::By(external::list_sessions_rights))
        .stable(Stable::No),
    stage("$lookup", lookup::parse).reads(lookup::inputs),
    stage("$match", r#match::parse).in_streams(),
    stage("$merge", merge::parse).writes_documents().requires(Rights::By(merge::rights)),
    stage("$out", out::parse).writes_documents().requires(Rights::By(out::rights)),
    external("$planCacheStats", external::parse_plan_cache_stats)
        .only_read_concern("local")
        .requires(Rights::Collection("planCacheRead"))
        .stable(Stable::No),
    stage("$project", project::parse_project).in_streams().explained_by(explained::project),
    external("$querySettings", external::parse_query_settings)
        .runs_on(RunsOn::Admin)
        .only_read_concern("local")
        .requires(Rights::Cluster("querySettings"))
        .stable(Stable::No),
    external("$queryStats", external::parse_query_stats)
        .runs_on(RunsOn::Admin)
        .only_read_concern("local")
        .requires(Rights::By(external::query_stats_rights))
        .stable(Stable::No),
    refused("$rankFusion"),
    stage("$redact", redact::parse).in_streams(),
    stage("$replaceRoot", replace_root::parse_replace_root).in_streams(),
    stage("$replaceWith", replace_root::parse_replace_with)
        .in_streams()
        .explained_by(explained::replace_with),
    stage("$sample", sample::parse),
    refused("$scoreFusion"),
    search("$search").stable(Stable::No),
    search("$searchBeta").stable(Stable::No),
    search("$searchMeta"),
    stage("$set", project::parse_add_fields).in_streams(),
    stage("$setWindowFields", set_window_fields::parse).explained_by(explained::set_window_fields),
    refused("$shardedDataDistribution")
        .documents_from(Own)
        .requires(Rights::Cluster("shardedDataDistribution")),
    stage("$skip", limit::parse_skip),
    stage("$sort", sort::parse).explained_by(explained::sort),
    stage("$sortByCount", count::parse_sort_by_count),
    stage("$unionWith", union_with::parse).reads(union_with::inputs),
    stage("$unset", project::parse_unset).in_streams().explained_by(explained::unset),
    stage("$unwind", unwind::parse).explained_by(explained::unwind),
    search("$vectorSearch"),
];

fn not_implemented(spec: &Element<'_>) -> Error {
    err!(NotImplemented, "{} is not implemented", spec.name())
}

/// Returns SearchNotEnabled, as MongoDB does without a search process.
fn search_not_enabled(spec: &Element<'_>) -> Error {
    let product = match spec.name() {
        "$listSearchIndexes" => "Atlas Search Database Commands and the $listSearchIndexes aggregation stage",
        _ => "$search and $vectorSearch aggregation stages",
    };
    err!(
        SearchNotEnabled,
        "Using {product} requires additional configuration. Please connect to Atlas or an AtlasCLI local deployment \
         to enable. For more information on how to connect, see \
         https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs"
    )
}

/// Returns the stage with this name.
///
/// Errors: 40324 for an unknown stage.
pub(crate) fn find(name: &str) -> Result<&'static StageDefinition> {
    STAGES
        .binary_search_by_key(&name, |stage| stage.name)
        .ok()
        .and_then(|at| STAGES.get(at))
        .ok_or_else(|| err!(40324, "Unrecognized pipeline stage name: '{name}'"))
}

/// Returns all stages, sorted by name.
pub fn stages() -> impl Iterator<Item = &'static StageDefinition> {
    STAGES.iter()
}

/// Returns the stages of an unparsed pipeline with their specifications, without unknown stages.
pub fn stages_of<'v>(pipeline: Array<'v>) -> impl Iterator<Item = (&'static StageDefinition, Element<'v>)> {
    pipeline.iter().filter_map(|stage| {
        let spec = stage.as_document()?.first()?;
        Some((find(spec.name()).ok()?, spec))
    })
}

/// Returns the first stage of an unparsed pipeline.
pub fn first_stage(pipeline: Array<'_>) -> Option<&'static StageDefinition> {
    find(pipeline.iter().next()?.as_document()?.first()?.name()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::testing::fails;

    #[test]
    fn the_table_is_sorted() {
        assert!(STAGES.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn unknown_and_unbuilt_stages_are_refused_by_name() {
        fails("[{$nope: 1}]", 40324, "Unrecognized pipeline stage name: '$nope'");
        fails("[{$search: {}}]", 31082, "Using $search and $vectorSearch aggregation stages requires");
        fails("[{$listSampledQueries: {}}]", 238, "$listSampledQueries is not implemented");
        fails("[{$limit: 1, $skip: 1}]", 40323, "exactly one field");
        fails("[{}]", 40323, "exactly one field");
        fails("[1]", 14, "Each element of the 'pipeline' array must be an object");
        fails(
            "[{$limit: 1}, {$search: {}}]",
            40602,
            "$search is only valid as the first stage in a pipeline.",
        );
    }
}

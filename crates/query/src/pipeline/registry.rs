//! The table of all stages, sorted by name.

use super::parse::{Parsed, Scope};
use super::{
    bucket, bucket_auto, change_stream, change_stream_split_large_event, count, densify, documents, external,
    facet, fill, geo_near, graph_lookup, group, internal, limit, lookup, r#match, merge, out, project,
    redact, replace_root, sample, set_window_fields, skip, sort, sort_by_count, union_with, unwind,
};
use base::bson::Element;
use base::{Result, err};

/// Where in a pipeline a stage may stand.
pub(crate) enum Position {
    Anywhere,
    First,
    Last,
}

/// One stage of the table.
pub(crate) struct Entry {
    /// The name, `$` included.
    pub(crate) name: &'static str,
    pub(crate) parse: fn(&Element<'_>, &Scope<'_>) -> Result<Parsed>,
    pub(crate) position: Position,
    /// Whether `$facet` may contain it.
    pub(crate) in_facet: bool,
    pub(crate) implemented: bool,
}

const fn stage(name: &'static str, parse: fn(&Element<'_>, &Scope<'_>) -> Result<Parsed>) -> Entry {
    Entry { name, parse, position: Position::Anywhere, in_facet: true, implemented: true }
}

/// A stage that MongoDB itself has only beside its search process.
const fn search(name: &'static str) -> Entry {
    Entry { implemented: false, ..stage(name, refuse_search) }
}

const fn refused(name: &'static str) -> Entry {
    Entry { implemented: false, ..stage(name, refuse) }
}

impl Entry {
    const fn first(self) -> Entry {
        Entry { position: Position::First, in_facet: false, ..self }
    }

    const fn last(self) -> Entry {
        Entry { position: Position::Last, in_facet: false, ..self }
    }

    const fn not_in_facet(self) -> Entry {
        Entry { in_facet: false, ..self }
    }
}

/// Every stage of MongoDB's by name, those that are refused included.
pub(crate) const STAGES: &[Entry] = &[
    stage("$_internalInhibitOptimization", internal::parse),
    stage("$_internalSplitPipeline", internal::parse),
    stage("$addFields", project::parse_add_fields),
    stage("$bucket", bucket::parse),
    stage("$bucketAuto", bucket_auto::parse),
    stage("$changeStream", change_stream::parse).first(),
    stage("$changeStreamSplitLargeEvent", change_stream_split_large_event::parse).not_in_facet(),
    stage("$collStats", external::parse).first(),
    stage("$count", count::parse),
    stage("$currentOp", external::parse).first(),
    stage("$densify", densify::parse),
    stage("$documents", documents::parse).first(),
    stage("$facet", facet::parse).not_in_facet(),
    stage("$fill", fill::parse),
    stage("$geoNear", geo_near::parse).first(),
    stage("$graphLookup", graph_lookup::parse),
    stage("$group", group::parse),
    stage("$indexStats", external::parse).first(),
    stage("$limit", limit::parse),
    refused("$listClusterCatalog").first(),
    stage("$listLocalSessions", external::parse).first(),
    refused("$listSampledQueries").first(),
    search("$listSearchIndexes").first(),
    refused("$listSessions").first(),
    stage("$lookup", lookup::parse),
    stage("$match", r#match::parse),
    stage("$merge", merge::parse).last(),
    stage("$out", out::parse).last(),
    stage("$planCacheStats", external::parse).first(),
    stage("$project", project::parse_project),
    refused("$queryStats").first(),
    refused("$rankFusion").first(),
    stage("$redact", redact::parse),
    stage("$replaceRoot", replace_root::parse_replace_root),
    stage("$replaceWith", replace_root::parse_replace_with),
    stage("$sample", sample::parse),
    refused("$scoreFusion").first(),
    search("$search").first(),
    search("$searchMeta").first(),
    stage("$set", project::parse_add_fields),
    stage("$setWindowFields", set_window_fields::parse),
    refused("$shardedDataDistribution").first(),
    stage("$skip", skip::parse),
    stage("$sort", sort::parse),
    stage("$sortByCount", sort_by_count::parse),
    stage("$unionWith", union_with::parse),
    stage("$unset", project::parse_unset),
    stage("$unwind", unwind::parse),
    search("$vectorSearch").first(),
];

fn refuse(spec: &Element<'_>, _scope: &Scope<'_>) -> Result<Parsed> {
    Err(err!(NotImplemented, "{} is not implemented", spec.name()))
}

/// Errors: SearchNotEnabled, as by a MongoDB without a search process.
fn refuse_search(spec: &Element<'_>, _: &Scope<'_>) -> Result<Parsed> {
    let what = match spec.name() {
        "$listSearchIndexes" => "Atlas Search Database Commands and the $listSearchIndexes aggregation stage",
        _ => "$search and $vectorSearch aggregation stages",
    };
    Err(err!(
        SearchNotEnabled,
        "Using {what} requires additional configuration. Please connect to Atlas or an AtlasCLI local deployment \
         to enable. For more information on how to connect, see \
         https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs"
    ))
}

/// The stage with this name.
///
/// Errors: 40324 where MongoDB has none.
pub(crate) fn find(name: &str) -> Result<&'static Entry> {
    STAGES
        .binary_search_by_key(&name, |entry| entry.name)
        .ok()
        .and_then(|at| STAGES.get(at))
        .ok_or_else(|| err!(40324, "Unrecognized pipeline stage name: '{name}'"))
}

/// A stage's name and whether it is built or refused.
#[derive(Clone, Copy, Debug)]
pub struct StageName {
    /// The name, `$` included.
    pub name: &'static str,
    /// False where the stage is refused whatever it is given.
    pub implemented: bool,
}

/// All stages, sorted by name.
pub fn stages() -> impl Iterator<Item = StageName> {
    STAGES.iter().map(|entry| StageName { name: entry.name, implemented: entry.implemented })
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
        fails("[{$listSessions: {}}]", 238, "$listSessions is not implemented");
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

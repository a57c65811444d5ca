//! Metadata (`$meta`) in a pipeline.
//!
//! Rows carry metadata from their source through the stages. This module checks whether a source gives the metadata
//! that a pipeline asks for.

use super::Pipeline;
use super::operator::Kind;
use crate::matcher::unparsed::has_text;
use crate::{Context, MetaKind};
use base::{Result, err};

impl Pipeline {
    /// Checks the metadata that stages request. Errors: 40218 for metadata of a search if the first stage is not this
    /// search.
    pub fn check_metadata(&self, context: &Context) -> Result<()> {
        self.check_metadata_behind(self, context)
    }

    /// Runs [`check_metadata`](Self::check_metadata) for a pipeline after another: the pipeline of a view.
    pub fn check_metadata_behind(&self, front: &Pipeline, context: &Context) -> Result<()> {
        for kind in MetaKind::SEARCHED {
            let asked = || self.steps.iter().any(|step| kind.is_referenced_in(step.spec.view()));
            if context.metadata.requires(kind) && !front.searches(kind) && asked() {
                return Err(kind.unavailable());
            }
        }
        Ok(())
    }

    /// Refuses `$text` for an operation without a text index; `reason` may be empty.
    ///
    /// Errors: IndexNotFound if the first stage contains `$text`.
    pub fn refuse_text(&self, reason: &dyn std::fmt::Display) -> Result<()> {
        match self.searches(MetaKind::TextScore) {
            true => Err(err!(IndexNotFound, "text index required for $text query{reason}")),
            false => Ok(()),
        }
    }

    /// Whether the first stage is a search that provides this kind.
    fn searches(&self, kind: MetaKind) -> bool {
        let Some(first) = self.steps.first() else { return false };
        match kind {
            MetaKind::GeoNearDistance | MetaKind::GeoNearPoint => {
                matches!(first.operator.kind(), Kind::GeoNear(_))
            }
            MetaKind::TextScore => match first.operator.kind() {
                Kind::Match(stage) => has_text(stage.filter().view()),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether a stage requests the sort key of unsorted documents, which MongoDB refuses to plan. `$group` may request
    /// it and finds none.
    pub fn asks_for_unsorted_key(&self) -> bool {
        for step in &self.steps {
            if step.definition.creates_documents || matches!(step.operator.kind(), Kind::Sort(_)) {
                return false;
            }
            if MetaKind::SortKey.is_referenced_in(step.spec.view()) {
                return true;
            }
        }
        false
    }
}

/// Returns a test source. Each document has its number as record id, and half of it as text score.
#[cfg(test)]
pub(crate) fn numbered(documents: Vec<base::bson::DocumentBuf>) -> super::Stream {
    super::from_iter(documents.into_iter().zip(1u32..).map(|(document, number)| {
        let metadata =
            crate::DocumentMetadata { text_score: Some(f64::from(number) / 2.0), ..Default::default() };
        let row = crate::Row::stored(u64::from(number), document);
        Ok(crate::Row { metadata: Some(Box::new(metadata)), ..row })
    }))
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{Run, gives};

    #[test]
    fn a_sort_gives_each_document_its_key() {
        gives(
            "[{_id: 1, a: [3, 1], b: 'x'}, {_id: 2, a: 2}, {_id: 3}]",
            "[{$unwind: {path: '$c', preserveNullAndEmptyArrays: true}}, {$sort: {a: -1, b: 1}},
              {$project: {k: {$meta: 'sortKey'}}}]",
            "[{_id: 1, k: [3, 'x']}, {_id: 2, k: [2, null]}, {_id: 3, k: [null, null]}]",
        );
        gives(
            "[{a: 2}, {a: 1}]",
            "[{$sort: {a: 1}}, {$match: {a: {$gt: 0}}}, {$addFields: {k: {$meta: 'sortKey'}}}, {$limit: 1}]",
            "[{a: 1, k: [1]}]",
        );
    }

    #[test]
    fn metadata_can_be_sorted_by() {
        gives(
            "[{a: 1}, {a: 2}, {a: 1}]",
            "[{$sort: {score: {$meta: 'textScore'}}}, {$limit: 2},
              {$project: {r: {$meta: 'recordId'}, k: {$meta: 'sortKey'}}}]",
            "[{r: NumberLong(3), k: [1.5]}, {r: NumberLong(2), k: [1.0]}]",
        );
        gives(
            "[{a: 1}, {a: 2}, {a: 1}]",
            "[{$sort: {a: 1, score: {$meta: 'textScore'}}}, {$project: {k: {$meta: 'sortKey'}}}]",
            "[{k: [1, 1.5]}, {k: [1, 0.5]}, {k: [2, 1.0]}]",
        );
        gives(
            "[{a: 1}, {a: 2}, {a: 1}]",
            "[{$group: {_id: '$a', best: {$top: {sortBy: {s: {$meta: 'textScore'}}, output: {$meta: 'recordId'}}}}},
              {$sort: {_id: 1}}]",
            "[{_id: 1, best: NumberLong(3)}, {_id: 2, best: NumberLong(2)}]",
        );
    }

    #[test]
    fn new_documents_have_none() {
        let pipeline = "[{$sort: {a: 1}}, {$group: {_id: '$a', k: {$push: {$meta: 'sortKey'}}}},
            {$sort: {_id: 1}}, {$group: {_id: null, all: {$push: '$$ROOT'}}},
            {$addFields: {s: {$meta: 'sortKey'}, r: {$meta: 'recordId'}, v: {$meta: 'randVal'}}}]";
        let grouped = "[{_id: null, all: [{_id: 1, k: [[1]]}, {_id: 2, k: [[2]]}]}]";
        gives("[{a: 2}, {a: 1}]", pipeline, grouped);
        gives(
            "[{a: 1}, {a: 3}]",
            "[{$densify: {field: 'a', range: {step: 1, bounds: 'full'}}}, {$addFields: {r: {$meta: 'recordId'}}}]",
            "[{a: 1, r: NumberLong(1)}, {a: 2}, {a: 3, r: NumberLong(2)}]",
        );
        gives(
            "[{a: 1}, {a: 3}]",
            "[{$bucketAuto: {groupBy: '$a', buckets: 2, output: {r: {$push: {$meta: 'recordId'}}}}},
              {$project: {_id: 0, r: 1, own: {$meta: 'recordId'}}}]",
            "[{r: [NumberLong(1)]}, {r: [NumberLong(2)]}]",
        );
    }

    /// Returns documents with ids, each with its number as record id.
    fn documents(count: usize) -> String {
        let all: String =
            (1..=count).map(|number| format!("{{_id: {number}, a: {}}},", number * 7 % 11)).collect();
        format!("[{all}]")
    }

    #[test]
    fn stages_that_hold_documents_back_keep_their_metadata() {
        let mismatch =
            "{$match: {$expr: {$or: [{$ne: ['$r', '$_id']}, {$ne: ['$s', {$divide: ['$_id', 2]}]}]}}}";
        let stages = [
            "{$sort: {a: 1}}",
            "{$sample: {size: 300}}",
            "{$setWindowFields: {partitionBy: '$a', sortBy: {_id: -1}, output: {n: {$count: {}}}}}",
            "{$densify: {field: 'a', range: {step: 1, bounds: [0, 5]}}}, {$match: {_id: {$gt: 0}}}",
            "{$fill: {sortBy: {_id: 1}, output: {b: {method: 'locf'}}}}",
            "{$unwind: '$a'}",
            "{$lookup: {from: 'f', localField: 'a', foreignField: 'a', as: 'f'}}",
            "{$lookup: {from: 'f', pipeline: [{$sort: {_id: -1}}], as: 'f'}}, {$unwind: '$f'}",
            "{$graphLookup: {from: 'f', startWith: 1, connectFromField: 'a', connectToField: '_id', as: 'g'}}",
            "{$unionWith: {coll: 'f', pipeline: [{$match: {none: 1}}]}}",
        ];
        for stage in stages {
            let asked = "{$addFields: {r: {$meta: 'recordId'}, s: {$meta: 'textScore'}}}";
            let run = |then: &str| {
                let pipeline = format!("[{stage}, {asked}, {then}, {{$count: 'n'}}]");
                Run::new(&documents(200), &pipeline).with("f", &documents(3))
            };
            run(mismatch).gives("[]");
            run(mismatch).memory(16_000).gives("[]");
            assert_eq!(run("{$match: {}}").result().unwrap().len(), 1, "{stage} gives nothing");
        }
    }

    #[test]
    fn facets_and_windows_see_metadata() {
        let facet =
            "[{$facet: {a: [{$match: {_id: {$gt: 198}}}, {$project: {_id: 0, r: {$meta: 'recordId'}}}],
            b: [{$sort: {s: {$meta: 'textScore'}}}, {$limit: 1}, {$project: {_id: 1}}]}}]";
        let seen = "[{a: [{r: NumberLong(199)}, {r: NumberLong(200)}], b: [{_id: 200}]}]";
        Run::new(&documents(200), facet).gives(seen);
        Run::new(&documents(200), facet).memory(16_000).gives(seen);
        let window = "[{$setWindowFields: {sortBy: {s: {$meta: 'textScore'}}, output: {
            n: {$sum: {$meta: 'recordId'}, window: {documents: ['unbounded', 'current']}}, k: {$rank: {}}}}},
            {$project: {n: 1, k: 1}}]";
        Run::new("[{_id: 1}, {_id: 2}]", window)
            .gives("[{_id: 2, n: NumberLong(2), k: 1}, {_id: 1, n: NumberLong(3), k: 2}]");
    }
}

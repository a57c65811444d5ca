//! How much memory blocking work may hold: MongoDB's server parameters of the same meaning.
//!
//! They are part of an operation's surroundings, read once when it starts, so that a change takes
//! effect with the next operation and never in the midst of one.

use base::{Result, err};

/// 100 MB as MongoDB counts them.
pub const DEFAULT_BYTES: usize = 100 * 1024 * 1024;

/// How large documents may become between stages, in bytes: what `$lookup` and `$facet` may gather,
/// and as much again as a client could be sent.
const DOCUMENT_BYTES: usize = DEFAULT_BYTES + 2 * base::bson::MAX_DOCUMENT_SIZE;

/// The limits of one operation, in bytes where not said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Whether blocking stages may use temporary files where the command doesn't say.
    pub allow_disk_use: bool,
    /// What `$bucketAuto` may hold before it spills.
    pub bucket_auto: usize,
    /// What one document may take between two stages.
    pub document: usize,
    /// Documents (not bytes) that one `$densify` may make.
    pub densify_documents: usize,
    /// What the expressions of one stage may compute for one document.
    pub expression: usize,
    /// What the input of a `$facet` may take in memory.
    pub facet_buffer: usize,
    /// What the result of a `$facet` may take, as long as it is not what a client is given.
    pub facet_output: usize,
    /// What the search of one `$graphLookup` may hold.
    pub graph_lookup: usize,
    /// What the groups of a `$group` may hold before they are spilled.
    pub group: usize,
    /// What the matches that `$lookup` puts into one document may take.
    pub lookup: usize,
    /// What `$addToSet` and `$setUnion` may hold for one group.
    pub add_to_set: usize,
    /// What `$push` and `$concatArrays` may hold for one group.
    pub push: usize,
    /// What `$firstN`, `$topN` and their kin, and percentiles, may hold for one group.
    pub several: usize,
    /// What a sort may hold before it spills.
    pub sort: usize,
    /// What a partition of `$setWindowFields` may hold before it spills.
    pub window: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { allow_disk_use: true, densify_documents: 500_000, ..Limits::all(DEFAULT_BYTES) }
    }
}

impl Limits {
    /// The same number of bytes for everything that is held back.
    pub fn all(bytes: usize) -> Limits {
        Limits {
            allow_disk_use: true,
            bucket_auto: bytes,
            document: DOCUMENT_BYTES,
            densify_documents: 500_000,
            expression: DEFAULT_BYTES,
            facet_buffer: bytes,
            facet_output: bytes,
            graph_lookup: bytes,
            group: bytes,
            lookup: bytes,
            add_to_set: bytes,
            push: bytes,
            several: bytes,
            sort: bytes,
            window: bytes,
        }
    }

    /// The same, where what can be spilled is held up to so many bytes at most.
    pub fn spilling_at_most(mut self, bytes: usize) -> Limits {
        let spilled = [
            &mut self.bucket_auto,
            &mut self.facet_buffer,
            &mut self.group,
            &mut self.sort,
            &mut self.window,
        ];
        spilled.into_iter().for_each(|limit| *limit = (*limit).min(bytes));
        self
    }

    /// Refuses to make a document that is far larger than any that could be stored or sent.
    ///
    /// Errors: BSONObjectTooLarge.
    #[inline]
    pub(crate) fn check_document(&self, size: usize) -> Result<()> {
        if size > self.document {
            return Err(err!(
                BSONObjectTooLarge,
                "BSONObj size: {size} ({size:#X}) is invalid. Size must be between 0 and 16793600(16MB)"
            ));
        }
        Ok(())
    }

    /// Sets the limit that a server parameter names; whether there is one.
    pub fn set(&mut self, parameter: &str, bytes: usize) -> bool {
        let limit = match parameter {
            "internalDocumentSourceBucketAutoMaxMemoryBytes" => &mut self.bucket_auto,
            "internalDocumentSourceGraphLookupMaxMemoryBytes" => &mut self.graph_lookup,
            "internalDocumentSourceGroupMaxMemoryBytes" => &mut self.group,
            "internalDocumentSourceSetWindowFieldsMaxMemoryBytes" => &mut self.window,
            "internalLookupStageIntermediateDocumentMaxSizeBytes" => &mut self.lookup,
            "internalQueryFacetBufferSizeBytes" => &mut self.facet_buffer,
            "internalQueryFacetMaxOutputDocSizeBytes" => &mut self.facet_output,
            "internalQueryMaxAddToSetBytes" => &mut self.add_to_set,
            "internalQueryMaxAllowedDensifyDocs" => &mut self.densify_documents,
            "internalQueryMaxBlockingSortMemoryUsageBytes" => &mut self.sort,
            "internalQueryMaxNAccumulatorBytes" => &mut self.several,
            "internalQueryMaxPushBytes" => &mut self.push,
            _ => return false,
        };
        *limit = bytes;
        true
    }
}

//! Memory limits of blocking work: the equivalents of MongoDB's server parameters.
//!
//! An operation reads them once at its start. A change therefore applies to the next operation and never to a running
//! one.

use base::{Result, bail};

/// 100 MB as MongoDB counts them.
pub const DEFAULT_BYTES: usize = 100 * 1024 * 1024;

/// Maximum size of a document between stages, in bytes: the limit of `$lookup` and `$facet`, plus twice the maximum
/// document size.
const DOCUMENT_BYTES: usize = DEFAULT_BYTES + 2 * base::bson::MAX_DOCUMENT_SIZE;

/// The limits of one operation, in bytes unless noted otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Whether blocking stages may use temporary files by default.
    pub allow_disk_use: bool,
    /// Memory of `$bucketAuto` before it spills.
    pub bucket_auto: usize,
    /// Size of a document between two stages.
    pub document: usize,
    /// Number of documents (not bytes) that one `$densify` may create.
    pub densify_documents: usize,
    /// Memory of one stage's expressions for one document.
    pub expression: usize,
    /// Memory for the input of a `$facet`.
    pub facet_buffer: usize,
    /// Size of the result of a `$facet`, unless it is sent to the client.
    pub facet_output: usize,
    /// Memory of one `$graphLookup`.
    pub graph_lookup: usize,
    /// Memory for the groups of a `$group` before they spill.
    pub group: usize,
    /// Memory of the hash table of a `$lookup` without an index. A larger collection is read for each document.
    pub hash_lookup: usize,
    /// Size of the matches that `$lookup` adds to one document.
    pub lookup: usize,
    /// Memory of `$addToSet` and `$setUnion` for one group.
    pub add_to_set: usize,
    /// Memory of `$push` and `$concatArrays` for one group.
    pub push: usize,
    /// Memory of `$firstN`, `$topN`, similar accumulators and percentiles for one group.
    pub several: usize,
    /// Memory of a sort before it spills.
    pub sort: usize,
    /// Memory of a partition of `$setWindowFields` before it spills.
    pub window: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { allow_disk_use: true, densify_documents: 500_000, ..Limits::all(DEFAULT_BYTES) }
    }
}

impl Limits {
    /// Sets all limits to `bytes`.
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
            hash_lookup: bytes,
            lookup: bytes,
            add_to_set: bytes,
            push: bytes,
            several: bytes,
            sort: bytes,
            window: bytes,
        }
    }

    /// Lowers the limits of stages that can spill to at most `bytes`.
    pub fn spilling_at_most(mut self, bytes: usize) -> Limits {
        let spilled = [
            &mut self.bucket_auto,
            &mut self.facet_buffer,
            &mut self.group,
            &mut self.hash_lookup,
            &mut self.sort,
            &mut self.window,
        ];
        spilled.into_iter().for_each(|limit| *limit = (*limit).min(bytes));
        self
    }

    /// Refuses a document far larger than any limit of storage or replies.
    ///
    /// Errors: BSONObjectTooLarge.
    #[inline]
    pub(crate) fn check_document(&self, size: usize) -> Result<()> {
        if size > self.document {
            bail!(
                BSONObjectTooLarge,
                "BSONObj size: {size} ({size:#X}) is invalid. Size must be between 0 and 16793600(16MB)"
            );
        }
        Ok(())
    }

    /// Sets the limit of a server parameter; returns whether the parameter exists.
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

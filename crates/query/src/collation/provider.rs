//! ICU4X's compiled rules, with one bit set by the collation document.
//!
//! `backwards` is an option of MongoDB's collations. ICU4X takes it only from the locale's data (Canadian French has
//! it). The data are therefore passed to ICU4X with this bit changed.

use icu_collator::provider::*;
use icu_normalizer::provider::{NormalizerNfdDataV1, NormalizerNfdTablesV1};
use icu_provider::{DataError, DataPayload, DataProvider, DataRequest, DataResponse};

/// The bit of [`CollationMetadata`] for comparing the secondary level backwards.
const BACKWARDS: u32 = 1 << 7;

/// The compiled rules.
pub(super) struct Rules {
    /// Whether accents compare from the end of the string.
    pub(super) backwards: bool,
}

impl DataProvider<CollationMetadataV1> for Rules {
    fn load(&self, request: DataRequest<'_>) -> Result<DataResponse<CollationMetadataV1>, DataError> {
        let mut response: DataResponse<CollationMetadataV1> = Baked.load(request)?;
        let others = response.payload.get().bits & !BACKWARDS;
        let bits = if self.backwards { others | BACKWARDS } else { others };
        response.payload = DataPayload::from_owned(CollationMetadata { bits });
        Ok(response)
    }
}

macro_rules! as_compiled {
    ($($baked:path => $($marker:ty),+;)+) => {$($(
        impl DataProvider<$marker> for Rules {
            fn load(&self, request: DataRequest<'_>) -> Result<DataResponse<$marker>, DataError> {
                $baked.load(request)
            }
        }
    )+)+};
}

as_compiled! {
    Baked => CollationSpecialPrimariesV1, CollationRootV1, CollationTailoringV1, CollationDiacriticsV1,
        CollationJamoV1, CollationReorderingV1;
    icu_normalizer::provider::Baked => NormalizerNfdDataV1, NormalizerNfdTablesV1;
}

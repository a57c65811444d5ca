//! Reading the indexed values back from a key, for covered plans and for error messages.

use super::{IndexSpec, KeyKind};
use base::Result;
use base::bson::ValueBuf;

impl IndexSpec {
    /// The direction of each part, as key strings take it.
    pub fn ascending(&self) -> Vec<bool> {
        self.parts.iter().map(|part| part.kind != KeyKind::Descending).collect()
    }

    /// The values of a key, one for each part (of hashed parts, the hash).
    ///
    /// Errors: the key is broken.
    pub fn decode(&self, key_string: &[u8], type_bits: &[u8]) -> Result<Vec<ValueBuf>> {
        base::key_string::decode(key_string, type_bits, &self.ascending())
    }
}

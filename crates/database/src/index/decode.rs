//! Reading the indexed values back from a key, for covered plans and for error messages.

use super::{IndexSpec, KeyKind};
use base::Result;
use base::bson::ValueBuf;
use base::key_string::Decoder;

impl IndexSpec {
    /// The direction of each part, as key strings take it.
    pub fn ascending(&self) -> Vec<bool> {
        self.parts.iter().map(|part| part.kind != KeyKind::Descending).collect()
    }

    /// The values of a key, one for each part (of hashed parts, the hash; of strings under a
    /// collation, the bytes they are ordered by as text).
    ///
    /// Errors: the key is broken.
    pub fn decode(&self, key_string: &[u8], type_bits: &[u8]) -> Result<Vec<ValueBuf>> {
        if self.collation.is_simple() {
            return base::key_string::decode(key_string, type_bits, &self.ascending());
        }
        let mut decoder = Decoder::new(key_string, type_bits).collated();
        self.ascending().iter().map(|ascending| decoder.next(*ascending)).collect()
    }
}

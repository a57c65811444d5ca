//! `$planCacheStats`: the cached plans of the collection.

use super::external::{External, check_flags, options, refuse_sharded};
use base::bson::Element;
use base::{ErrorCode, Result};

/// Parses the stage. Errors: FailedToParse unless the options are a document; the errors of flags.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    let options = options(spec, ErrorCode::FailedToParse)?;
    check_flags(spec.name(), options, &["allHosts"])?;
    refuse_sharded(spec.name(), options, "allHosts")?;
    Ok(External::PlanCacheStats)
}

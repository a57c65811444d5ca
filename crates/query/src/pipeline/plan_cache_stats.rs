//! `$planCacheStats`: the plans that are kept for the collection.

use super::external::{External, check_flags, options};
use base::bson::Element;
use base::{ErrorCode, Result};

/// Errors: FailedToParse unless the options are a document; those of flags.
pub(crate) fn parse(spec: &Element<'_>) -> Result<External> {
    check_flags(spec.name(), options(spec, ErrorCode::FailedToParse)?, &["allHosts"])?;
    Ok(External::PlanCacheStats)
}

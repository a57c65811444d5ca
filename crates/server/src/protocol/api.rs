//! The API parameters of a command: `apiVersion`, `apiStrict` and `apiDeprecationErrors`.

use base::{Result, err};
use std::fmt::{self, Display, Formatter};

/// API parameters, as sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct ApiParameters<'a> {
    pub(crate) version: Option<&'a str>,
    pub(crate) strict: Option<bool>,
    pub(crate) deprecation_errors: Option<bool>,
}

impl ApiParameters<'_> {
    /// Returns the parameters if a command of this name conforms to them.
    ///
    /// Errors: 4886600, APIVersionError, APIStrictError.
    pub(crate) fn check(self, command: &str, in_stable_api: bool) -> Result<ApiParameters<'static>> {
        let ApiParameters { version, strict, deprecation_errors } = self;
        match version {
            None if strict.is_some() || deprecation_errors.is_some() => Err(err!(
                4886600,
                "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion"
            )),
            Some(version) if version != "1" => Err(err!(APIVersionError, "API version must be \"1\"")),
            _ if self.is_strict() && !in_stable_api => Err(err!(
                APIStrictError,
                "Provided apiStrict:true, but the command {command} is not in API Version 1. Information on supported \
                 commands and migrations in API Version 1 can be found at \
                 https://dochub.mongodb.org/core/manual-versioned-api"
            )),
            _ => Ok(ApiParameters { version: version.map(|_| "1"), strict, deprecation_errors }),
        }
    }

    /// Returns true if only the stable API is allowed.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict == Some(true)
    }
}

impl Display for ApiParameters<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Some(version) = self.version else { return out.write_str("{}") };
        write!(out, "{{ apiVersion: \"{version}\"")?;
        for (name, value) in [("apiStrict", self.strict), ("apiDeprecationErrors", self.deprecation_errors)] {
            if let Some(value) = value {
                write!(out, ", {name}: {value}")?;
            }
        }
        out.write_str(" }")
    }
}

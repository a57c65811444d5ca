//! The MongoDB version that a server follows.

use crate::{Result, err};

/// Value of `--compatible-with`: the version in `buildInfo`, `hello` and `featureCompatibilityVersion`, and the rules
/// that differ between versions. Errors and their texts are otherwise MongoDB 8.2's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompatibleWith {
    /// MongoDB 8.0.
    V8_0,
    /// MongoDB 8.2.
    #[default]
    V8_2,
    /// MongoDB 9.0.
    V9_0,
}

impl CompatibleWith {
    /// Returns `buildInfo.version`, as clients compare it.
    pub fn version(self) -> &'static str {
        match self {
            CompatibleWith::V8_0 => "8.0.0",
            CompatibleWith::V8_2 => "8.2.0",
            CompatibleWith::V9_0 => "9.0.0",
        }
    }

    /// Returns `buildInfo.versionArray`.
    pub fn version_array(self) -> [i32; 4] {
        match self {
            CompatibleWith::V8_0 => [8, 0, 0, 0],
            CompatibleWith::V8_2 => [8, 2, 0, 0],
            CompatibleWith::V9_0 => [9, 0, 0, 0],
        }
    }

    /// Returns the newest version of the wire protocol: `hello.maxWireVersion`.
    pub fn wire_version(self) -> i32 {
        match self {
            CompatibleWith::V8_0 => 25,
            CompatibleWith::V8_2 => 27,
            CompatibleWith::V9_0 => 29,
        }
    }

    /// Returns the values of `featureCompatibilityVersion`, the version's own last.
    pub fn feature_versions(self) -> &'static [&'static str] {
        match self {
            CompatibleWith::V8_0 => &["8.0"],
            CompatibleWith::V8_2 => &["8.0", "8.2"],
            CompatibleWith::V9_0 => &["8.0", "8.3", "9.0"],
        }
    }

    /// Errors: 4926900 for an unknown value of `featureCompatibilityVersion`.
    pub fn check_feature_version(self, version: &str) -> Result<()> {
        let known = self.feature_versions();
        match known.contains(&version) {
            true => Ok(()),
            false => Err(err!(
                4926900,
                "Invalid feature compatibility version value '{version}'; expected '{}'",
                known.join("' or '")
            )),
        }
    }
}

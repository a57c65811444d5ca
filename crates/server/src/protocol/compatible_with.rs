//! MongoDB version that the server reports.

/// Value of `--compatible-with`: the version in `buildInfo`, `hello` and
/// `featureCompatibilityVersion`. Errors and their texts are always MongoDB 8.2's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompatibleWith {
    /// MongoDB 8.0.
    V8_0,
    /// MongoDB 8.2.
    #[default]
    V8_2,
}

impl CompatibleWith {
    /// Returns `buildInfo.version`, as clients compare it.
    pub fn version(self) -> &'static str {
        match self {
            CompatibleWith::V8_0 => "8.0.0",
            CompatibleWith::V8_2 => "8.2.0",
        }
    }

    /// Returns `buildInfo.versionArray`.
    pub(crate) fn version_array(self) -> [i32; 4] {
        match self {
            CompatibleWith::V8_0 => [8, 0, 0, 0],
            CompatibleWith::V8_2 => [8, 2, 0, 0],
        }
    }

    /// Returns the newest version of the wire protocol: `hello.maxWireVersion`.
    pub(crate) fn wire_version(self) -> i32 {
        match self {
            CompatibleWith::V8_0 => 25,
            CompatibleWith::V8_2 => 27,
        }
    }

    /// Returns `featureCompatibilityVersion`.
    pub(crate) fn feature_version(self) -> &'static str {
        match self {
            CompatibleWith::V8_0 => "8.0",
            CompatibleWith::V8_2 => "8.2",
        }
    }
}

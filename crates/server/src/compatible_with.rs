//! The MongoDB version that the server presents itself as.

/// What `--compatible-with` chooses: what `buildInfo`, `hello` and `featureCompatibilityVersion` say. Errors and their
/// texts are those of 8.2 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompatibleWith {
    /// MongoDB 8.0.
    V8_0,
    /// MongoDB 8.2.
    #[default]
    V8_2,
}

impl CompatibleWith {
    /// `buildInfo.version`, as clients compare it.
    pub fn version(self) -> &'static str {
        match self {
            CompatibleWith::V8_0 => "8.0.0",
            CompatibleWith::V8_2 => "8.2.0",
        }
    }

    /// `buildInfo.versionArray`.
    pub(crate) fn version_array(self) -> [i32; 4] {
        match self {
            CompatibleWith::V8_0 => [8, 0, 0, 0],
            CompatibleWith::V8_2 => [8, 2, 0, 0],
        }
    }

    /// The newest version of the wire protocol: `hello.maxWireVersion`.
    pub(crate) fn wire_version(self) -> i32 {
        match self {
            CompatibleWith::V8_0 => 25,
            CompatibleWith::V8_2 => 27,
        }
    }

    /// `featureCompatibilityVersion`.
    pub(crate) fn feature_version(self) -> &'static str {
        match self {
            CompatibleWith::V8_0 => "8.0",
            CompatibleWith::V8_2 => "8.2",
        }
    }
}

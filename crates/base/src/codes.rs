//! MongoDB's table of error codes: numbers and names.

macro_rules! codes {
    ($($name:ident = $number:literal,)+) => {
        /// An error code: one of MongoDB's named ones, or the number of an unnamed assertion.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum ErrorCode {
            $($name,)+
            /// An assertion that MongoDB numbers but doesn't name.
            Location(i32),
        }

        /// The named codes in the order of their numbers.
        const TABLE: &[(i32, &str, ErrorCode)] = &[$(($number, stringify!($name), ErrorCode::$name),)+];

        impl ErrorCode {
            /// The number on the wire.
            pub fn number(self) -> i32 {
                match self {
                    $(ErrorCode::$name => $number,)+
                    ErrorCode::Location(number) => number,
                }
            }
        }
    };
}

codes! {
    InternalError = 1,
    BadValue = 2,
    NoSuchKey = 4,
    GraphContainsCycle = 5,
    HostUnreachable = 6,
    HostNotFound = 7,
    UnknownError = 8,
    FailedToParse = 9,
    CannotMutateObject = 10,
    UserNotFound = 11,
    UnsupportedFormat = 12,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    CannotReuseObject = 19,
    IllegalOperation = 20,
    EmptyArrayOperation = 21,
    InvalidBSON = 22,
    AlreadyInitialized = 23,
    LockTimeout = 24,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    PathNotViable = 28,
    NonExistentPath = 29,
    InvalidPath = 30,
    RoleNotFound = 31,
    CannotBackfillArray = 34,
    RemoteChangeDetected = 36,
    InvalidRoleModification = 37,
    ConflictingUpdateOperators = 40,
    CursorNotFound = 43,
    LockBusy = 46,
    NamespaceExists = 48,
    MaxTimeMSExpired = 50,
    UserDataInconsistent = 51,
    DollarPrefixedFieldName = 52,
    InvalidIdField = 53,
    NotSingleValueField = 54,
    InvalidDBRef = 55,
    EmptyFieldName = 56,
    DottedFieldName = 57,
    CommandNotFound = 59,
    ShardKeyNotFound = 61,
    OplogOperationUnsupported = 62,
    WriteConcernFailed = 64,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    IndexAlreadyExists = 68,
    AuthSchemaIncompatible = 69,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    IndexBuildAlreadyInProgress = 75,
    NoReplicationEnabled = 76,
    UnknownReplWriteConcern = 79,
    InitialSyncFailure = 81,
    IndexOptionsConflict = 85,
    IndexKeySpecsConflict = 86,
    CannotSplit = 87,
    NetworkTimeout = 89,
    CallbackCanceled = 90,
    ShutdownInProgress = 91,
    InvalidReplicaSetConfig = 93,
    NotYetInitialized = 94,
    NotSecondary = 95,
    OperationFailed = 96,
    UnsatisfiableWriteConcern = 100,
    OutdatedClient = 101,
    ViewDepthLimitExceeded = 107,
    WriteConflict = 112,
    CommandNotSupported = 115,
    ConflictingOperationInProgress = 117,
    DuplicateKeyId = 119,
    InitialSyncOplogSourceMissing = 120,
    DocumentValidationFailure = 121,
    NotAReplicaSet = 123,
    CommandFailed = 125,
    NotWritablePrimaryOrRecovering = 128,
    FailedToSatisfyReadPreference = 133,
    LinearizableReadConcernError = 135,
    CappedPositionLost = 136,
    IncompatibleElectionProtocol = 138,
    ExceededMemoryLimit = 146,
    ZLibError = 147,
    ReadConcernMajorityNotEnabled = 148,
    InvalidPipelineOperator = 152,
    DurationOverflow = 159,
    TooManyMatchingDocuments = 163,
    ViewPipelineMaxSizeExceeded = 165,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidPipelineOperatorOnView = 168,
    ClientMetadataAppNameTooLarge = 171,
    ClientMetadataDocumentTooLarge = 172,
    ClientMetadataCannotBeMutated = 173,
    LinearizableReadConcernErrorOnView = 174,
    QueryPlanKilled = 175,
    ClientMetadataMissingField = 180,
    CommandOnShardedViewNotSupportedOnMongod = 186,
    TooManyFilesOpen = 187,
    PrimarySteppedDown = 189,
    MasterSlaveConnectionFailure = 191,
    InvalidIndexSpecificationOption = 197,
    NetworkInterfaceExceededTimeLimit = 202,
    NoSuchSession = 206,
    KeyNotFound = 211,
    DuplicateSession = 213,
    IncompleteTransactionHistory = 217,
    TransactionTooOld = 225,
    RetryChangeStream = 234,
    CursorKilled = 237,
    NotImplemented = 238,
    JSInterpreterFailure = 240,
    ConversionFailure = 241,
    JSUncaughtException = 242,
    RequestAlreadyFulfilled = 245,
    SnapshotUnavailable = 246,
    ProducerConsumerQueueConsumed = 250,
    NoSuchTransaction = 251,
    TransactionCommitted = 256,
    TransactionTooLarge = 257,
    UnknownFeatureCompatibilityVersion = 259,
    InvalidResumeToken = 260,
    TooManyLogicalSessions = 261,
    ExceededTimeLimit = 262,
    OperationNotSupportedInTransaction = 263,
    IndexBuildAborted = 276,
    OperationCannotBeBatched = 278,
    SnapshotTooOld = 279,
    ChangeStreamFatalError = 280,
    ChangeStreamHistoryLost = 286,
    TransactionCoordinatorSteppingDown = 287,
    NoQueryExecutionPlans = 291,
    QueryExceededMemoryLimitNoDiskUseAllowed = 292,
    InvalidSeedList = 293,
    InvalidTopologyType = 294,
    APIVersionError = 303,
    APIStrictError = 323,
    CannotConvertIndexToUnique = 359,
    SocketException = 9001,
    CannotGrowDocumentInCappedNamespace = 10003,
    LegacyNotPrimary = 10058,
    NotWritablePrimary = 10107,
    BSONObjectTooLarge = 10334,
    DuplicateKey = 11000,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    DatabaseDifferCase = 13297,
    StaleConfig = 13388,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
    OutOfDiskSpace = 14031,
    KeyTooLong = 17280,
    ClientMarkedKilled = 46841,
}

impl ErrorCode {
    /// The code with this number, named where MongoDB names it.
    pub fn from_number(number: i32) -> ErrorCode {
        match TABLE.binary_search_by_key(&number, |row| row.0) {
            Ok(at) => TABLE[at].2,
            Err(_) => ErrorCode::Location(number),
        }
    }

    /// The name that goes into `codeName`: the table's, or `Location<number>`.
    pub fn name(self) -> String {
        match TABLE.binary_search_by_key(&self.number(), |row| row.0) {
            Ok(at) => TABLE[at].1.to_string(),
            Err(_) => format!("Location{}", self.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_reads_back() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (number, name, code) in TABLE {
            assert_eq!(ErrorCode::from_number(*number), *code);
            assert_eq!(code.name(), *name);
            assert_eq!(code.number(), *number);
        }
        assert_eq!(ErrorCode::from_number(40415).name(), "Location40415");
    }
}

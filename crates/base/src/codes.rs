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
    RemoteValidationError = 25,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    PathNotViable = 28,
    NonExistentPath = 29,
    InvalidPath = 30,
    RoleNotFound = 31,
    CannotBackfillArray = 34,
    RemoteChangeDetected = 36,
    ConflictingUpdateOperators = 40,
    CursorNotFound = 43,
    UserDataInconsistent = 45,
    LockBusy = 46,
    NoMatchingDocument = 47,
    NamespaceExists = 48,
    InvalidRoleModification = 49,
    MaxTimeMSExpired = 50,
    ManualInterventionRequired = 51,
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
    MultipleErrorsOccurred = 65,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    IndexAlreadyExists = 68,
    AuthSchemaIncompatible = 69,
    ReplicaSetNotFound = 71,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    NodeNotFound = 74,
    NoReplicationEnabled = 76,
    UnknownReplWriteConcern = 79,
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
    NoProjectionFound = 97,
    DBPathInUse = 98,
    UnsatisfiableWriteConcern = 100,
    OutdatedClient = 101,
    LockFailed = 107,
    NotExactValueField = 111,
    WriteConflict = 112,
    InitialSyncFailure = 113,
    InitialSyncOplogSourceMissing = 114,
    CommandNotSupported = 115,
    DocTooLargeForCapped = 116,
    ConflictingOperationInProgress = 117,
    OplogStartMissing = 120,
    DocumentValidationFailure = 121,
    NotAReplicaSet = 123,
    IncompatibleElectionProtocol = 124,
    CommandFailed = 125,
    FailedToSatisfyReadPreference = 133,
    ReadConcernMajorityNotAvailableYet = 134,
    CappedPositionLost = 136,
    JSInterpreterFailure = 139,
    CursorInUse = 143,
    ExceededMemoryLimit = 146,
    ZLibError = 147,
    ReadConcernMajorityNotEnabled = 148,
    OperationCannotBeBatched = 151,
    DurationOverflow = 159,
    ViewDepthLimitExceeded = 165,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidPipelineOperator = 168,
    CommandOnShardedViewNotSupportedOnMongod = 169,
    TooManyMatchingDocuments = 170,
    CannotIndexParallelArrays = 171,
    QueryPlanKilled = 175,
    FileOpenFailed = 176,
    AmbiguousIndexKeyPattern = 181,
    InvalidViewDefinition = 182,
    ClientMetadataMissingField = 183,
    ClientMetadataAppNameTooLarge = 184,
    ClientMetadataDocumentTooLarge = 185,
    ClientMetadataCannotBeMutated = 186,
    LinearizableReadConcernError = 187,
    IncompatibleServerVersion = 188,
    PrimarySteppedDown = 189,
    MasterSlaveConnectionFailure = 190,
    FailPointEnabled = 192,
    ViewPipelineMaxSizeExceeded = 195,
    InvalidIndexSpecificationOption = 197,
    NetworkInterfaceExceededTimeLimit = 202,
    NoSuchSession = 206,
    InvalidUUID = 207,
    KeyNotFound = 211,
    DuplicateSession = 213,
    DatabaseDropPending = 215,
    IncompleteTransactionHistory = 217,
    UpdateOperationFailed = 218,
    IndexModified = 221,
    CloseChangeStream = 222,
    IllegalOpMsgFlag = 223,
    QueryFeatureNotAllowed = 224,
    TransactionTooOld = 225,
    AtomicityFailure = 226,
    CannotImplicitlyCreateCollection = 227,
    MaxSubPipelineDepthExceeded = 232,
    TooManyDocumentSequences = 233,
    RetryChangeStream = 234,
    InternalErrorNotSupported = 235,
    CursorKilled = 237,
    NotImplemented = 238,
    SnapshotTooOld = 239,
    ConversionFailure = 241,
    CannotCreateCollection = 242,
    BrokenPromise = 245,
    SnapshotUnavailable = 246,
    NoSuchTransaction = 251,
    TransactionCommitted = 256,
    TransactionTooLarge = 257,
    UnknownFeatureCompatibilityVersion = 258,
    InvalidResumeToken = 260,
    TooManyLogicalSessions = 261,
    ExceededTimeLimit = 262,
    OperationNotSupportedInTransaction = 263,
    TooManyFilesOpen = 264,
    FailPointSetFailed = 266,
    PreparedTransactionInProgress = 267,
    ProducerConsumerQueueConsumed = 274,
    IndexBuildAborted = 276,
    UnsatisfiableCommitQuorum = 278,
    ClientDisconnect = 279,
    ChangeStreamFatalError = 280,
    TransactionCoordinatorSteppingDown = 281,
    IndexBuildAlreadyInProgress = 285,
    ChangeStreamHistoryLost = 286,
    ChecksumMismatch = 288,
    TransactionExceededLifetimeLimitSeconds = 290,
    NoQueryExecutionPlans = 291,
    QueryExceededMemoryLimitNoDiskUseAllowed = 292,
    InvalidSeedList = 293,
    InvalidTopologyType = 294,
    DataCorruptionDetected = 301,
    ObjectIsBusy = 314,
    APIVersionError = 322,
    APIStrictError = 323,
    APIDeprecationError = 324,
    MechanismUnavailable = 334,
    ChangeStreamInvalidated = 346,
    APIMismatchError = 347,
    ChangeStreamTopologyChange = 348,
    ChangeStreamStartAfterInvalidate = 351,
    UnsupportedOpQueryCommand = 352,
    LoadBalancerSupportMismatch = 354,
    InvalidBSONType = 357,
    CannotConvertIndexToUnique = 359,
    CollectionUUIDMismatch = 361,
    TemporarilyUnavailable = 365,
    UserWritesBlocked = 371,
    ChangeStreamNotEnabled = 376,
    NonConformantBSON = 378,
    RequestAlreadyFulfilled = 380,
    DuplicateKeyId = 386,
    TransactionTooLargeForCache = 388,
    ReauthenticationRequired = 391,
    ResourceExhausted = 402,
    SocketException = 9001,
    CannotGrowDocumentInCappedNamespace = 10003,
    LegacyNotPrimary = 10058,
    NotWritablePrimary = 10107,
    BSONObjectTooLarge = 10334,
    DuplicateKey = 11000,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    BackgroundOperationInProgressForDatabase = 12586,
    BackgroundOperationInProgressForNamespace = 12587,
    MergeStageNoMatchingDocument = 13113,
    DatabaseDifferCase = 13297,
    StaleConfig = 13388,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
    OutOfDiskSpace = 14031,
    KeyTooLong = 17280,
    SearchNotEnabled = 31082,
    IDLDuplicateField = 40413,
    IDLFailedToParse = 40414,
    IDLUnknownField = 40415,
    ClientMarkedKilled = 46841,
    NotARetryableWriteCommand = 50768,
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
        assert_eq!(ErrorCode::from_number(40324).name(), "Location40324");
    }
}

//! The shapes in which errors reach a client, each built in one function; and error labels.
//!
//! A failed command, an element of `writeErrors`, a `writeConcernError`. Labels tell drivers
//! what they may retry; they are computed here from the code and what the command was.

use base::bson::{Builder, Document};
use base::{Error, ErrorCode};

/// What labels depend on besides the code.
#[derive(Clone, Copy, Default)]
pub(crate) struct LabelContext {
    /// The command is a retryable write: a write with a txnNumber, outside of transactions.
    pub(crate) retryable_write: bool,
    /// The command is a statement of a transaction, or ends one.
    pub(crate) in_transaction: bool,
    /// It ends one.
    pub(crate) ends_transaction: bool,
    /// Nothing was written by the time it failed.
    pub(crate) no_writes: bool,
    /// The command opens a change stream or reads on in one.
    pub(crate) change_stream: bool,
}

/// The codes after which a retryable write may be tried again.
fn is_retryable(code: ErrorCode) -> bool {
    use ErrorCode as C;
    matches!(
        code,
        C::HostUnreachable
            | C::HostNotFound
            | C::NetworkTimeout
            | C::ShutdownInProgress
            | C::ReadConcernMajorityNotAvailableYet
            | C::PrimarySteppedDown
            | C::ExceededTimeLimit
            | C::SocketException
            | C::NotWritablePrimary
            | C::InterruptedAtShutdown
            | C::InterruptedDueToReplStateChange
            | C::NotPrimaryNoSecondaryOk
            | C::NotPrimaryOrSecondary
    )
}

/// Whether the code says that this server isn't the primary (any more). Such errors tell the
/// topology's version, from which clients see whether they know better already.
pub(crate) fn is_not_primary(code: ErrorCode) -> bool {
    use ErrorCode as C;
    matches!(
        code,
        C::PrimarySteppedDown
            | C::NotWritablePrimary
            | C::InterruptedDueToReplStateChange
            | C::NotPrimaryNoSecondaryOk
            | C::NotPrimaryOrSecondary
    )
}

/// Whether a transaction that met this error may be run once more from its beginning. Ended by
/// commitTransaction or abortTransaction, it may be only where it is known not to have happened.
pub(crate) fn is_transient(code: ErrorCode, ends_transaction: bool, has_write_concern_error: bool) -> bool {
    use ErrorCode as C;
    match code {
        C::WriteConflict
        | C::LockTimeout
        | C::PreparedTransactionInProgress
        | C::SnapshotTooOld
        | C::SnapshotUnavailable => true,
        C::NoSuchTransaction => !(ends_transaction && has_write_concern_error),
        code => !ends_transaction && is_retryable(code),
    }
}

/// The labels that belong to a failed command with this code, or to a writeConcernError with that. Drivers
/// add UnknownTransactionCommitResult themselves.
pub(crate) fn labels(
    code: Option<ErrorCode>,
    write_concern_code: Option<ErrorCode>,
    context: LabelContext,
) -> &'static [&'static str] {
    let LabelContext { retryable_write, in_transaction, ends_transaction, no_writes, change_stream } =
        context;
    let is_transient = |code| is_transient(code, ends_transaction, write_concern_code.is_some());
    if in_transaction && code.is_some_and(is_transient) {
        return &["TransientTransactionError"];
    }
    let retryable = [code, write_concern_code].into_iter().flatten().any(is_retryable);
    if retryable && (retryable_write || in_transaction && ends_transaction) {
        // Who has tried before keeps the earlier error, which may have had effects.
        return match no_writes && retryable_write && code.is_some() {
            true => &["RetryableWriteError", "NoWritesPerformed"],
            false => &["RetryableWriteError"],
        };
    }
    match code {
        Some(ErrorCode::ChangeStreamFatalError | ErrorCode::ChangeStreamHistoryLost) => {
            &["NonResumableChangeStreamError"]
        }
        Some(code) if change_stream && is_resumable(code) => &["ResumableChangeStreamError"],
        _ => &[],
    }
}

/// Whether a change stream that met this error may be resumed.
fn is_resumable(code: ErrorCode) -> bool {
    use ErrorCode as C;
    is_retryable(code)
        || matches!(
            code,
            C::FailedToSatisfyReadPreference | C::RetryChangeStream | C::StaleConfig
        )
        // Routers' own: StaleShardVersion, StaleEpoch and StaleDbVersion.
        || matches!(code.number(), 63 | 150 | 249)
}

/// Appends `errorLabels` unless there are none.
pub(crate) fn append_labels<S: AsRef<str>>(reply: &mut Builder, labels: &[S]) {
    if labels.is_empty() {
        return;
    }
    reply.begin_array(c"errorLabels");
    for label in labels {
        reply.push(label.as_ref());
    }
    reply.end();
}

/// Writes a failed command into an empty reply.
pub(crate) fn failure<S: AsRef<str>>(reply: &mut Builder, error: &Error, labels: &[S]) {
    append_labels(reply, labels);
    let code = error.code();
    reply.append(c"ok", 0.0).append(c"errmsg", error.message());
    reply.append(c"code", code.number()).append(c"codeName", &code.name());
    reply.append_all(error.info().unwrap_or(Document::EMPTY));
}

/// Appends an element of the open array `writeErrors`. `index` is the statement's position.
pub(crate) fn write_error(errors: &mut Builder, index: i32, error: &Error) {
    errors.push_document();
    errors.append(c"index", index).append(c"code", error.code().number());
    errors.append_all(error.info().unwrap_or(Document::EMPTY));
    errors.append(c"errmsg", error.message()).end();
}

/// Appends `writeConcernError`: the write is applied, what the client asked for beyond isn't met.
pub(crate) fn write_concern_error(reply: &mut Builder, error: &Error) {
    reply.begin_document(c"writeConcernError");
    reply.append(c"code", error.code().number()).append(c"codeName", &error.code().name());
    reply.append(c"errmsg", error.message());
    if let Some(info) = error.info() {
        reply.append(c"errInfo", info);
    }
    reply.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::err;

    #[test]
    fn a_failed_command_carries_what_clients_read() {
        let mut info = Builder::new();
        info.begin_document(c"keyValue").append(c"a", 1).end();
        let error = err!(DuplicateKey, "E11000 …").with_info(info.finish());
        let mut reply = Builder::new();
        failure(&mut reply, &error, &["RetryableWriteError"]);
        let text = format!("{:?}", reply.finish());
        for part in
            ["\"ok\": Double(0.0)", "Int32(11000)", "\"DuplicateKey\"", "keyValue", "RetryableWriteError"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    const WRITE: LabelContext = LabelContext {
        retryable_write: true,
        in_transaction: false,
        ends_transaction: false,
        no_writes: false,
        change_stream: false,
    };
    const STATEMENT: LabelContext = LabelContext {
        retryable_write: false,
        in_transaction: true,
        ends_transaction: false,
        no_writes: false,
        change_stream: false,
    };
    const COMMIT: LabelContext = LabelContext { ends_transaction: true, ..STATEMENT };

    #[test]
    fn errors_are_labelled_by_what_may_be_sent_again() {
        use ErrorCode as C;
        let of = |code, context| labels(Some(code), None, context).first().copied().unwrap_or("");
        let plain = LabelContext::default();
        let (write, transient) = ("RetryableWriteError", "TransientTransactionError");
        for (code, outside, retried, statement, commit) in [
            (C::NotWritablePrimary, "", write, transient, write),
            (C::WriteConflict, "", "", transient, transient),
            (C::LockTimeout, "", "", transient, transient),
            (C::SnapshotUnavailable, "", "", transient, transient),
            (C::NoSuchTransaction, "", "", transient, transient),
            (C::TransactionCommitted, "", "", "", ""),
            (C::TransactionTooOld, "", "", "", ""),
            (C::DuplicateKey, "", "", "", ""),
            (C::Interrupted, "", "", "", ""),
        ] {
            let found = [plain, WRITE, STATEMENT, COMMIT].map(|context| of(code, context));
            assert_eq!(found, [outside, retried, statement, commit], "{code:?}");
        }
        assert_eq!(of(C::ChangeStreamHistoryLost, plain), "NonResumableChangeStreamError");
    }

    #[test]
    fn write_concern_errors_are_labelled_for_what_may_be_sent_again() {
        let of = |context| labels(None, Some(ErrorCode::PrimarySteppedDown), context);
        assert_eq!((of(WRITE), of(COMMIT)), (&["RetryableWriteError"][..], &["RetryableWriteError"][..]));
        assert!(of(STATEMENT).is_empty() && of(LabelContext::default()).is_empty());
        let timed_out = Some(ErrorCode::WriteConcernFailed);
        assert!(labels(Some(ErrorCode::NoSuchTransaction), timed_out, COMMIT).is_empty());
    }
}

//! Errors in replies, and error labels.
//!
//! An error appears as a failed command, an element of `writeErrors` or a `writeConcernError`. One
//! function builds each form. Labels state if a driver may retry. They follow from the code and the
//! command.

use base::bson::{Builder, Document};
use base::{Error, ErrorCode, Result, err};
use wire::header::MAX_MESSAGE_SIZE;

/// A reply: document, header and transmission.
pub(crate) struct Reply {
    /// Reply document. It is complete when the request is done.
    pub(crate) document: Builder,
    /// Size of the header in bytes. An error truncates the reply to it.
    pub(crate) header_size: usize,
    /// True if the reply may be compressed. Handshakes may not.
    pub(crate) compressible: bool,
    /// Topology version in this reply, if further replies follow.
    pub(crate) streams: Option<i64>,
}

impl Reply {
    /// Creates a reply with a header and an empty document.
    pub(crate) fn new(header: Vec<u8>) -> Reply {
        let header_size = header.len();
        Reply { document: Builder::with_buffer(header), header_size, compressible: true, streams: None }
    }

    /// Refuses a reply that no client reads, such as errors that repeat many large documents.
    ///
    /// Errors: BSONObjectTooLarge, with MongoDB's code, for a message over 48 MB. MongoDB refuses at 16 MB.
    pub(crate) fn check_size(&self) -> Result<()> {
        match self.document.len() {
            size if size > MAX_MESSAGE_SIZE => Err(err!(
                BSONObjectTooLarge,
                "BSON size limit hit while building Message. Size: {size} (0x{size:X}); maxSize: {MAX_MESSAGE_SIZE}"
            )),
            _ => Ok(()),
        }
    }

    /// Removes all bytes after the header.
    pub(crate) fn clear(&mut self) {
        let mut buffer = std::mem::take(&mut self.document).into_buffer();
        buffer.truncate(self.header_size);
        self.document = Builder::with_buffer(buffer);
    }
}

/// Properties of a command that determine its labels.
#[derive(Clone, Copy, Default)]
pub(crate) struct LabelContext {
    /// True for a retryable write: a write with a txnNumber outside of transactions.
    pub(crate) retryable_write: bool,
    /// True for a statement of a transaction, and for its end.
    pub(crate) in_transaction: bool,
    /// True if the command ends a transaction.
    pub(crate) ends_transaction: bool,
    /// True if the command failed before its first write.
    pub(crate) no_writes: bool,
    /// True if the command opens or reads a change stream.
    pub(crate) change_stream: bool,
}

/// Returns true if a retryable write may be retried after this code.
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

/// Returns true if the code means that this server is not the primary. Such errors have the
/// topology version, so that clients detect outdated errors.
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

/// Returns true if the whole transaction may be retried after this error. After commitTransaction
/// or abortTransaction this requires that the transaction has certainly not committed.
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

/// Returns the labels for a failed command with this code, or for a writeConcernError. Drivers add
/// UnknownTransactionCommitResult themselves.
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
        // A driver that has already tried once keeps the earlier error, which may have had effects.
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

/// Returns true if a change stream may resume after this error.
fn is_resumable(code: ErrorCode) -> bool {
    use ErrorCode as C;
    is_retryable(code)
        || matches!(
            code,
            C::FailedToSatisfyReadPreference | C::RetryChangeStream | C::StaleConfig
        )
        // Codes of routers: StaleShardVersion, StaleEpoch and StaleDbVersion.
        || matches!(code.number(), 63 | 150 | 249)
}

/// Appends `errorLabels` unless empty.
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

/// Writes a failed command to an empty reply.
pub(crate) fn failure<S: AsRef<str>>(reply: &mut Builder, error: &Error, labels: &[S]) {
    append_labels(reply, labels);
    let code = error.code();
    reply.append(c"ok", 0.0).append(c"errmsg", error.message());
    reply.append(c"code", code.number()).append(c"codeName", &code.name());
    reply.append_all(error.info().unwrap_or(Document::EMPTY));
}

/// Appends an element to the open array `writeErrors`. `index` is the statement's position.
pub(crate) fn write_error(errors: &mut Builder, index: i32, error: &Error) {
    errors.push_document();
    errors.append(c"index", index).append(c"code", error.code().number());
    errors.append_all(error.info().unwrap_or(Document::EMPTY));
    errors.append(c"errmsg", error.message()).end();
}

/// Appends `writeConcernError`: the write is applied, but its write concern is not satisfied.
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
    fn a_failed_command_has_the_fields_of_errors() {
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
    fn errors_are_labelled_by_retryability() {
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
    fn write_concern_errors_are_labelled_by_retryability() {
        let of = |context| labels(None, Some(ErrorCode::PrimarySteppedDown), context);
        assert_eq!((of(WRITE), of(COMMIT)), (&["RetryableWriteError"][..], &["RetryableWriteError"][..]));
        assert!(of(STATEMENT).is_empty() && of(LabelContext::default()).is_empty());
        let timed_out = Some(ErrorCode::WriteConcernFailed);
        assert!(labels(Some(ErrorCode::NoSuchTransaction), timed_out, COMMIT).is_empty());
    }
}

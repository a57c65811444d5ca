//! The shapes in which errors reach a client, each built in one function; and error labels.
//!
//! A failed command, an element of `writeErrors`, a `writeConcernError`. Labels tell drivers
//! what they may retry; they are computed here from the code and what the command was.

use crate::transaction::is_transient;
use base::bson::{Builder, Document};
use base::{Error, ErrorCode};

/// What labels depend on besides the code.
#[derive(Clone, Copy, Default)]
pub(crate) struct Retry {
    /// The command is a retryable write: a write with a txnNumber, or the end of a transaction.
    pub(crate) retryable_write: bool,
    /// The command is part of a transaction.
    pub(crate) transaction: bool,
    /// The command ends a transaction.
    pub(crate) ends_transaction: bool,
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

/// The labels that belong to an error with this code.
pub(crate) fn labels(code: ErrorCode, retry: Retry) -> &'static [&'static str] {
    if retry.transaction && is_transient(code, retry.ends_transaction) {
        return &["TransientTransactionError"];
    }
    if retry.retryable_write && is_retryable(code) { &["RetryableWriteError"] } else { &[] }
}

/// Appends `errorLabels` unless there are none.
pub(crate) fn append_labels<S: AsRef<str>>(reply: &mut Builder, labels: &[S]) {
    if labels.is_empty() {
        return;
    }
    reply.begin_array("errorLabels");
    for label in labels {
        reply.push(label.as_ref());
    }
    reply.end();
}

/// Writes a failed command into an empty reply.
pub(crate) fn failure<S: AsRef<str>>(reply: &mut Builder, error: &Error, labels: &[S]) {
    append_labels(reply, labels);
    let code = error.code();
    reply.append("ok", 0.0).append("errmsg", error.message());
    reply.append("code", code.number()).append("codeName", &code.name());
    reply.append_all(error.info().unwrap_or(Document::EMPTY));
}

/// Appends an element of the open array `writeErrors`. `index` is the statement's position.
pub(crate) fn write_error(errors: &mut Builder, index: i32, error: &Error) {
    errors.push_document();
    errors.append("index", index).append("code", error.code().number());
    errors.append_all(error.info().unwrap_or(Document::EMPTY));
    errors.append("errmsg", error.message()).end();
}

/// Appends `writeConcernError`: the write is applied, what the client asked for beyond isn't met.
pub(crate) fn write_concern_error(reply: &mut Builder, error: &Error) {
    reply.begin_document("writeConcernError");
    reply.append("code", error.code().number()).append("codeName", &error.code().name());
    reply.append("errmsg", error.message());
    if let Some(info) = error.info() {
        reply.append("errInfo", info);
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
        info.begin_document("keyValue").append("a", 1).end();
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

    #[test]
    fn only_retryable_writes_are_labelled() {
        let write = Retry { retryable_write: true, ..Retry::default() };
        assert_eq!(labels(ErrorCode::NotWritablePrimary, write), ["RetryableWriteError"]);
        assert!(labels(ErrorCode::NotWritablePrimary, Retry::default()).is_empty());
        assert!(labels(ErrorCode::DuplicateKey, write).is_empty());
    }
}

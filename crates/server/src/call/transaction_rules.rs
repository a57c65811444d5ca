//! Rules for commands with a transaction number: allowed commands, namespaces and concerns.

use crate::access::Command;
use crate::protocol::read_concern::{ReadConcern, RequestedReadConcern};
use base::{Result, bail, err};

/// Position of a command in its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The first statement.
    First,
    /// A later statement, or the end of the transaction.
    Further,
}

/// Transaction fields of a command, as sent.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Given {
    /// True if the command has a session.
    pub(crate) session: bool,
    /// `txnNumber`.
    pub(crate) number: Option<i64>,
    /// `autocommit`.
    pub(crate) autocommit: Option<bool>,
    /// `startTransaction`.
    pub(crate) start: Option<bool>,
}

impl Given {
    /// Returns the command's position in a transaction; `None` outside of transactions.
    ///
    /// Errors: InvalidOptions, IllegalOperation, NotARetryableWriteCommand,
    /// OperationNotSupportedInTransaction, with MongoDB's texts and order.
    pub(crate) fn part(&self, command: &Command, is_replica_set: bool) -> Result<Option<Part>> {
        let invalid = |message: &str| Err(err!(InvalidOptions, "{message}"));
        if self.number.is_some() {
            if !self.session {
                return invalid("Transaction number requires a session ID to also be specified");
            }
            if !is_replica_set {
                bail!(
                    IllegalOperation,
                    "Transaction numbers are only allowed on a replica set member or mongos"
                );
            }
        } else if self.autocommit.is_some() {
            return invalid("'autocommit' field requires a transaction number to also be specified");
        }
        match (self.autocommit, self.start) {
            (Some(true), _) => return invalid("Specifying autocommit=true is not allowed."),
            (None, Some(_)) => {
                return invalid("'startTransaction' field requires 'autocommit' field to also be specified");
            }
            (_, Some(false)) => return invalid("Specifying startTransaction=false is not allowed."),
            _ => {}
        }
        if self.autocommit.is_none() {
            return match self.number {
                Some(_) if !command.retryable_write => Err(err!(
                    NotARetryableWriteCommand,
                    "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                     autocommit:false was not provided, and {} is not a retryable write command.",
                    command.name
                )),
                _ => Ok(None),
            };
        }
        check_command(command)?;
        if self.start.is_none() {
            return Ok(Some(Part::Further));
        }
        let refused = match command.name {
            "killCursors" => "Cannot run killCursors as the first operation in a multi-document transaction.",
            "commitTransaction" => "Cannot start a transaction with a commit",
            "abortTransaction" => "Cannot start a transaction with an abort",
            _ => return Ok(Some(Part::First)),
        };
        Err(err!(OperationNotSupportedInTransaction, "{refused}"))
    }
}

/// Checks that the command is allowed in transactions.
///
/// Errors: OperationNotSupportedInTransaction.
fn check_command(command: &Command) -> Result<()> {
    match command.name {
        _ if command.in_transactions => Ok(()),
        "count" => Err(err!(
            OperationNotSupportedInTransaction,
            "Cannot run 'count' in a multi-document transaction. Please see \
             http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
        )),
        name => Err(err!(
            OperationNotSupportedInTransaction,
            "Cannot run '{name}' in a multi-document transaction."
        )),
    }
}

/// Checks that the namespace is allowed in transactions.
///
/// Errors: OperationNotSupportedInTransaction; 50791 for writes to system collections.
pub(crate) fn check_namespace(database: &str, collection: &str, writes: bool) -> Result<()> {
    let refused =
        |message: &str| Err(err!(OperationNotSupportedInTransaction, "{message} in a transaction."));
    match (database, collection) {
        ("local", _) => refused("Cannot run command against the 'local' database"),
        ("config", _) => refused("Cannot run command against the config database"),
        (_, "system.profile" | "system.views") => {
            refused(&format!("Cannot run command against the '{database}.{collection}' collection"))
        }
        _ if writes && collection.starts_with("system.") => Err(err!(
            50791,
            "Cannot write to system collection {database}.{collection} within a transaction."
        )),
        _ => Ok(()),
    }
}

/// Checks the concerns of a statement in a transaction.
///
/// Errors: InvalidOptions.
pub(crate) fn check_concerns(
    part: Part,
    command: &Command,
    read: &RequestedReadConcern,
    has_write_concern: bool,
) -> Result<()> {
    if has_write_concern && !command.ends_transactions() {
        bail!(InvalidOptions, "writeConcern is not allowed within a multi-statement transaction");
    }
    match (part, read.level) {
        (Part::Further, _) if read.is_given => {
            Err(err!(InvalidOptions, "Only the first command in a transaction may specify a readConcern"))
        }
        (Part::First, Some(ReadConcern::Available | ReadConcern::Linearizable)) => Err(err!(
            InvalidOptions,
            "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a \
             transaction"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the meaning of these fields, or the number of the error.
    fn part(
        name: &str,
        number: i64,
        autocommit: Option<bool>,
        start: Option<bool>,
    ) -> std::result::Result<Option<Part>, i32> {
        let given = Given { session: true, number: (number >= 0).then_some(number), autocommit, start };
        let command = crate::commands::table::find(name).unwrap();
        given.part(command, true).map_err(|error| error.code().number())
    }

    #[test]
    fn fields_belong_together() {
        let no = Some(false);
        assert_eq!(part("insert", 1, no, Some(true)), Ok(Some(Part::First)));
        assert_eq!(part("insert", 1, no, None), Ok(Some(Part::Further)));
        assert_eq!(part("insert", 1, None, None), Ok(None));
        assert_eq!(part("find", -1, None, None), Ok(None));
        assert_eq!(part("find", 1, None, None), Err(50768));
        for (number, autocommit, start) in [
            (-1, no, None),
            (-1, no, Some(true)),
            (-1, None, Some(true)),
            (1, Some(true), None),
            (1, None, Some(true)),
            (1, no, no),
        ] {
            assert_eq!(part("find", number, autocommit, start), Err(72), "{number} {autocommit:?} {start:?}");
        }
        let alone = Given { session: true, number: Some(1), autocommit: no, start: None };
        let find = crate::commands::table::find("find").unwrap();
        assert_eq!(alone.part(find, false).unwrap_err().code().number(), 20);
        assert_eq!(Given { session: false, ..alone }.part(find, true).unwrap_err().code().number(), 72);
    }

    #[test]
    fn commands_that_may_not_be_in_a_transaction() {
        for name in ["count", "drop", "explain", "listCollections", "ping", "collMod"] {
            assert_eq!(part(name, 1, Some(false), None), Err(263), "{name}");
        }
        for name in ["killCursors", "commitTransaction", "abortTransaction"] {
            assert_eq!(part(name, 1, Some(false), None), Ok(Some(Part::Further)));
            assert_eq!(part(name, 1, Some(false), Some(true)), Err(263), "{name}");
        }
        for (database, collection, writes, code) in [
            ("d", "c", true, 0),
            ("local", "c", false, 263),
            ("config", "c", false, 263),
            ("d", "system.views", false, 263),
            ("d", "system.js", false, 0),
            ("d", "system.js", true, 50791),
        ] {
            let result = check_namespace(database, collection, writes);
            assert_eq!(
                result.err().map_or(0, |error| error.code().number()),
                code,
                "{database}.{collection}"
            );
        }
    }

    #[test]
    fn concerns_belong_to_the_first_statement_and_the_last() {
        let check = |part, name: &str, level, writes| {
            let command = crate::commands::table::find(name).unwrap();
            let read = RequestedReadConcern { level, is_given: level.is_some(), at: None, after: None };
            check_concerns(part, command, &read, writes).is_ok()
        };
        assert!(check(Part::First, "insert", Some(ReadConcern::Snapshot), false));
        assert!(!check(Part::First, "insert", Some(ReadConcern::Linearizable), false));
        assert!(!check(Part::Further, "insert", Some(ReadConcern::Local), false));
        assert!(!check(Part::First, "insert", None, true));
        assert!(check(Part::Further, "commitTransaction", None, true));
        assert!(!check(Part::Further, "commitTransaction", Some(ReadConcern::Local), true));
    }
}

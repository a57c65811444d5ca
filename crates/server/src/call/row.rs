//! Row of the command table: a command and its handler.

use crate::access::{Command, Kind, Requirements};
use crate::call::{Call, HandlerStatus};
use base::{CompatibleWith, Result};

/// A handler: takes its declared fields, makes one call, and writes its reply.
pub(crate) type Handler = fn(&mut Call<'_>) -> Result<HandlerStatus>;

/// Row of the command table.
pub(crate) struct Row {
    pub(crate) command: Command,
    pub(crate) run: Handler,
}

/// Defines methods that set the flag of their name.
macro_rules! flags {
    ($(#[$doc:meta] $flag:ident)*) => {
        impl Row {
            $(#[$doc]
            pub(crate) const fn $flag(mut self) -> Row {
                self.command.$flag = true;
                self
            })*
        }
    };
}

impl Row {
    /// Creates the row of a command that reads documents or the catalog. The methods below add properties.
    pub(crate) const fn read(name: &'static str, run: Handler, requirements: Requirements) -> Row {
        Row::new(name, Kind::Read, run, requirements)
    }

    /// Creates the row of a command that changes documents or the catalog. It supports a write concern.
    pub(crate) const fn write(name: &'static str, run: Handler, requirements: Requirements) -> Row {
        Row::new(name, Kind::Write, run, requirements).takes_write_concern()
    }

    /// Creates the row of a command that concerns the server, a connection or a session.
    pub(crate) const fn admin(name: &'static str, run: Handler, requirements: Requirements) -> Row {
        Row::new(name, Kind::Admin, run, requirements)
    }

    const fn new(name: &'static str, kind: Kind, run: Handler, requirements: Requirements) -> Row {
        let command = Command {
            name,
            help: "",
            kind,
            requirements,
            admin_only: false,
            without_auth: false,
            without_auth_before: None,
            stable_api: false,
            takes_read_concern: false,
            takes_write_concern: false,
            in_transactions: false,
            retryable_write: false,
            restarts: false,
            has_secrets: false,
            continues_cursor: false,
            names_collection: true,
        };
        Row { command, run }
    }

    /// Describes the command in one sentence, for `listCommands`.
    pub(crate) const fn help(mut self, help: &'static str) -> Row {
        self.command.help = help;
        self
    }

    /// Restricts the command to `admin`. No collection of this database belongs to such a command.
    pub(crate) const fn admin_only(mut self) -> Row {
        self.command.admin_only = true;
        self.command.names_collection = false;
        self
    }

    /// Allows the command before authentication in versions before `version`.
    pub(crate) const fn without_auth_before(mut self, version: CompatibleWith) -> Row {
        self.command.without_auth_before = Some(version);
        self
    }

    /// Makes a write retryable with a transaction number, and allows it in transactions.
    pub(crate) const fn retryable_write(mut self) -> Row {
        self.command.retryable_write = true;
        self.in_transactions()
    }

    /// Marks the command's own field as the name of a user, of a database or of something else that is no collection.
    pub(crate) const fn without_collection(mut self) -> Row {
        self.command.names_collection = false;
        self
    }

    /// Refuses a write concern for a write.
    pub(crate) const fn without_write_concern(mut self) -> Row {
        self.command.takes_write_concern = false;
        self
    }
}

flags! {
    /// Allows the command before authentication.
    without_auth
    /// Adds the command to version 1 of the stable API.
    stable_api
    /// Allows read concerns other than local.
    takes_read_concern
    /// Allows the command in transactions.
    in_transactions
    /// Allows the handler to run again from its start while it has changed nothing, after a wait without a thread.
    restarts
    /// Marks the command as containing secrets, which are redacted.
    has_secrets
    /// Marks the command as one that continues a cursor.
    continues_cursor
    /// Allows a write concern for a command that is not a write.
    takes_write_concern
}

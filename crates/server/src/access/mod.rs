//! Commands without their handlers, the privileges that they need, and the privileges that roles grant.
//!
//! A role grants privileges. A privilege allows actions on the resources of a pattern. The
//! [`Identity`] of a connection holds the union of the user's privileges ([`Privileges`]). Each [`Command`]
//! declares its needs ([`Requirements`]). The module `auth` compares both before the handler runs.

pub(crate) mod action;
pub(crate) mod builtin;
mod grants;
pub(crate) mod privilege;
pub(crate) mod requirements;
pub(crate) mod resource;

pub(crate) use action::Action;
pub(crate) use privilege::{Identity, Privileges};
pub(crate) use requirements::Requirements;
pub(crate) use resource::Resource;

use base::CompatibleWith;

/// Effect of a command on data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reads documents or the catalog.
    Read,
    /// Changes documents or the catalog.
    Write,
    /// Concerns the server, a connection or a session.
    Admin,
}

/// Properties of a command, without its handler.
pub(crate) struct Command {
    /// Name in MongoDB's spelling.
    pub(crate) name: &'static str,
    /// One sentence for `listCommands`.
    pub(crate) help: &'static str,
    /// Effect on data.
    pub(crate) kind: Kind,
    /// Required privileges.
    pub(crate) requirements: Requirements,
    /// True if the command runs only on the database `admin`.
    pub(crate) admin_only: bool,
    /// True if the command may run before authentication.
    pub(crate) without_auth: bool,
    /// Version that first requires authentication for the command, if earlier versions do not.
    pub(crate) without_auth_before: Option<CompatibleWith>,
    /// True if version 1 of the stable API has the command.
    pub(crate) stable_api: bool,
    /// True if the command supports read concerns other than local.
    pub(crate) takes_read_concern: bool,
    /// True if the command supports a write concern.
    pub(crate) takes_write_concern: bool,
    /// True if the command may be part of a transaction.
    pub(crate) in_transactions: bool,
    /// True if the command is retryable with a transaction number.
    pub(crate) retryable_write: bool,
    /// True if the handler may run again from its start while it has changed nothing.
    pub(crate) restarts: bool,
    /// True if the command contains secrets, which are redacted.
    pub(crate) has_secrets: bool,
    /// True if the command continues a cursor. It names the cursor first and its collection in the field `collection`.
    pub(crate) continues_cursor: bool,
    /// True if a string in the command's own field is the name of a collection.
    pub(crate) names_collection: bool,
}

impl Command {
    /// Returns true if a server that follows `version` runs the command before authentication.
    pub(crate) fn runs_without_auth(&self, version: CompatibleWith) -> bool {
        self.without_auth || self.without_auth_before.is_some_and(|first| version < first)
    }

    /// Returns true if the command commits or aborts transactions.
    pub(crate) fn ends_transactions(&self) -> bool {
        matches!(self.name, "abortTransaction" | "commitTransaction")
    }

    /// Returns true if the command supports snapshot reads at one cluster time.
    pub(crate) fn reads_snapshots(&self) -> bool {
        matches!(self.name, "aggregate" | "distinct" | "find" | "getMore")
    }
}

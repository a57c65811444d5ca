//! What is never written down: logging in, passwords, and the greeting that both begin with.

/// Commands whose requests and replies stay out of a recording.
// tidy: sorted
const WITHHELD: &[&str] = &[
    "authenticate",
    "copydbgetnonce",
    "copydbsaslstart",
    "createUser",
    "getnonce",
    "hello",
    "isMaster",
    "ismaster",
    "logout",
    "saslContinue",
    "saslStart",
    "updateUser",
];

/// Whether this command stays out.
pub(super) fn is_secret(command: &str) -> bool {
    WITHHELD.contains(&command)
}

/// Whether it is the greeting, whose answer names the members of a set.
pub(super) fn is_hello(command: &str) -> bool {
    matches!(command, "hello" | "isMaster" | "ismaster")
}

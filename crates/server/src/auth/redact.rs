//! Commands for logs and listings, with "xxx" in place of secrets.

use base::bson::{Builder, Document, DocumentBuf};

/// Fields of commands that contain secrets.
pub(crate) const SECRETS: [&str; 4] = ["key", "payload", "pwd", "speculativeAuthenticate"];

/// Returns the command without its secrets.
pub(crate) fn without_secrets(body: Document<'_>) -> DocumentBuf {
    let mut shown = Builder::new();
    for element in body {
        match SECRETS.contains(&element.name()) {
            true => shown.append(element.field_name(), "xxx"),
            false => shown.append_element(&element),
        };
    }
    shown.finish()
}

/// Returns true if all documents of a collection are secret.
pub(crate) fn is_secret(database: &str, collection: &str) -> bool {
    database == "admin" && collection == super::store::USERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_payloads_are_hidden() {
        let mut user = Builder::new();
        user.append(c"createUser", "u").append(c"pwd", "secret").begin_array(c"roles").end();
        let shown = without_secrets(user.finish().view());
        assert_eq!(shown.view().get("pwd").and_then(|pwd| pwd.as_str()), Some("xxx"));
        assert_eq!(shown.view().get("createUser").and_then(|user| user.as_str()), Some("u"));
        assert!(is_secret("admin", "system.users") && !is_secret("db", "system.users"));
    }
}

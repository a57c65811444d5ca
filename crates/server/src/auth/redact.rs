//! Commands for logs and listings, with "xxx" in place of secrets.

use crate::access::Command;
use base::bson::{Builder, Document, DocumentBuf, Value};

/// Fields of commands that contain secrets.
const SECRETS: [&str; 4] = ["key", "payload", "pwd", "speculativeAuthenticate"];

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

/// Maximum text of a command in an error message, in bytes. An insert may be as large as a reply.
const SHOWN_MAX: usize = 16 * 1024;

/// Returns the text of a command without secrets, truncated if long.
pub(super) fn shown(command: &Command, body: Document<'_>) -> String {
    let mut text = without(command, body).to_string();
    if text.len() > SHOWN_MAX {
        text.truncate(text.floor_char_boundary(SHOWN_MAX));
        text.push_str("...");
    }
    text
}

/// Maximum size of a command in the profile, in the log and of an open cursor, in bytes.
pub(crate) const COMMAND_MAX: usize = 50 * 1024;

/// Returns a command. If it has more than `max` bytes, returns a document with its truncated text and its comment,
/// as MongoDB does.
pub(crate) fn truncated(command: DocumentBuf, max: usize) -> DocumentBuf {
    if command.bytes().len() <= max {
        return command;
    }
    let mut rest = Builder::new();
    for element in command.view().iter().filter(|element| element.name() != "comment") {
        rest.append_element(&element);
    }
    let mut text = rest.finish().to_string();
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max.saturating_sub(3)));
        text.push_str("...");
    }
    let mut out = Builder::new();
    out.append(c"$truncated", &text).append_optional(c"comment", command.view().get("comment"));
    out.finish()
}

/// Returns a command's document without secrets.
pub(crate) fn without(command: &Command, body: Document<'_>) -> DocumentBuf {
    match command.name {
        // These commands contain other commands.
        "applyOps" | "explain" => {
            let mut out = Builder::new();
            append(&mut out, body);
            out.finish()
        }
        _ if command.has_secrets => without_secrets(body),
        _ => body.to_owned(),
    }
}

fn append(out: &mut Builder, document: Document<'_>) {
    for element in document {
        match element.value() {
            _ if SECRETS.contains(&element.name()) => _ = out.append(element.field_name(), "xxx"),
            Value::Document(inner) => {
                append(out.begin_document(element.field_name()), inner);
                out.end();
            }
            Value::Array(inner) => {
                append(out.begin_array(element.field_name()), inner.as_document());
                out.end();
            }
            _ => _ = out.append_element(&element),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table::find;

    #[test]
    fn passwords_and_payloads_are_hidden() {
        let mut user = Builder::new();
        user.append(c"createUser", "u").append(c"pwd", "secret").begin_array(c"roles").end();
        let shown = without_secrets(user.finish().view());
        assert_eq!(shown.view().get("pwd").and_then(|pwd| pwd.as_str()), Some("xxx"));
        assert_eq!(shown.view().get("createUser").and_then(|user| user.as_str()), Some("u"));
        assert!(is_secret("admin", "system.users") && !is_secret("db", "system.users"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = |name: &str, body: &DocumentBuf| shown(find(name).unwrap(), body.view());
        let mut user = Builder::new();
        user.append(c"createUser", "u").append(c"pwd", "secret").begin_array(c"roles").end();
        let user = user.finish();
        let text = shown("createUser", &user);
        assert!(text.contains("xxx") && !text.contains("secret"), "{text}");
        let mut nested = Builder::new();
        nested.begin_array(c"applyOps").push(&user).end();
        let text = shown("applyOps", &nested.finish());
        assert!(text.contains("xxx") && !text.contains("secret"), "{text}");
        assert!(shown("insert", &user).contains("secret"));
        let mut long = Builder::new();
        long.begin_array(c"documents");
        (0..SHOWN_MAX).for_each(|_| _ = long.push("ä"));
        long.end();
        long.append(c"comment", "kept");
        let long = long.finish();
        let text = shown("insert", &long);
        assert!(text.len() <= SHOWN_MAX + 3 && text.ends_with("..."));
        let short = truncated(long, 1000);
        let kept: Vec<_> = short.view().iter().map(|field| (field.name(), field.value().as_str())).collect();
        let [("$truncated", Some(text)), ("comment", Some("kept"))] = kept[..] else { panic!("{kept:?}") };
        assert!(
            (997..=1000).contains(&text.len()) && text.ends_with("...") && !text.contains("kept"),
            "{text}"
        );
    }
}

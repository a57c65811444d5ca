//! Commands as errors show them: without secrets.

use base::bson::{Builder, Document, DocumentBuf, Value};

/// Fields that hold secrets.
const SECRETS: [&str; 4] = ["key", "payload", "pwd", "speculativeAuthenticate"];

/// The document of a command, its secrets taken out.
pub(super) fn command(name: &str, body: Document<'_>) -> DocumentBuf {
    match name {
        "authenticate" | "createUser" | "hello" | "isMaster" | "saslContinue" | "saslStart"
        | "updateUser" => without_secrets(body, false),
        // They carry other commands.
        "applyOps" | "explain" => without_secrets(body, true),
        _ => body.to_owned(),
    }
}

fn without_secrets(document: Document<'_>, deep: bool) -> DocumentBuf {
    let mut out = Builder::new();
    append(&mut out, document, deep);
    out.finish()
}

fn append(out: &mut Builder, document: Document<'_>, deep: bool) {
    for element in document {
        match element.value() {
            _ if SECRETS.contains(&element.name()) => _ = out.append(element.name(), "xxx"),
            Value::Document(inner) if deep => {
                append(out.begin_document(element.name()), inner, deep);
                out.end();
            }
            Value::Array(inner) if deep => {
                append(out.begin_array(element.name()), inner.as_document(), deep);
                out.end();
            }
            _ => _ = out.append_element(&element),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let mut user = Builder::new();
        user.append("createUser", "u").append("pwd", "secret").begin_array("roles").end();
        let user = user.finish();
        let shown = command("createUser", user.view()).to_string();
        assert!(shown.contains("xxx") && !shown.contains("secret"), "{shown}");
        let mut nested = Builder::new();
        nested.begin_array("applyOps").push(&user).end();
        let shown = command("applyOps", nested.finish().view()).to_string();
        assert!(shown.contains("xxx") && !shown.contains("secret"), "{shown}");
        assert!(command("insert", user.view()).to_string().contains("secret"));
    }
}

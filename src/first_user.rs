//! The first user, from the variables of MongoDB's images: `MONGO_INITDB_ROOT_USERNAME` and
//! `MONGO_INITDB_ROOT_PASSWORD`, or both with the suffix `_FILE` for files with the values.

use server::{LocalConnection, Server};
use std::sync::Arc;

const NAME: &str = "MONGO_INITDB_ROOT_USERNAME";
const PASSWORD: &str = "MONGO_INITDB_ROOT_PASSWORD";

/// A user with all privileges.
pub(crate) struct FirstUser {
    name: String,
    password: String,
}

impl std::fmt::Debug for FirstUser {
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FirstUser").field(&self.name).finish()
    }
}

impl FirstUser {
    /// Returns the user that the environment names, if any.
    ///
    /// Fails for an incomplete or duplicate name or password, and for an unreadable file.
    pub(crate) fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<FirstUser>, String> {
        match (value(&variable, NAME)?, value(&variable, PASSWORD)?) {
            (None, None) => Ok(None),
            (Some(name), Some(password)) => Ok(Some(FirstUser { name, password })),
            (one, _) => {
                let missing = if one.is_some() { PASSWORD } else { NAME };
                Err(format!("{missing} is missing: the first user needs {NAME} and {PASSWORD}"))
            }
        }
    }

    /// Creates the user, unless it or another user exists.
    ///
    /// Fails with the server's message.
    pub(crate) fn create(&self, server: &Arc<Server>) -> Result<(), String> {
        /// Code for an existing user.
        const USER_EXISTS: i64 = 51_003;
        let mut connection = LocalConnection::of_server(server);
        let mut request = base::bson::Builder::new();
        request.begin_document(c"usersInfo").append(c"forAllDBs", true).end().append(c"$db", "admin");
        let reply = connection.command(request.finish().view());
        let users = reply.as_ref().and_then(|reply| reply.view().get("users")?.as_array());
        if users.is_some_and(|users| !users.is_empty()) {
            return Ok(());
        }
        let mut command = base::bson::Builder::new();
        command.append(c"createUser", &self.name).append(c"pwd", &self.password);
        command.begin_array(c"roles").push("root").end().append(c"$db", "admin");
        let reply = connection.command(command.finish().view());
        let Some(reply) = reply else { return Err(format!("{NAME}: no answer")) };
        let number = |name: &str| reply.view().get(name).and_then(|value| value.as_i64());
        if number("ok") == Some(1) {
            log::info!(c = "ACCESS", user = self.name.as_str(); "Created the first user, with the role root \
             on admin");
        } else if number("code") != Some(USER_EXISTS) {
            let why = reply.view().get("errmsg").and_then(|why| why.as_str());
            return Err(format!("{NAME}: {}", why.unwrap_or("refused")));
        }
        Ok(())
    }
}

/// Returns the value of a variable, or the content of the file that its `_FILE` variable names.
fn value(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<String>, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let file = format!("{name}_FILE");
    match (set(name), set(&file)) {
        (Some(_), Some(_)) => Err(format!("both {name} and {file} are set")),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{file}: {path}: {error}"))?;
            let text = text.trim_end_matches(['\r', '\n']).to_string();
            match text.is_empty() {
                true => Err(format!("{file}: {path} is empty")),
                false => Ok(Some(text)),
            }
        }
        (value, None) => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(variables: &[(&str, &str)]) -> Result<Option<FirstUser>, String> {
        let found = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
        };
        FirstUser::from_environment(found)
    }

    #[test]
    fn name_and_password_are_required_together() {
        assert!(named(&[]).unwrap().is_none());
        assert!(named(&[(NAME, ""), (PASSWORD, "")]).unwrap().is_none());
        let user = named(&[(NAME, "root"), (PASSWORD, "secret")]).unwrap().unwrap();
        assert_eq!(format!("{user:?}"), "FirstUser(\"root\")");
        assert!(named(&[(NAME, "root")]).unwrap_err().contains(PASSWORD));
        assert!(named(&[(PASSWORD, "secret")]).unwrap_err().contains("USERNAME is missing"));
    }

    #[test]
    fn files_hold_them_as_well() {
        let path = std::env::temp_dir().join(format!("vellum-first-user-{}", std::process::id()));
        std::fs::write(&path, "from a file\n").unwrap();
        let path = path.to_str().unwrap();
        let file = "MONGO_INITDB_ROOT_PASSWORD_FILE";
        let user = named(&[(NAME, "root"), (file, path)]).unwrap().unwrap();
        assert_eq!(user.password, "from a file");
        assert!(named(&[(NAME, "root"), (PASSWORD, "x"), (file, path)]).unwrap_err().contains("both"));
        std::fs::write(path, "\n").unwrap();
        assert!(named(&[(NAME, "root"), (file, path)]).unwrap_err().contains("is empty"));
        std::fs::remove_file(path).unwrap();
        assert!(named(&[(NAME, "root"), (file, path)]).unwrap_err().contains(path));
    }
}

//! A user's document, read and written: `{_id: "db.name", userId, user, db, credentials,
//! authenticationRestrictions, customData, roles}`. The form is MongoDB's, so dumps are portable in
//! both directions.

use crate::protocol::names::{RoleName, UserName};
use base::bson::{Array, Builder, Document, FieldName, Value};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use wire::scram::{Credential, Mechanism};

/// The parts of a user's document that authentication needs.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: UserName,
    /// Id that distinguishes the user from an earlier user of this name.
    pub(crate) id: Option<[u8; 16]>,
    /// Directly granted roles.
    pub(crate) roles: Vec<RoleName>,
    credentials: Vec<(Mechanism, Credential)>,
    /// True if another system verifies the credentials, as for certificates.
    pub(crate) is_external: bool,
}

impl User {
    /// Parses a document. Invalid parts are omitted, so they allow no login.
    pub(crate) fn read(document: Document<'_>) -> Option<User> {
        let text = |name: &str| document.get(name).and_then(|value| value.as_str());
        let credentials = document.get("credentials").and_then(|value| value.as_document());
        let credential = |mechanism: Mechanism| {
            let stored = credentials?.get(mechanism.name())?.as_document()?;
            let credential = read_credential(stored)?;
            credential.is_valid(mechanism).then_some((mechanism, credential))
        };
        Some(User {
            name: UserName::new(text("user")?, text("db")?),
            id: match document.get("userId") {
                Some(Value::Binary { subtype: 4, bytes }) => bytes.try_into().ok(),
                _ => None,
            },
            roles: document
                .get("roles")
                .and_then(|roles| roles.as_array())
                .map(read_roles)
                .unwrap_or_default(),
            credentials: Mechanism::ALL.into_iter().filter_map(credential).collect(),
            is_external: credentials
                .and_then(|all| all.get("external"))
                .is_some_and(|external| external.is_truthy()),
        })
    }

    /// Returns the credential for a mechanism.
    pub(crate) fn credential(&self, mechanism: Mechanism) -> Option<&Credential> {
        self.credentials.iter().find(|(of, _)| *of == mechanism).map(|(_, credential)| credential)
    }
}

/// Parses the roles of a user or role. Invalid roles are omitted.
pub(crate) fn read_roles(roles: Array<'_>) -> Vec<RoleName> {
    let role = |role: Value<'_>| {
        let role = role.as_document()?;
        Some(RoleName::new(role.get("role")?.as_str()?, role.get("db")?.as_str()?))
    };
    roles.iter().filter_map(role).collect()
}

/// Appends roles in the stored form.
pub(crate) fn append_roles(document: &mut Builder, roles: &[RoleName]) {
    document.begin_array(c"roles");
    for role in roles {
        document.push_document().append(c"role", &role.role).append(c"db", &role.db).end();
    }
    document.end();
}

fn read_credential(stored: Document<'_>) -> Option<Credential> {
    let bytes = |name: &str| BASE64_STANDARD.decode(stored.get(name)?.as_str()?).ok();
    Some(Credential {
        iterations: u32::try_from(stored.get("iterationCount")?.as_i64()?).ok()?,
        salt: bytes("salt")?,
        stored_key: bytes("storedKey")?,
        server_key: bytes("serverKey")?,
    })
}

/// Appends a credential under the name of its mechanism.
pub(crate) fn append_credential(credentials: &mut Builder, mechanism: Mechanism, credential: &Credential) {
    credentials
        .begin_document(FieldName::literal(mechanism.name()))
        .append(c"iterationCount", credential.iterations as i32);
    for (name, bytes) in [
        ("salt", &credential.salt),
        ("storedKey", &credential.stored_key),
        ("serverKey", &credential.server_key),
    ] {
        credentials.append(FieldName::literal(name), &BASE64_STANDARD.encode(bytes));
    }
    credentials.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_round_trip() {
        let credential = Credential::new(Mechanism::Sha256, "u", "p", vec![1; 28], 5000).unwrap();
        let mut document = Builder::new();
        document.append(c"_id", "d.u").append(c"userId", Value::Binary { subtype: 4, bytes: &[7; 16] });
        document.append(c"user", "u").append(c"db", "d").begin_document(c"credentials");
        append_credential(&mut document, Mechanism::Sha256, &credential);
        document
            .begin_document(c"SCRAM-SHA-1")
            .append(c"iterationCount", 1)
            .append(c"salt", "AA==")
            .end()
            .end();
        append_roles(&mut document, &[RoleName::new("read", "d")]);
        let user = User::read(document.finish().view()).unwrap();
        assert_eq!((user.name.to_string().as_str(), user.id), ("u@d", Some([7; 16])));
        assert_eq!(user.roles, [RoleName::new("read", "d")]);
        assert_eq!(user.credential(Mechanism::Sha256), Some(&credential));
        assert_eq!(user.credential(Mechanism::Sha1), None, "it isn't whole");
        assert!(User::read(Document::EMPTY).is_none());
    }
}

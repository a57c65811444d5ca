//! Ids of logical sessions: parsing and text form.

use crate::protocol::fields::Fields;
use base::bson::{Builder, Value};
use base::encoding;
use base::{Error, Result, bail, err};
use database::SessionId;
use sha2::{Digest, Sha256};

/// A session id as a client sends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// The id. Its user digest is `NO_USER` if the client sends none.
    pub(crate) id: SessionId,
    /// True if the client sends a user digest.
    pub(crate) has_user: bool,
}

/// Parses `{id: UUID, uid: digest}`. Clients omit the digest unless they impersonate another user.
///
/// Errors: TypeMismatch, InvalidUUID, IDLFailedToParse, IDLUnknownField, UnsupportedFormat as
/// MongoDB; NotImplemented for fields of cluster members.
pub(crate) fn read(value: Value<'_>) -> Result<Named> {
    let document = value
        .as_document()
        .ok_or_else(|| err!(TypeMismatch, "BSON field 'lsid' is the wrong type, expected type 'object'"))?;
    let mut fields = Fields::of_document("lsid", document);
    let id = fields.any("id")?.filter(|id| !id.is_nullish());
    let user = fields.any("uid")?.map(user_digest).transpose()?;
    fields.refuse_unless_default("txnNumber")?;
    fields.refuse_unless_default("txnUUID")?;
    fields.finish()?;
    let missing = || Error::missing_field("lsid.id");
    let uuid = match id.ok_or_else(missing)? {
        Value::Binary { subtype: 4, bytes } => bytes
            .try_into()
            .map_err(|_| err!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype"))?,
        _ => bail!(TypeMismatch, "BSON field 'lsid.id' must be a UUID"),
    };
    let id = user.map_or(SessionId::without_user(uuid), |user| SessionId::new(uuid, user));
    Ok(Named { id, has_user: user.is_some() })
}

/// Parses a user digest.
///
/// Errors: TypeMismatch; UnsupportedFormat for a wrong length.
pub(crate) fn user_digest(value: Value<'_>) -> Result<[u8; 32]> {
    let Value::Binary { subtype: 0, bytes } = value else {
        return Err(Error::wrong_type("lsid.uid", value.kind(), "binData"));
    };
    bytes
        .try_into()
        .map_err(|_| err!(UnsupportedFormat, "Unsupported SHA256Block hash length: {}", bytes.len()))
}

/// Returns the digest of a user: SHA-256 of `name@database`, as in MongoDB.
pub(crate) fn digest_of(user: &str, database: &str) -> [u8; 32] {
    match (user, database) {
        ("", "") => database::NO_USER,
        _ => Sha256::digest(format!("{user}@{database}")).into(),
    }
}

/// Appends `id` and `uid`.
pub(crate) fn append(document: &mut Builder, session: &SessionId) {
    document.append(c"id", Value::Binary { subtype: 4, bytes: &session.uuid });
    document.append(c"uid", Value::Binary { subtype: 0, bytes: session.user() });
}

/// Returns the text form for messages: UUID, digest, and two empty fields of cluster members.
pub(crate) fn text(session: &SessionId) -> String {
    format!("{} - {} -  - ", encoding::uuid(&session.uuid), encoding::base64(session.user()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(build: impl FnOnce(&mut Builder)) -> Result<SessionId> {
        let mut lsid = Builder::new();
        build(&mut lsid);
        read((&lsid.finish()).into()).map(|named| named.id)
    }

    #[test]
    fn sessions_differ_by_user() {
        let uuid = [3; 16];
        let with = |user: &[u8]| {
            read_of(|b| {
                b.append(c"id", Value::Binary { subtype: 4, bytes: &uuid });
                b.append(c"uid", Value::Binary { subtype: 0, bytes: user });
            })
        };
        let anonymous = read_of(|b| _ = b.append(c"id", Value::Binary { subtype: 4, bytes: &uuid })).unwrap();
        assert_eq!(with(&digest_of("", "")).unwrap(), anonymous);
        let with_user = with(&digest_of("u", "admin")).unwrap();
        assert!(with_user != anonymous && with_user.uuid == anonymous.uuid);
        assert_eq!(with(&[0; 31]).unwrap_err().code().number(), 12);
        assert_eq!(
            text(&anonymous),
            "03030303-0303-0303-0303-030303030303 - 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU= -  - "
        );
    }

    #[test]
    fn the_digest_without_a_user_is_the_digest_of_no_bytes() {
        assert_eq!(<[u8; 32]>::from(Sha256::digest(b"")), database::NO_USER);
    }

    #[test]
    fn nonsense_is_refused() {
        let id = Value::Binary { subtype: 4, bytes: &[1; 16] };
        let code = |result: Result<SessionId>| result.unwrap_err().code().number();
        assert_eq!(code(read(Value::Int32(1)).map(|named| named.id)), 14);
        assert_eq!(code(read_of(|_| ())), 40_414);
        assert_eq!(code(read_of(|b| _ = b.append(c"id", 1))), 14);
        assert_eq!(code(read_of(|b| _ = b.append(c"id", Value::Binary { subtype: 4, bytes: &[1] }))), 207);
        assert_eq!(code(read_of(|b| _ = b.append(c"id", id).append(c"uid", 1))), 14);
        assert_eq!(code(read_of(|b| _ = b.append(c"id", id).append(c"txnNumber", 1i64))), 238);
        assert_eq!(code(read_of(|b| _ = b.append(c"id", id).append(c"x", 1))), 40_415);
    }
}

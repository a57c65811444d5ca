//! Credentials: the keys that a server stores, and their derivation from a password.

use super::{Mechanism, ScramError};
use base::encoding;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;
use std::fmt;

/// Stored credential of a user. It can verify a proof of the password but cannot create a proof.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// Iteration count of the password hash.
    pub iterations: u32,
    /// Salt of the password hash.
    pub salt: Vec<u8>,
    /// The hash of the client's key.
    pub stored_key: Vec<u8>,
    /// Key of the server's signature.
    pub server_key: Vec<u8>,
}

impl fmt::Debug for Credential {
    /// Omits keys and salt, because logs must not show credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Credential {
    /// Derives the credential of a prepared password ([`prepared_password`]).
    pub(super) fn of_prepared(
        mechanism: Mechanism,
        prepared: &[u8],
        salt: Vec<u8>,
        iterations: u32,
    ) -> Credential {
        let keys = Keys::derive(mechanism, prepared, &salt, iterations);
        Credential {
            iterations,
            salt,
            stored_key: mechanism.hash(&keys.client_key),
            server_key: keys.server_key,
        }
    }

    /// Derives the credential of a password.
    ///
    /// Errors: a password that cannot be prepared.
    pub fn new(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        salt: Vec<u8>,
        iterations: u32,
    ) -> Result<Credential, ScramError> {
        let prepared = prepared_password(mechanism, user, password)?;
        Ok(Credential::of_prepared(mechanism, prepared.as_bytes(), salt, iterations))
    }

    /// Derives a SCRAM-SHA-1 credential from a password that the client has digested with the user's name.
    pub fn of_digested(digested: &str, salt: Vec<u8>, iterations: u32) -> Credential {
        Credential::of_prepared(Mechanism::Sha1, digested.as_bytes(), salt, iterations)
    }

    /// Whether the parts have the sizes that the mechanism requires.
    pub fn is_valid(&self, mechanism: Mechanism) -> bool {
        let size = mechanism.key_size();
        self.iterations > 0
            && !self.salt.is_empty()
            && self.stored_key.len() == size
            && self.server_key.len() == size
    }
}

/// `ClientKey` and `ServerKey` of RFC 5802. They prove that client and server have the password or its credential.
pub(super) struct Keys {
    pub(super) client_key: Vec<u8>,
    pub(super) server_key: Vec<u8>,
}

impl Keys {
    /// Derives the keys of a password with the server's iteration count.
    pub(super) fn derive(mechanism: Mechanism, prepared: &[u8], salt: &[u8], iterations: u32) -> Keys {
        let salted = mechanism.salted_password(prepared, salt, iterations);
        Keys {
            client_key: mechanism.sign(&salted, &[b"Client Key"]),
            server_key: mechanism.sign(&salted, &[b"Server Key"]),
        }
    }
}

/// Digests a password with the user's name, in hexadecimal, as MongoDB does for SCRAM-SHA-1.
pub fn digested_password(user: &str, password: &str) -> String {
    encoding::hex(&Md5::digest(format!("{user}:mongo:{password}")))
}

/// Prepares a password for hashing by the mechanism.
///
/// Errors: characters that are not allowed in passwords.
pub(super) fn prepared_password(
    mechanism: Mechanism,
    user: &str,
    password: &str,
) -> Result<String, ScramError> {
    match mechanism {
        Mechanism::Sha1 => Ok(digested_password(user, password)),
        Mechanism::Sha256 => match stringprep::saslprep(password) {
            Ok(prepared) => Ok(prepared.into_owned()),
            Err(_) => Err(ScramError("the password has characters that SASLprep prohibits".to_string())),
        },
    }
}

impl Mechanism {
    fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut salted = vec![0; self.key_size()];
        match self {
            Mechanism::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut salted),
            Mechanism::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted),
        }
        salted
    }

    /// Returns a keyed hash (HMAC). The salts of unknown users are derived with it.
    pub fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        self.sign(key, parts)
    }

    /// Hashes bytes.
    pub(super) fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Mechanism::Sha1 => Sha1::digest(bytes).to_vec(),
            Mechanism::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    /// Signs text, given in parts, with HMAC.
    pub(super) fn sign(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn with<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
            // HMAC takes a key of any length, so this error cannot happen.
            let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return Vec::new() };
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Mechanism::Sha1 => with::<Hmac<Sha1>>(key, parts),
            Mechanism::Sha256 => with::<Hmac<Sha256>>(key, parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_digested_as_mongodb_does() {
        assert_eq!(digested_password("user", "pencil"), "1c33006ec1ffd90f9cadcbcc0e118200");
    }

    #[test]
    fn saslprep_maps_and_refuses() {
        let prepared = |password| prepared_password(Mechanism::Sha256, "u", password);
        assert_eq!(prepared("I\u{AD}X").unwrap(), "IX");
        assert_eq!(prepared("\u{2168}").unwrap(), "IX");
        assert!(prepared("\u{7}").is_err());
        assert!(prepared("\u{627}1").is_err());
    }

    #[test]
    fn a_debug_text_shows_no_keys() {
        let credential = Credential::new(Mechanism::Sha256, "u", "p", vec![77; 28], 1).unwrap();
        assert_eq!(format!("{credential:?}"), "Credential { iterations: 1, .. }");
        assert!(credential.is_valid(Mechanism::Sha256) && !credential.is_valid(Mechanism::Sha1));
    }
}

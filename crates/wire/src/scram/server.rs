//! The server's side of SCRAM: reads the user's name, sends the salt and verifies the proof.

use super::{Credential, Mechanism, ScramError, decoded, encoded, scram_error, text, unescaped, value};
use crate::secret;

/// Minimum length of a client's nonce in characters, as in MongoDB.
const NONCE_MIN: usize = 4;

/// Random bytes that the server appends to the nonce.
const NONCE_BYTES: usize = 24;

/// The client's first message (`client-first-message` of RFC 5802).
pub struct ClientFirst {
    mechanism: Mechanism,
    /// The user's name, unescaped.
    pub user: String,
    /// The GS2 header, which the final message repeats in base64.
    gs2_header: String,
    /// The message without its GS2 header.
    bare: String,
    nonce: String,
}

/// A conversation that waits for the client's proof.
pub struct Server {
    mechanism: Mechanism,
    gs2_header: String,
    /// `AuthMessage` of RFC 5802 without its last part. Proof and signature cover it.
    auth_message: String,
    nonce: String,
    credential: Credential,
}

impl ClientFirst {
    /// Reads the client's first message.
    ///
    /// Errors: malformed messages, channel binding, mandatory extensions and authorization identities.
    pub fn read(mechanism: Mechanism, message: &[u8]) -> Result<ClientFirst, ScramError> {
        let message = text(message)?;
        let mut parts = message.splitn(3, ',');
        let (flag, authzid, bare) = match (parts.next(), parts.next(), parts.next()) {
            (Some(flag), Some(authzid), Some(bare)) => (flag, authzid, bare),
            _ => return scram_error("the first message is cut short"),
        };
        match flag {
            "n" | "y" => {}
            _ if flag.starts_with("p=") => return scram_error("channel binding is not supported"),
            _ => return scram_error("the first message has no header"),
        }
        if bare.starts_with("m=") {
            return scram_error("mandatory extensions are not supported");
        }
        let mut attributes = bare.split(',');
        let name = value(attributes.next(), 'n')?;
        let nonce = value(attributes.next(), 'r')?;
        let is_plain = nonce.bytes().all(|byte| byte.is_ascii_graphic());
        if nonce.len() < NONCE_MIN || !is_plain {
            return scram_error("the client's nonce is too short, or not made of printable characters");
        }
        if name.is_empty() {
            return scram_error("the user's name is missing");
        }
        if !authzid.is_empty() && authzid.strip_prefix("a=") != Some(name) {
            return scram_error("an authorization identity is not supported");
        }
        Ok(ClientFirst {
            mechanism,
            user: unescaped(name)?,
            gs2_header: format!("{flag},{authzid},"),
            bare: bare.to_string(),
            nonce: nonce.to_string(),
        })
    }

    /// Returns the reply for a user with this credential, and the next state.
    ///
    /// Errors: a system without random numbers.
    pub fn reply(self, credential: Credential) -> Result<(Server, String), ScramError> {
        let random = secret::random::<NONCE_BYTES>().map_err(ScramError)?;
        Ok(self.reply_with(credential, &encoded(&random)))
    }

    /// Returns the reply with a given suffix of the nonce. Tests pass the suffixes of the RFCs.
    fn reply_with(self, credential: Credential, suffix: &str) -> (Server, String) {
        let nonce = format!("{}{suffix}", self.nonce);
        let reply = format!("r={nonce},s={},i={}", encoded(&credential.salt), credential.iterations);
        let server = Server {
            mechanism: self.mechanism,
            gs2_header: self.gs2_header,
            auth_message: format!("{},{reply}", self.bare),
            nonce,
            credential,
        };
        (server, reply)
    }
}

impl Server {
    /// Verifies the client's final message and returns the server's signed final message. Only a client with the
    /// password or the client key passes.
    ///
    /// Errors: any other message.
    pub fn finish(self, message: &[u8]) -> Result<String, ScramError> {
        let message = text(message)?;
        let Some((without_proof, proof)) = message.rsplit_once(",p=") else {
            return scram_error("the final message has no proof");
        };
        let mut attributes = without_proof.split(',');
        let gs2_header = decoded(value(attributes.next(), 'c')?)?;
        if gs2_header != self.gs2_header.as_bytes() {
            return scram_error("the final message has a wrong channel binding");
        }
        // A replayed message of another conversation has another nonce.
        if !secret::equal(value(attributes.next(), 'r')?.as_bytes(), self.nonce.as_bytes()) {
            return scram_error("the final message has a wrong nonce");
        }
        let proof = decoded(proof)?;
        let auth_message: [&[u8]; 3] = [self.auth_message.as_bytes(), b",", without_proof.as_bytes()];
        let signature = self.mechanism.sign(&self.credential.stored_key, &auth_message);
        if proof.len() != signature.len() {
            return scram_error("the proof has a wrong length");
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        if !secret::equal(&self.mechanism.hash(&client_key), &self.credential.stored_key) {
            return scram_error("the proof is wrong");
        }
        Ok(format!("v={}", encoded(&self.mechanism.sign(&self.credential.server_key, &auth_message))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677.
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const ADDED: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const REPLY: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const PROOF: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SIGNATURE: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn pencil() -> Credential {
        let salt = decoded("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Credential::new(Mechanism::Sha256, "user", "pencil", salt, 4096).unwrap()
    }

    fn server() -> Server {
        let first = ClientFirst::read(Mechanism::Sha256, FIRST.as_bytes()).unwrap();
        assert_eq!(first.user, "user");
        let (server, reply) = first.reply_with(pencil(), ADDED);
        assert_eq!(reply, REPLY);
        server
    }

    #[test]
    fn the_examples_of_the_rfcs_authenticate() {
        assert_eq!(server().finish(PROOF.as_bytes()).unwrap(), SIGNATURE);
        // The example of RFC 5802, whose password is not digested.
        let salt = decoded("QSXCR+Q6sek8bf92").unwrap();
        let credential = Credential::of_digested("pencil", salt, 4096);
        let first = ClientFirst::read(Mechanism::Sha1, b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL").unwrap();
        let (server, reply) = first.reply_with(credential, "3rfcNHYJY1ZVvWVs7j");
        assert_eq!(reply, "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096");
        let proof = "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
        assert_eq!(server.finish(proof.as_bytes()).unwrap(), "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=");
    }

    #[test]
    fn a_proof_is_for_its_own_conversation() {
        for (wrong, why) in [
            (PROOF.replace("p=d", "p=e"), "the proof is wrong"),
            (PROOF.replace("c=biws", "c=eSws"), "channel binding"),
            (PROOF.replace("r=rO", "r=rP"), "wrong nonce"),
            (PROOF.replace(",p=dHzb", ",p="), "wrong length"),
            (PROOF.replace(",p=", ",q="), "no proof"),
            (PROOF.replace(",p=", ",x=1,p="), "the proof is wrong"),
            (String::new(), "no proof"),
        ] {
            let refused = server().finish(wrong.as_bytes()).unwrap_err();
            assert!(refused.0.contains(why), "{wrong}: {refused}");
        }
        let (other, _) =
            ClientFirst::read(Mechanism::Sha256, FIRST.as_bytes()).unwrap().reply(pencil()).unwrap();
        assert!(other.finish(PROOF.as_bytes()).unwrap_err().0.contains("wrong nonce"));
    }

    #[test]
    fn first_messages_that_want_more_are_refused() {
        let read = |message: &str| ClientFirst::read(Mechanism::Sha256, message.as_bytes());
        for (wrong, why) in [
            ("", "cut short"),
            ("n,,", "'n'"),
            ("n,n=user,r=abcdef", "'n'"),
            ("p=tls-unique,,n=user,r=abcdef", "channel binding"),
            ("x,,n=user,r=abcdef", "no header"),
            ("n,,m=1,n=user,r=abcdef", "mandatory"),
            ("n,,n=,r=abcdef", "name is missing"),
            ("n,,n=user,r=abc", "nonce"),
            ("n,,n=user,r=ab\u{7}cdef", "nonce"),
            ("n,,n=us=er,r=abcdef", "escape"),
            ("n,a=other,n=user,r=abcdef", "authorization identity"),
            ("n,,r=abcdef,n=user", "'n'"),
        ] {
            let refused = read(wrong).err().unwrap();
            assert!(refused.0.contains(why), "{wrong}: {refused}");
        }
        assert!(ClientFirst::read(Mechanism::Sha256, b"n,,n=\xFF,r=abcdef").is_err());
        assert!(read(&format!("n,,n={},r=abcdef", "a".repeat(20_000))).is_err());
        assert_eq!(read("y,a=us=2Cer,n=us=2Cer,r=abcdef,x=1").unwrap().user, "us,er");
    }
}

//! The client's side of SCRAM: the first message, the proof, and the check of the server's signature.

use super::keys::{Keys, prepared_password};
use super::{Mechanism, ScramError, decoded, encoded, escaped, scram_error, text, value};
use crate::secret;

/// Minimum iteration count that a client accepts. The drivers' authentication specification requires it.
const ITERATIONS_MIN: u32 = 4096;

/// Maximum iteration count. A higher count only keeps the client busy.
const ITERATIONS_MAX: u32 = 10_000_000;

/// Random bytes in a nonce.
const NONCE_BYTES: usize = 24;

/// A conversation that has sent no proof yet.
pub struct Client {
    mechanism: Mechanism,
    prepared: String,
    /// `client-first-message-bare` of RFC 5802.
    bare: String,
    nonce: String,
}

/// A conversation that has sent its proof and waits for the server's signature.
pub struct Verifier {
    signature: Vec<u8>,
}

impl Client {
    /// Begins a conversation; send [`Client::first`] next.
    ///
    /// Errors: a password that SASLprep refuses, or a system without random numbers.
    pub fn new(mechanism: Mechanism, user: &str, password: &str) -> Result<Client, ScramError> {
        let random = secret::random::<NONCE_BYTES>().map_err(ScramError)?;
        Client::with_nonce(mechanism, user, password, encoded(&random))
    }

    /// Begins a conversation with a given nonce. Tests pass the nonces of the RFCs.
    fn with_nonce(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        nonce: String,
    ) -> Result<Client, ScramError> {
        let prepared = prepared_password(mechanism, user, password)?;
        let bare = format!("n={},r={nonce}", escaped(user));
        Ok(Client { mechanism, prepared, bare, nonce })
    }

    /// The first message.
    pub fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// Returns the final message with the proof, in answer to the server's first message. The verifier checks the
    /// server's final message.
    ///
    /// Errors: a message that does not answer this client, or an iteration count outside the limits.
    pub fn reply(self, message: &[u8]) -> Result<(Verifier, String), ScramError> {
        let message = text(message)?;
        let mut attributes = message.split(',');
        let nonce = value(attributes.next(), 'r')?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return scram_error("the server's nonce does not begin with the client's nonce");
        }
        let salt = decoded(value(attributes.next(), 's')?)?;
        let iterations = value(attributes.next(), 'i')?.parse::<u32>().ok();
        let iterations = match iterations {
            Some(number @ ITERATIONS_MIN..=ITERATIONS_MAX) => number,
            _ => return scram_error("the iteration count is out of range"),
        };
        let keys = Keys::derive(self.mechanism, self.prepared.as_bytes(), &salt, iterations);
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message: [&[u8]; 5] =
            [self.bare.as_bytes(), b",", message.as_bytes(), b",", without_proof.as_bytes()];
        let stored_key = self.mechanism.hash(&keys.client_key);
        let signature = self.mechanism.sign(&stored_key, &auth_message);
        let proof: Vec<u8> = keys.client_key.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        let verifier = Verifier { signature: self.mechanism.sign(&keys.server_key, &auth_message) };
        Ok((verifier, format!("{without_proof},p={}", encoded(&proof))))
    }
}

impl Verifier {
    /// Checks the signature of the server's final message. Only a server with this user's keys can sign it.
    ///
    /// Errors: any other message.
    pub fn check(self, message: &[u8]) -> Result<(), ScramError> {
        let signature = decoded(value(text(message)?.split(',').next(), 'v')?)?;
        match secret::equal(&signature, &self.signature) {
            true => Ok(()),
            false => scram_error(
                "the server's signature is message: the server does not have this user's \
             credentials",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ClientFirst, Credential};
    use super::*;

    fn rfc() -> Client {
        let nonce = "rOprNGfwEbeRWgbNEkqO".to_string();
        Client::with_nonce(Mechanism::Sha256, "user", "pencil", nonce).unwrap()
    }

    #[test]
    fn the_example_of_rfc_7677_is_reproduced() {
        let client = rfc();
        assert_eq!(client.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let reply = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (verifier, proof) = client.reply(reply.as_bytes()).unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(proof, expected);
        verifier.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
    }

    #[test]
    fn both_halves_agree() {
        for mechanism in Mechanism::ALL {
            let (user, password) = ("a=b,c", "pass\u{AD}word");
            let salt = vec![9; mechanism.salt_size()];
            let credential = Credential::new(mechanism, user, password, salt, 4096).unwrap();
            let client = Client::new(mechanism, user, password).unwrap();
            let first = ClientFirst::read(mechanism, client.first().as_bytes()).unwrap();
            assert_eq!(first.user, user);
            let (server, reply) = first.reply(credential.clone()).unwrap();
            let (verifier, proof) = client.reply(reply.as_bytes()).unwrap();
            verifier.check(server.finish(proof.as_bytes()).unwrap().as_bytes()).unwrap();

            let stranger = Client::new(mechanism, user, "another").unwrap();
            let first = ClientFirst::read(mechanism, stranger.first().as_bytes()).unwrap();
            let (server, reply) = first.reply(credential).unwrap();
            let (_, proof) = stranger.reply(reply.as_bytes()).unwrap();
            assert!(server.finish(proof.as_bytes()).is_err());
        }
    }

    #[test]
    fn servers_that_are_not_the_right_one_are_refused() {
        let salt = "s=W22ZaJ0SNY7soEsUEjb6gQ==";
        let nonce = "rOprNGfwEbeRWgbNEkqO";
        for (message, why) in [
            (format!("r=another,{salt},i=4096"), "the client's nonce"),
            (format!("r={nonce},{salt},i=4096"), "the client's nonce"),
            (format!("r={nonce}x,{salt},i=4095"), "iteration count"),
            (format!("r={nonce}x,{salt},i=4000000000"), "iteration count"),
            (format!("r={nonce}x,{salt}"), "'i'"),
            (format!("r={nonce}x,s=???,i=4096"), "base64"),
            ("e=other-error".to_string(), "'r'"),
        ] {
            let refused = rfc().reply(message.as_bytes()).err().unwrap();
            assert!(refused.0.contains(why), "{message}: {refused}");
        }
        let (verifier, _) = rfc().reply(format!("r={nonce}x,{salt},i=4096").as_bytes()).unwrap();
        assert!(verifier.check(b"v=AAAA").is_err());
    }
}

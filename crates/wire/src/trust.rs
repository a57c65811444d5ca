//! Trust of TLS clients: authorities from the connection string or the system, or any certificate on request.

use crate::certificates::{authorities, key_pair, provider};
use crate::uri::Encryption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Returns the TLS configuration of a client.
///
/// # Errors
/// Unusable files, by name, or a system without authorities.
pub fn config(encryption: &Encryption) -> Result<ClientConfig, String> {
    let file = encryption.certificate_key_file.as_ref();
    let pair = file.map(|file| key_pair(file, encryption.password.as_deref())).transpose()?;
    config_with(encryption, pair)
}

/// Returns the TLS configuration of a client with this certificate and key.
///
/// # Errors
/// As [`config`].
pub fn config_with(encryption: &Encryption, pair: Option<CertifiedKey>) -> Result<ClientConfig, String> {
    let provider = provider();
    let verifier: Arc<dyn ServerCertVerifier> = match encryption.any_certificate {
        true => Arc::new(RelaxedVerifier::any_certificate(provider.clone())),
        false => {
            let roots = match &encryption.ca_file {
                Some(file) => authorities(file)?,
                None => of_system()?,
            };
            let checks = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .map_err(|error| error.to_string())?;
            match encryption.any_name {
                true => Arc::new(RelaxedVerifier { provider: provider.clone(), checks: Some(checks) }),
                false => checks,
            }
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))),
    })
}

/// Loads the authorities that the system trusts.
fn of_system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err("this system has no certificate authorities: set tlsCAFile".to_string()),
        false => Ok(roots),
    }
}

/// Verifies a server's certificate with relaxed checks. Signatures are always verified.
#[derive(Debug)]
pub struct RelaxedVerifier {
    provider: Arc<CryptoProvider>,
    /// Verifies everything except the name; `None` accepts any certificate.
    checks: Option<Arc<WebPkiServerVerifier>>,
}

impl RelaxedVerifier {
    /// Returns a verifier that accepts any certificate.
    pub fn any_certificate(provider: Arc<CryptoProvider>) -> RelaxedVerifier {
        RelaxedVerifier { provider, checks: None }
    }
}

impl ServerCertVerifier for RelaxedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(checks) = &self.checks else { return Ok(ServerCertVerified::assertion()) };
        match checks.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is verified last, so all earlier checks have passed.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

//! TLS configuration of clients: authorities from the connection string or the system, or no verification on request.

use crate::certificates::{authorities, key_pair, provider};
use crate::uri::TlsOptions;
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
pub fn config(tls_options: &TlsOptions) -> Result<ClientConfig, String> {
    let file = tls_options.certificate_key_file.as_ref();
    let pair = file.map(|file| key_pair(file, tls_options.password.as_deref())).transpose()?;
    config_with(tls_options, pair)
}

/// Returns the TLS configuration of a client with this certificate and key.
///
/// # Errors
/// As [`config`].
pub fn config_with(tls_options: &TlsOptions, pair: Option<CertifiedKey>) -> Result<ClientConfig, String> {
    let provider = provider();
    let custom: Arc<dyn ServerCertVerifier> = match tls_options.allow_invalid_certificates {
        true => Arc::new(RelaxedVerifier::any_certificate(provider.clone())),
        false => {
            let roots = match &tls_options.ca_file {
                Some(file) => authorities(file)?,
                None => system_authorities()?,
            };
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .map_err(|error| error.to_string())?;
            match tls_options.allow_invalid_hostnames {
                true => Arc::new(RelaxedVerifier { provider: provider.clone(), verifier: Some(verifier) }),
                false => verifier,
            }
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(custom);
    Ok(match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair))),
    })
}

/// Loads the authorities that the system trusts.
fn system_authorities() -> Result<RootCertStore, String> {
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
    /// Verifies the chain. Its error about a wrong name is ignored. `None` accepts any certificate.
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl RelaxedVerifier {
    /// Returns a verifier that accepts any certificate.
    pub fn any_certificate(provider: Arc<CryptoProvider>) -> RelaxedVerifier {
        RelaxedVerifier { provider, verifier: None }
    }
}

impl ServerCertVerifier for RelaxedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        match verifier.verify_server_cert(certificate, intermediates, name, ocsp, now) {
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

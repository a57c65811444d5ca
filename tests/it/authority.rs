//! Certificates made in a test: a certificate authority, and a client that trusts it.

use crate::client::Client;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::tls_client::RelaxedVerifier;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, as PEM.
pub(crate) struct Made {
    /// The certificate, then the key.
    pub(crate) pem: String,
    serial: SerialNumber,
}

impl Authority {
    /// Creates an authority.
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a certificate for this name, valid for the loopback address.
    pub(crate) fn certificate(&self, name: &str) -> Made {
        self.certificate_until(name, 2090)
    }

    /// Returns a certificate that expires in a year.
    pub(crate) fn certificate_until(&self, name: &str, year: i32) -> Made {
        let mut params =
            CertificateParams::new(vec!["localhost".to_string(), "127.0.0.1".to_string()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "DE");
        params.distinguished_name.push(DnType::OrganizationName, "Vellum");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let serial = SerialNumber::from_slice(
            &key.public_key_raw()[1..9].iter().map(|b| b & 0x7F | 1).collect::<Vec<_>>(),
        );
        params.serial_number = Some(serial.clone());
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Made { pem: format!("{}{}", certificate.pem(), key.serialize_pem()), serial }
    }

    /// Returns a revocation list with a certificate.
    pub(crate) fn revoke(&self, made: &Made) -> String {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: made.serial.clone(),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// A folder of PEM files, removed at the end.
pub(crate) struct Files(PathBuf);

impl Files {
    /// Creates an empty folder.
    pub(crate) fn new(name: &str) -> Files {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Files(path)
    }

    /// Writes or replaces a file, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl std::ops::Deref for Files {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Leftovers are in the target directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// TLS settings of a test client.
pub(crate) struct Caller<'a> {
    /// Trusted authority; `None` accepts any certificate.
    pub(crate) trusts: Option<&'a Authority>,
    /// Client certificate.
    pub(crate) shows: Option<&'a Made>,
    /// Protocol version.
    pub(crate) version: Option<&'static SupportedProtocolVersion>,
}

impl Caller<'_> {
    /// Returns settings that accept any server and send no certificate.
    pub(crate) fn anonymous() -> Caller<'static> {
        Caller { trusts: None, shows: None, version: None }
    }

    /// Connects and completes the handshake. With TLS 1.3, a refused client certificate shows only at the first
    /// command.
    pub(crate) fn connect(&self, address: &str) -> io::Result<Client> {
        let stream = self.stream(address)?;
        let local = stream.sock.local_addr()?;
        Ok(Client::over(stream, local))
    }

    /// Opens a TLS stream, for clients of another protocol.
    pub(crate) fn stream(&self, address: &str) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = self.version.map_or(vec![&TLS12, &TLS13], |version| vec![version]);
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions).unwrap();
        let builder = match self.trusts {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
                builder.with_root_certificates(roots)
            }
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(RelaxedVerifier::any_certificate(provider))),
        };
        let config = match self.shows {
            None => builder.with_no_client_auth(),
            Some(made) => {
                let certificate = CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(made.pem.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(40)))?;
        let mut stream = StreamOwned::new(session, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }
}

//! MongoDB connection strings: hosts, credentials and TLS. A new option is a case in `Options::parse`.
//!
//! Options for pools, monitoring and read preferences have no meaning for a client with one connection and are ignored.
//! Options for credentials and TLS are honoured or refused by name.

use base::encoding;
use std::path::PathBuf;

/// MongoDB's default port.
const PORT: u16 = 27017;

/// A parsed connection string.
#[derive(Clone, PartialEq)]
pub struct ConnectionString {
    /// Hosts, each with its port.
    pub hosts: Vec<String>,
    /// Credentials, if any.
    pub login: Option<Login>,
    /// TLS options; `None` without TLS.
    pub tls: Option<TlsOptions>,
}

/// Credentials of a client.
#[derive(Clone, PartialEq)]
pub struct Login {
    /// The user's name; a certificate may name the user instead.
    pub user: Option<String>,
    /// The password, where the mechanism needs one.
    pub password: Option<String>,
    /// The authentication database.
    pub source: String,
    /// The mechanism; `None` lets the server choose.
    pub mechanism: Option<String>,
}

/// TLS options.
#[derive(Clone, Default, PartialEq)]
pub struct TlsOptions {
    /// File of the authorities that must have signed the server's certificate; the system's authorities by default.
    pub ca_file: Option<PathBuf>,
    /// File of the client's certificate and key.
    pub certificate_key_file: Option<PathBuf>,
    /// Password of the client's key.
    pub password: Option<String>,
    /// Whether to accept any certificate of the server.
    pub allow_invalid_certificates: bool,
    /// Whether to accept a certificate for another host name.
    pub allow_invalid_hostnames: bool,
}

impl ConnectionString {
    /// Parses a connection string or a bare `HOST:PORT`.
    ///
    /// # Errors
    /// Unsupported options, by name. No error contains a password.
    pub fn parse(text: &str) -> Result<ConnectionString, String> {
        if text.starts_with("mongodb+srv://") {
            return Err("mongodb+srv:// is not supported: use mongodb://HOST:PORT/".to_string());
        }
        let rest = match text.split_once("://") {
            Some(("mongodb", rest)) => rest,
            Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
                return Err(format!("{scheme}:// is not supported: use mongodb://HOST:PORT/"));
            }
            _ => text,
        };
        if rest.parse::<u16>().is_ok() {
            return Err(format!("{rest} is not a host: use mongodb://127.0.0.1:{rest}/"));
        }
        let (authority, path) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
        // A question mark may directly follow the hosts.
        let (database, query) = match rest.get(authority.len()..).is_some_and(|rest| rest.starts_with('?')) {
            true => ("", path),
            false => path.split_once('?').unwrap_or((path, "")),
        };
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let hosts: Vec<String> = hosts.split(',').filter(|host| !host.is_empty()).map(with_port).collect();
        if hosts.is_empty() {
            return Err("the connection string has no host; expected mongodb://HOST:PORT/".to_string());
        }
        let options = Options::parse(query)?;
        let login = options.login(user, &percent_decoded(database)?)?;
        Ok(ConnectionString { hosts, login, tls: options.tls_options()? })
    }
}

/// The supported options.
#[derive(Default)]
struct Options {
    tls: Option<bool>,
    tls_options: TlsOptions,
    source: Option<String>,
    mechanism: Option<String>,
}

impl Options {
    /// Parses the options, whose names are case-insensitive. Unknown options for TLS and authentication are errors; all
    /// other unknown options are ignored.
    fn parse(query: &str) -> Result<Options, String> {
        let mut options = Options::default();
        for pair in query.split(['&', ';']).filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("the option {pair} has no value"))?;
            let value = percent_decoded(value)?;
            let boolean = || match value.as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(format!("{name}: expected true or false")),
            };
            let tls_options = &mut options.tls_options;
            match name.to_ascii_lowercase().as_str() {
                "tls" | "ssl" => options.tls = Some(boolean()?),
                "tlscafile" => tls_options.ca_file = Some(value.into()),
                "tlscertificatekeyfile" => tls_options.certificate_key_file = Some(value.into()),
                "tlscertificatekeyfilepassword" => tls_options.password = Some(value),
                "tlsallowinvalidcertificates" => tls_options.allow_invalid_certificates = boolean()?,
                "tlsallowinvalidhostnames" => tls_options.allow_invalid_hostnames = boolean()?,
                "tlsinsecure" => {
                    tls_options.allow_invalid_certificates = boolean()?;
                    tls_options.allow_invalid_hostnames = boolean()?;
                }
                "authsource" => options.source = Some(value),
                "authmechanism" => options.mechanism = Some(value),
                lower if ["tls", "ssl", "auth"].iter().any(|start| lower.starts_with(start)) => {
                    return Err(format!("the option {name} is not supported"));
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// Builds the credentials. The authentication database is `authSource`, else the connection string's database, else
    /// `admin`; for certificates it is `$external`.
    fn login(&self, user: Option<&str>, database: &str) -> Result<Option<Login>, String> {
        let by_certificate = self.mechanism.as_deref() == Some("MONGODB-X509");
        if user.is_none() && !by_certificate {
            return match self.mechanism {
                Some(_) => Err("authMechanism needs a user".to_string()),
                None => Ok(None),
            };
        }
        let (user, password) = match user.unwrap_or_default().split_once(':') {
            Some((user, password)) => (percent_decoded(user)?, Some(percent_decoded(password)?)),
            None => (percent_decoded(user.unwrap_or_default())?, None),
        };
        let is_supported = matches!(
            self.mechanism.as_deref(),
            None | Some("SCRAM-SHA-1" | "SCRAM-SHA-256" | "MONGODB-X509")
        );
        if !is_supported {
            return Err(format!(
                "the mechanism {} is not supported",
                self.mechanism.as_deref().unwrap_or_default()
            ));
        }
        if password.is_none() && !by_certificate {
            return Err("the connection string has a user but no password".to_string());
        }
        let default_database = Some(database.to_string()).filter(|database| !database.is_empty());
        let source = match by_certificate {
            true => "$external".to_string(),
            false => self.source.clone().or(default_database).unwrap_or_else(|| "admin".to_string()),
        };
        let user = Some(user).filter(|user| !user.is_empty());
        Ok(Some(Login { user, password, source, mechanism: self.mechanism.clone() }))
    }

    fn tls_options(self) -> Result<Option<TlsOptions>, String> {
        match self.tls {
            Some(true) => Ok(Some(self.tls_options)),
            _ if self.tls_options == TlsOptions::default() => Ok(None),
            _ => Err("TLS options need tls=true".to_string()),
        }
    }
}

fn with_port(host: &str) -> String {
    // A colon inside brackets is part of an IPv6 address.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    if has_port { host.to_string() } else { format!("{host}:{PORT}") }
}

/// Decodes percent-encoded text (`%40`).
fn percent_decoded(text: &str) -> Result<String, String> {
    let invalid = "the connection string has an invalid percent encoding; a % has to be written as %25";
    encoding::from_percent(text).ok_or_else(|| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ConnectionString {
        ConnectionString::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn hosts_have_ports() {
        for (text, expected) in [
            ("mongodb://a", "a:27017"),
            ("a:5", "a:5"),
            ("mongodb://me:p%40ss@a:5,b/db?replicaSet=rs0", "a:5 b:27017"),
            ("mongodb://[::1]/?directConnection=true", "[::1]:27017"),
            ("mongodb://[::1]:7", "[::1]:7"),
            ("mongodb://a?w=1", "a:27017"),
        ] {
            assert_eq!(parsed(text).hosts.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn users_belong_to_a_database() {
        for (text, user, password, source) in [
            ("mongodb://me:p%40ss@a", "me", "p@ss", "admin"),
            ("mongodb://m%3Ae:x@a/app", "m:e", "x", "app"),
            ("mongodb://me:x@a/app?authSource=users", "me", "x", "users"),
            ("mongodb://me:@a/?authMechanism=SCRAM-SHA-1", "me", "", "admin"),
        ] {
            let login = parsed(text).login.unwrap();
            assert_eq!(
                (login.user.as_deref(), login.password.as_deref()),
                (Some(user), Some(password)),
                "{text}"
            );
            assert_eq!(login.source, source, "{text}");
        }
        assert!(parsed("mongodb://a/app").login.is_none());
        let login =
            parsed("mongodb://a/?authMechanism=MONGODB-X509&tls=true&tlsCertificateKeyFile=f").login.unwrap();
        assert_eq!((login.user, login.source.as_str()), (None, "$external"));
    }

    #[test]
    fn encryption_is_asked_for() {
        assert!(parsed("mongodb://a/?tls=false").tls.is_none());
        let tls =
            parsed("mongodb://a/?ssl=true&tlsCAFile=%2Fca.pem&tlsAllowInvalidHostnames=true").tls.unwrap();
        assert_eq!(tls.ca_file, Some(PathBuf::from("/ca.pem")));
        assert!(tls.allow_invalid_hostnames && !tls.allow_invalid_certificates);
        let tls = parsed("mongodb://a?TLS=true&tlsInsecure=true").tls.unwrap();
        assert!(tls.allow_invalid_hostnames && tls.allow_invalid_certificates);
    }

    #[test]
    fn unsupported_options_are_named() {
        for (text, part) in [
            ("mongodb+srv://a/", "is not supported"),
            ("mongodb:///", "no host"),
            ("mongodb://a/?tlsCAFile=x", "need tls=true"),
            ("mongodb://a/?tls=perhaps", "tls: expected"),
            ("mongodb://a/?tls=true&tlsCRLFile=x", "tlsCRLFile"),
            ("mongodb://a/?authMechanismProperties=x:y", "authMechanismProperties"),
            ("mongodb://me:x@a/?authMechanism=PLAIN", "PLAIN"),
            ("mongodb://me@a/", "no password"),
            ("http://a", "http:// is not supported"),
            ("27018", "use mongodb://127.0.0.1:27018/"),
            ("mongodb://me:%zz@a/", "%25"),
            ("mongodb://a/?authMechanism=SCRAM-SHA-1", "needs a user"),
        ] {
            let why = ConnectionString::parse(text).map(drop).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        let why = ConnectionString::parse("mongodb://me:secret%@a/").map(drop).unwrap_err();
        assert!(!why.contains("secret"), "{why}");
    }
}

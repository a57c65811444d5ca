//! Connection settings of the PostgreSQL server: libpq connection strings, in both forms.
//!
//! Unknown parameters are errors that name the parameter. A new parameter is a case in `Parameters::take`. Precedence
//! of the password: the string, the file of `passfile`, the environment.

use crate::stream::{Tls, TlsOptions};
use base::encoding::from_percent;
use std::fmt;
use std::time::Duration;

/// The accepted role of the server: libpq's `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    /// A primary or a standby.
    Any,
    /// The primary.
    ReadWrite,
}

/// A parsed connection string.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The hosts in the order of attempts. Each is a port and a host name, an address or the directory of a Unix
    /// socket.
    pub hosts: Vec<(String, u16)>,
    /// Name of the role.
    pub user: String,
    /// Name of the database.
    pub database: String,
    /// The password, if any.
    pub password: Option<String>,
    /// The kind of member to connect to.
    pub target_session_attrs: TargetSessionAttrs,
    /// Timeout for connecting to one member.
    pub connect_timeout: Duration,
    /// `application_name` of the connections.
    pub application: String,
    /// TLS settings.
    pub tls: Tls,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        write!(f, "{} as {} at {}", self.database, self.user, hosts.join(","))
    }
}

impl Config {
    /// Parses a connection string: `host=… port=…` or `postgres://…`. `environment` returns variables.
    ///
    /// Errors: a message for the user.
    pub fn parse(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, String> {
        let mut read = Parameters::default();
        for (name, value) in words(text)? {
            read.take(&name, value)?;
        }
        read.finish(environment)
    }

    /// Returns a connection string as `key=value` pairs, with `censored` in place of the password, or in place of an
    /// invalid string.
    pub fn redacted(text: &str, censored: &str) -> String {
        let Ok(words) = words(text) else { return censored.to_string() };
        let shown = words.iter().map(|(name, value)| match name.as_str() {
            "password" => format!("{name}={censored}"),
            _ if value.is_empty() || value.contains([' ', '\'', '\\']) => {
                format!("{name}='{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
            }
            _ => format!("{name}={value}"),
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}

/// The parsed parameters.
#[derive(Default)]
struct Parameters {
    hosts: Vec<String>,
    ports: Vec<u16>,
    user: Option<String>,
    database: Option<String>,
    password: Option<String>,
    passfile: Option<String>,
    target_session_attrs: Option<TargetSessionAttrs>,
    timeout: Option<u64>,
    application: Option<String>,
    tls: TlsOptions,
}

impl Parameters {
    /// Takes one parameter. Unknown names are errors that contain the name.
    fn take(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "host" | "hostaddr" => self.hosts = value.split(',').map(str::to_string).collect(),
            "port" => {
                let port = |port: &str| port.parse().map_err(|_| format!("port {port:?} is not a number"));
                self.ports = value.split(',').map(port).collect::<Result<_, String>>()?;
            }
            "user" => self.user = Some(value),
            "dbname" => self.database = Some(value),
            "password" => self.password = Some(value),
            "passfile" => self.passfile = Some(value),
            "application_name" => self.application = Some(value),
            "connect_timeout" => {
                let seconds =
                    value.parse().map_err(|_| format!("connect_timeout {value:?} is not a number"))?;
                self.timeout = Some(seconds);
            }
            "target_session_attrs" => {
                self.target_session_attrs = Some(match value.as_str() {
                    "any" => TargetSessionAttrs::Any,
                    "read-write" | "primary" => TargetSessionAttrs::ReadWrite,
                    other => {
                        return Err(format!(
                            "target_session_attrs={other} is not supported: use read-write or any"
                        ));
                    }
                });
            }
            "sslmode" => self.tls.mode = Some(value),
            "sslrootcert" => self.tls.root = Some(value),
            "sslcert" => self.tls.certificate = Some(value),
            "sslkey" => self.tls.key = Some(value),
            other => return Err(format!("the connection parameter {other} is not supported")),
        }
        Ok(())
    }

    /// Adds defaults and passwords from the environment and the password file.
    fn finish(self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Config, String> {
        let or = |given: Option<String>, name: &str| given.or_else(|| environment(name));
        let user = or(self.user, "PGUSER").unwrap_or_else(|| "postgres".to_string());
        let database = or(self.database, "PGDATABASE").unwrap_or_else(|| user.clone());
        let names = match self.hosts.is_empty() {
            true => vec![environment("PGHOST").unwrap_or_else(|| "localhost".to_string())],
            false => self.hosts,
        };
        let port = |at: usize| match self.ports.as_slice() {
            [] => Ok(5432),
            [one] => Ok(*one),
            several => several.get(at).copied().ok_or_else(|| {
                "the number of ports is less than the number \
             of hosts"
                    .to_string()
            }),
        };
        let hosts: Vec<(String, u16)> = names
            .into_iter()
            .enumerate()
            .map(|(at, host)| Ok((host, port(at)?)))
            .collect::<Result<_, String>>()?;
        let password = match (self.password, or(self.passfile, "PGPASSFILE")) {
            (Some(password), _) => Some(password),
            (None, Some(file)) => from_file(&file, &hosts, &database, &user)?,
            (None, None) => None,
        };
        Ok(Config {
            password: or(password, "PGPASSWORD"),
            target_session_attrs: self.target_session_attrs.unwrap_or(TargetSessionAttrs::ReadWrite),
            connect_timeout: Duration::from_secs(self.timeout.unwrap_or(10).max(1)),
            application: self.application.unwrap_or_else(|| "vellum".to_string()),
            tls: self.tls.finish(environment)?,
            hosts,
            user,
            database,
        })
    }
}

/// Returns the password of the first matching line of a password file: host, port, database, user, password. `*`
/// matches anything.
fn from_file(
    file: &str,
    hosts: &[(String, u16)],
    database: &str,
    user: &str,
) -> Result<Option<String>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let fits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
    let found = text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let [host, port, name, role, password] = line.splitn(5, ':').collect::<Vec<_>>().try_into().ok()?;
        let at = |(of, number): &(String, u16)| fits(host, of) && fits(port, &number.to_string());
        (hosts.iter().any(at) && fits(name, database) && fits(role, user)).then(|| password.to_string())
    });
    Ok(found)
}

/// Returns true if the text begins with the scheme of a URI. A key of a pair is followed by `=`.
fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| !scheme.contains(['=', ' ']))
}

/// Returns the parameters of a connection string in either form.
fn words(text: &str) -> Result<Vec<(String, String)>, String> {
    match ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme)) {
        Some(rest) => uri_words(rest),
        None if has_scheme(text) => {
            Err("not a connection string of libpq: expected postgres://… or key=value".to_string())
        }
        None => plain_words(text),
    }
}

/// Parses `name=value` pairs. Values with spaces are quoted.
fn plain_words(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or_else(|| format!("{rest:?} has no value"))?;
        let after = after.trim_start();
        let (quoted, mut chars) = match after.strip_prefix('\'') {
            Some(inner) => (true, inner.chars()),
            None => (false, after.chars()),
        };
        let mut value = String::new();
        loop {
            match chars.next() {
                Some('\\') => value.extend(chars.next()),
                Some('\'') if quoted => break,
                Some(c) if !quoted && c.is_whitespace() => break,
                Some(c) => value.push(c),
                None if quoted => return Err(format!("the value of {} has no closing quote", name.trim())),
                None => break,
            }
        }
        words.push((name.trim().to_string(), value));
        rest = chars.as_str().trim_start();
    }
    Ok(words)
}

/// Parses the rest of a URI: `user:password@host:port,host:port/database?name=value&…`.
fn uri_words(rest: &str) -> Result<Vec<(String, String)>, String> {
    let mut words = Vec::new();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (who, addresses) = match authority.rsplit_once('@') {
        Some((who, addresses)) => (who, addresses),
        None => ("", authority),
    };
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            words.push((name.to_string(), value));
        }
    };
    add("user", decoded(user)?);
    add("password", decoded(password)?);
    add("dbname", decoded(database)?);
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for host_and_port in addresses.split(',').filter(|host_and_port| !host_and_port.is_empty()) {
        let (host, port) = match host_and_port.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((address, after)) => (address, after.strip_prefix(':').unwrap_or("")),
            None => host_and_port.split_once(':').unwrap_or((host_and_port, "")),
        };
        hosts.push(decoded(host)?);
        ports.push(if port.is_empty() { "5432" } else { port });
    }
    add("host", hosts.join(","));
    add("port", ports.join(","));
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} has no value"))?;
        words.push((decoded(name)?, decoded(value)?));
    }
    Ok(words)
}

/// Decodes percent signs.
fn decoded(text: &str) -> Result<String, String> {
    from_percent(text)
        .ok_or_else(|| format!("{text:?} has a percent sign without a byte of UTF-8 in two digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, &|name| (name == "PGPASSWORD").then(|| "from the environment".to_string()))
    }

    #[test]
    fn both_forms_say_the_same() {
        let plain =
            parse("host=a,b port=1,2 user='some one' dbname=d password=p\\'q connect_timeout=3").unwrap();
        let uri = parse("postgres://some%20one:p%27q@a:1,b:2/d?connect_timeout=3").unwrap();
        assert_eq!(plain, uri);
        assert_eq!(plain.hosts, [("a".to_string(), 1), ("b".to_string(), 2)]);
        assert_eq!((plain.user.as_str(), plain.password.as_deref()), ("some one", Some("p'q")));
        assert_eq!(format!("{plain:?}"), "d as some one at a:1,b:2");
    }

    #[test]
    fn omitted_settings_have_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.hosts, [("localhost".to_string(), 5432)]);
        assert_eq!((config.user.as_str(), config.database.as_str()), ("postgres", "postgres"));
        assert_eq!(config.password.as_deref(), Some("from the environment"));
        assert_eq!(config.target_session_attrs, TargetSessionAttrs::ReadWrite);
        assert_eq!(parse("host=a,b port=7").unwrap().hosts[1].1, 7);
    }

    #[test]
    fn unknown_settings_are_refused_by_name() {
        for (text, part) in [
            ("sslmode=verify-full", "verify-full need sslrootcert"),
            ("sslmode=verify", "unknown sslmode=verify"),
            ("sslmode=require sslcert=x", "sslcert needs sslkey"),
            ("sslmode=require sslrootcert=/there/is/none", "/there/is/none: No such file"),
            ("sslrootcert=system", "needs sslmode=verify-full"),
            ("sslcrl=x", "the connection parameter sslcrl is not supported"),
            ("krbsrvname=x", "krbsrvname"),
            ("port=x", "\"x\" is not a number"),
            ("host=a,b,c port=1,2", "number of ports"),
            ("host", "has no value"),
            ("user='x", "no closing quote"),
            ("postgres://%zz@a", "percent sign"),
            ("mysql://x", "expected postgres://… or key=value"),
            ("mongodb://u@x/d?a=b", "not a connection string of libpq"),
            ("target_session_attrs=standby", "use read-write or any"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

//! Messages when clients can connect: on standard output for people, and as log lines.

use crate::config::Config;
use server::{Settings, TlsMode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State of the data at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    /// The memory engine has no stored data.
    Memory,
    /// The data is in a remote store, which other servers may share.
    Shared,
    /// No journal was replayed.
    Clean,
    /// This number of commits was replayed from the journal.
    Recovered(u64),
}

impl Start {
    fn text(self) -> String {
        match self {
            Start::Memory => "empty".to_string(),
            Start::Shared => "connected".to_string(),
            Start::Clean => "clean, nothing to recover".to_string(),
            Start::Recovered(1) => "recovered, 1 commit replayed from the journal".to_string(),
            Start::Recovered(count) => format!("recovered, {count} commits replayed from the journal"),
        }
    }
}

/// Returns the text for people. Programs read the first line, the connection string.
pub(crate) fn banner(address: SocketAddr, config: &Config, start: Start, http: Option<&str>) -> String {
    let uri = connection_string(address, &config.settings);
    let data = match (&config.disk, &config.postgres) {
        (Some(disk), _) => disk.directory.display().to_string(),
        (None, Some((server, schema))) => format!("schema {schema} of {server:?}"),
        (None, None) => "in memory".to_string(),
    };
    // The paths of these files on the client's machine are unknown.
    let tls_flags = match config.settings.tls.as_ref().map(|tls| tls.wants_certificates()) {
        None => "",
        Some(false) => " --tlsCAFile FILE",
        Some(true) => " --tlsCAFile FILE --tlsCertificateKeyFile FILE",
    };
    let http = http.map(|url| format!("http: {url}\n")).unwrap_or_default();
    format!(
        "{uri}\n{}\n\
         Vellum {}, process {}, listening on {address}\n\
         data: {data}; start: {}\n{http}\
         try: mongosh '{uri}'{tls_flags}\n",
        config.durability_text,
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        start.text(),
    )
}

/// Logs the same facts. The last line has the text and id that tools wait for.
pub(crate) fn log_start(
    address: SocketAddr,
    config: &Config,
    start: Start,
    awaits_initiation: bool,
    http: Option<&str>,
) {
    let settings = &config.settings;
    if settings.ephemeral {
        server::logging::startup_note("The memory engine is in use: all data is lost when this server stops");
    }
    if !settings.bind.is_loopback() && !settings.auth {
        server::logging::startup_warning(&format!(
            "Access control is not enabled (--auth): any client that reaches {} can read and write all data",
            settings.bind
        ));
    }
    if let (Some(options), false) = (&settings.http, settings.auth)
        && !options.address.ip().is_loopback()
    {
        server::logging::startup_warning(&format!(
            "Access control is not enabled (--auth): any HTTP client that reaches {} can read metrics and \
             collection names",
            options.address
        ));
    }
    let uri = connection_string(address, settings);
    if let Some(limit) = &settings.memory_limit {
        let needed = config.disk.as_ref().map_or(0, |disk| disk.cache_bytes / 2 * 3);
        if needed > limit.bytes {
            server::logging::startup_warning(&format!(
                "--cache-size and changes in memory can take {} MB, and the memory limit is {} MB ({})",
                needed >> 20,
                limit.bytes >> 20,
                limit.from
            ));
        }
        log::info!(
            c = "CONTROL", limitMB = limit.bytes >> 20, from = limit.from.as_str();
            "Memory limit of this process"
        );
    }
    let directory = config.disk.as_ref().map(|disk| disk.directory.display().to_string()).unwrap_or_default();
    log::info!(
        c = "CONTROL", version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), engine = settings.engine,
        durability = durability(config), data = directory.as_str(), start = start.text().as_str(), uri = uri.as_str();
        "Vellum has started"
    );
    if let Some(url) = http {
        log::info!(c = "NETWORK", url = url; "HTTP is served");
    }
    if awaits_initiation {
        let set = settings.replica_set.as_deref().unwrap_or_default();
        log::info!(id = 21313, c = "REPL", set = set; "Did not find local replica set configuration document at startup");
    } else if let Some(name) = &settings.replica_set {
        log::info!(
            id = 21331, c = "REPL", set = name.as_str();
            "Transition to primary complete; database writes are now permitted"
        );
    }
    let ssl = if settings.tls.is_some() { "on" } else { "off" };
    log::info!(id = 23016, c = "NETWORK", port = address.port(), ssl = ssl; "Waiting for connections");
}

fn durability(config: &Config) -> &'static str {
    match config.disk.as_ref().map(|disk| disk.durability) {
        None if config.postgres.is_some() => "as configured in PostgreSQL",
        None => "in memory",
        Some(storage::Durability::None) => "none",
        Some(storage::Durability::Relaxed) => "relaxed",
        Some(storage::Durability::Journaled) => "journaled",
    }
}

/// Returns the connection string for clients.
pub(crate) fn connection_string(address: SocketAddr, settings: &Settings) -> String {
    let reachable = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let host = match &settings.advertise {
        Some(advertised) => advertised.clone(),
        None => SocketAddr::new(reachable, address.port()).to_string(),
    };
    let mut options = Vec::new();
    if let Some(name) = &settings.replica_set {
        options.push(format!("replicaSet={name}"));
    }
    if settings.tls.as_ref().is_some_and(|tls| tls.mode() != TlsMode::Allow) {
        options.push("tls=true".to_string());
    }
    match options.is_empty() {
        true => format!("mongodb://{host}/"),
        false => format!("mongodb://{host}/?{}", options.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_string_is_one_that_connects() {
        let everywhere: SocketAddr = ([0, 0, 0, 0], 5).into();
        let mut settings = Settings::default();
        assert_eq!(connection_string(everywhere, &settings), "mongodb://127.0.0.1:5/");
        settings.replica_set = Some("rs0".to_string());
        assert_eq!(connection_string(everywhere, &settings), "mongodb://127.0.0.1:5/?replicaSet=rs0");
        settings.advertise = Some("db:7".to_string());
        assert_eq!(connection_string(everywhere, &settings), "mongodb://db:7/?replicaSet=rs0");
    }

    #[test]
    fn the_banner_reports_recovery() {
        assert_eq!(Start::Recovered(1).text(), "recovered, 1 commit replayed from the journal");
        assert!(Start::Recovered(5).text().contains("5 commits"));
    }
}

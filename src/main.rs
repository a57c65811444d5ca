//! The `vellum` binary: options merged into one checked configuration, then one verb.

mod arenas;
mod config;
mod repair;

use clap::Parser;
use config::{Cli, Config, Work};
use database::{Database, SettableClock};
use server::{Server, Settings};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use storage::{DiskEngine, Engine, MemoryEngine};

fn main() -> ExitCode {
    let work = Cli::parse().into_work(std::env::args().collect()).unwrap_or_else(|error| error.exit());
    let served = match work {
        Work::Serve(config) if config.repair => repair::repair(&config),
        Work::Serve(config) => serve(*config),
        Work::Lab(options) => return lab::run(*options),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // Nobody is left to be told when standard error is gone.
            let _ = writeln!(io::stderr(), "vellum: {message}");
            ExitCode::FAILURE
        }
    }
}

fn serve(config: Config) -> Result<(), String> {
    server::logging::start(config.log_level);
    log_panics();
    if config.disk.is_some() {
        arenas::limit();
    }
    let (bind, port) = (config.settings.bind, config.settings.port);
    if !bind.is_loopback() {
        log::warn!("listening on {bind} without users: anyone who reaches it can read and write");
    }
    let disk = match &config.disk {
        Some(options) => {
            let disk = DiskEngine::open(options).map_err(|error| error.to_string())?;
            // Behind the engine's lock: no other process uses the directory.
            let temporary = options.directory.join("_tmp");
            database::spill_into(&temporary).map_err(|error| format!("{}: {error}", temporary.display()))?;
            Some(Arc::new(disk))
        }
        None => None,
    };
    let engine: Arc<dyn Engine> = match &disk {
        Some(disk) => disk.clone(),
        None => Arc::new(MemoryEngine::new()),
    };
    let clock = Arc::<SettableClock>::default();
    let database = Database::open_with(engine, clock, server::seed(), config.log);
    let database = database.map_err(|error| format!("cannot open the database: {error}"))?;
    let server = Arc::new(Server::new(config.settings.clone(), database.clone()));
    if config.parent_pipe {
        stop_with_parent(server.clone());
    }
    let announce = |address| {
        let text = format!("{}\n{}\n", connection_string(address, &config.settings), config.promise);
        let mut out = io::stdout();
        // Whoever closed standard output doesn't want to know.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };
    let served = server::serve(&server, announce).map_err(|error| explain(&error, bind, port));
    if config.settings.strict {
        report(&database);
    }
    // Here and not when the last reference goes, so that the process doesn't end before it is done.
    let closed = disk.map_or(Ok(()), |disk| disk.close());
    served.and(closed.map_err(|error| format!("closing the data directory: {error}")))
}

/// Tells what `--strict` found, whatever the log's level: it was asked for.
fn report(database: &Database) {
    let lines = database.strict_report().lines().into_iter();
    let text: String = lines.map(|line| format!("strict: {line}\n")).collect();
    // Whoever closed standard error doesn't want to know.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// What clients are given: the first line printed.
fn connection_string(address: SocketAddr, settings: &Settings) -> String {
    let reachable = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let host = match &settings.advertise {
        Some(advertised) => advertised.clone(),
        None => SocketAddr::new(reachable, address.port()).to_string(),
    };
    match &settings.replica_set {
        Some(name) => format!("mongodb://{host}/?replicaSet={name}"),
        None => format!("mongodb://{host}/"),
    }
}

fn explain(error: &io::Error, bind: IpAddr, port: u16) -> String {
    let address = SocketAddr::new(bind, port);
    match error.kind() {
        ErrorKind::AddrInUse => format!(
            "cannot listen on {address}: the port is in use. Choose another with --port, or --port 0 for a free one."
        ),
        ErrorKind::AddrNotAvailable => {
            format!("cannot listen on {address}: this machine has no such address.")
        }
        ErrorKind::PermissionDenied => {
            format!("cannot listen on {address}: not permitted. Ports below 1024 often need privileges.")
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

/// Stops the server when standard input ends, as it does when the parent process does.
fn stop_with_parent(server: Arc<Server>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(1..) = io::stdin().read(&mut buffer) {}
        log::info!("standard input closed: stopping");
        server.stop();
    });
}

/// Panics go to the log, so that getLog shows them; the connection concerned is closed.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        log::error!("{panic}\n{backtrace}");
    }));
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
}

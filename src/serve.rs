//! Starts the engine, the database and the server, and serves.
//!
//! Order: log, signals, data directory, scripts, engine, database, server, parameters, first user, PID file, listening.
//! Each step may rely on the steps before it. A failed step returns a `Failure`, whose kind decides the exit code.

use crate::banner::{self, Start};
use crate::config::{Config, StartupOutput};
use crate::failure::{Failure, Kind, Purpose, error_message};
use crate::{init_scripts, process};
use base::bson::{Builder, FieldName, Value};
use database::{Clock, Database, SettableClock};
use postgres::PostgresStore;
use server::logging::Destination;
use server::{LocalConnection, Server};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{DiskEngine, DiskOptions, Engine, MemoryEngine, threads};

/// Divisor: sorters of an index build spill at this share of the process's memory.
const BUILD_SHARE: u64 = 16;

/// Hint for a server with access control and without users.
const NO_USERS: &str = "Access control is enabled (--auth), but no user exists. Create the first user on \
 this machine, in mongosh: use admin, then \
    db.createUser({user: 'root', pwd: passwordPrompt(), roles: ['root']}); or start a new server with \
    MONGO_INITDB_ROOT_USERNAME and MONGO_INITDB_ROOT_PASSWORD in its environment";

/// Serves until a signal or the server's stop.
pub(crate) fn serve(config: Config) -> Result<(), Failure> {
    start_log(&config)?;
    log_panics();
    process::leave_terminal();
    if config.repair {
        return crate::failure::repair(&config).map_err(|why| Failure::new(Kind::Data, why));
    }
    let stop = process::watch_signals(config.settings.tls.clone())
        .map_err(|error| Failure::new(Kind::Other, format!("cannot watch for signals: {error}")))?;
    let mut config = config;
    config.settings.data = config.disk.as_ref().map(|disk| disk.directory.clone());
    check_disk(&mut config)?;
    init_scripts::run(&config, &stop)?;
    if stop.is_received() {
        return Ok(());
    }
    let is_new = init_scripts::is_new(&config);
    let descriptor_limit = process::raise_descriptor_limit()
        .filter(|descriptor_limit| *descriptor_limit < config.settings.connections_max);
    config.settings.connections_max = descriptor_limit.unwrap_or(config.settings.connections_max);
    let (bind, port) = (config.settings.bind, config.settings.port);
    let disk = open_disk(&config)?;
    if let Some(descriptor_limit) = descriptor_limit {
        log::info!(
            "at most {descriptor_limit} connections: the limit of open files (ulimit -n) allows no more"
        );
    }
    let start = match &disk {
        None if config.postgres.is_some() => Start::Shared,
        None => Start::Memory,
        Some(disk) if disk.replayed() == 0 => Start::Clean,
        Some(disk) => Start::Recovered(disk.replayed()),
    };
    let clock: Arc<dyn Clock> = Arc::<SettableClock>::default();
    let database = match &config.postgres {
        Some((server, schema)) => open_postgres(server.clone(), (schema, config.shared_oplog), clock)?,
        None => {
            let engine: Arc<dyn Engine> = match &disk {
                Some(disk) => disk.clone(),
                None => Arc::new(MemoryEngine::new()),
            };
            let database = Database::open_with(engine, clock, server::seed(), config.oplog);
            database.inspect(|database| database.drop_temporary_collections())
        }
    };
    let unopened =
        |error: base::Error| Failure::new(Kind::Data, format!("cannot open the database: {error}"));
    let database = database.map_err(unopened)?;
    if let Some(disk) = &config.disk {
        // Runs under the engine's lock, so no other process uses the directory.
        let temporary = disk.directory.join("_tmp");
        database
            .spill_into(&temporary)
            .map_err(|error| Failure::new(Kind::Data, format!("{}: {error}", temporary.display())))?;
        // The sorter of an index build uses memory in addition to the cache.
        database.set_build_memory(disk.cache_bytes / 4);
    }
    if let Some(limit) = &config.settings.memory_limit {
        database.lower_build_memory(limit.bytes / BUILD_SHARE);
    }
    let server = Arc::new(Server::new(config.settings.clone(), database.clone()).map_err(unopened)?);
    let stopped = Arc::downgrade(&server);
    stop.set_action(move || _ = stopped.upgrade().map(|server| server.stop()));
    set_parameters(&server, &[("maxSnapshotHistoryBytes".to_owned(), history_bytes(&config).to_string())])?;
    set_parameters(&server, &config.parameters)?;
    if let Some(user) = config.first_user.as_ref().filter(|_| is_new) {
        user.create(&server).map_err(|why| Failure::new(Kind::Options, why))?;
    }
    if config.settings.auth && config.startup_output == StartupOutput::Banner && !has_users(&server) {
        config.warnings.push(NO_USERS.to_string());
    }
    let pid_file = config.pid_file.as_deref().map(PidFile::write).transpose()?;
    if config.parent_pipe {
        stop_with_parent(server.clone())
            .map_err(|error| Failure::new(Kind::Other, format!("--parent-pipe: {error}")))?;
    }
    let served = match stop.is_received() {
        true => Ok(()),
        false => server::serve(&server, |address| announce(address, &config, start, &server)),
    };
    let served = served.map_err(|error| Failure::new(Kind::Address, listen_error(&error, bind, port)));
    if config.settings.strict {
        print_strict_report(&database);
    }
    drop(pid_file);
    // An explicit close, so that the process does not end before it is complete.
    let closed = disk.map_or(Ok(()), |disk| disk.close());
    served
        .and(closed.map_err(|error| Failure::new(Kind::Data, format!("closing the data directory: {error}"))))
}

/// Starts the log.
pub(crate) fn start_log(config: &Config) -> Result<(), Failure> {
    server::logging::start(&config.log).map_err(|error| {
        let option = config.option_name("--log-file", "--logpath");
        let path = match &config.log.to {
            Destination::File { path, .. } => format!(" {}", path.display()),
            _ => String::new(),
        };
        Failure::of_options(format!("{option}{path}: cannot open the log: {error}"))
    })
}

/// Returns the page's address with the token for changes. Browsers do not send the part after `#`.
/// The log has the address too: without access control a reader of the log can change everything
/// through the database's port anyway.
fn with_token(url: Option<String>, server: &Server) -> Option<String> {
    url.map(|url| match server.http_token() {
        Some(token) => format!("{url}#{token}"),
        None => url,
    })
}

fn open_disk(config: &Config) -> Result<Option<Arc<DiskEngine>>, Failure> {
    let Some(options) = &config.disk else { return Ok(None) };
    let disk = DiskEngine::open(options).map_err(|error| data_failure(&error, config, options))?;
    Ok(Some(Arc::new(disk)))
}

/// Refuses a data directory that is not Vellum's before the first write. Warns if Vellum's
/// directory has MongoDB's files.
fn check_disk(config: &mut Config) -> Result<(), Failure> {
    if let (Some(options), true) = (&mut config.disk, config.init_scripts.is_some()) {
        options.other_files.push(init_scripts::unfinished(&options.directory));
    }
    let Some(options) = &config.disk else { return Ok(()) };
    let mongodb_files = DiskEngine::check(options).map_err(|error| data_failure(&error, config, options))?;
    config.warnings.extend(mongodb_files.map(|mongodb_files| {
        format!(
            "{} holds MongoDB's files ({mongodb_files}) beside Vellum's. The server reads only Vellum's. Copy \
             MongoDB's data with mongodump and mongorestore (see docs/moving.md)",
            options.directory.display()
        )
    }));
    Ok(())
}

fn data_failure(error: &storage::Error, config: &Config, options: &DiskOptions) -> Failure {
    let purpose = match config.startup_output {
        StartupOutput::Banner => Purpose::Serve,
        StartupOutput::Nothing => Purpose::Mongod,
    };
    Failure::new(Kind::Data, error_message(error, &options.directory, purpose))
}

fn open_postgres(
    server: postgres::Config,
    (schema, log_bytes): (&str, Option<u64>),
    clock: Arc<dyn Clock>,
) -> Result<base::Result<Arc<Database>>, Failure> {
    let described = format!("{server:?}");
    let store = PostgresStore::open(server, schema, postgres::Limits::default(), log_bytes);
    let store = store.map_err(|error| Failure::new(Kind::Data, format!("{described}: {error}")))?;
    Ok(Database::open_on(Arc::new(store), clock, server::seed()))
}

fn announce(address: SocketAddr, config: &Config, start: Start, server: &Server) {
    let tls_warnings = config.settings.tls.as_ref().map(|tls| tls.warnings()).unwrap_or_default();
    for warning in config.warnings.iter().chain(&tls_warnings) {
        server::logging::startup_warning(warning);
    }
    let http = with_token(server.http_url(), server);
    banner::log_start(address, config, start, server.awaits_initiation(), http.as_deref());
    if config.startup_output == StartupOutput::Banner {
        let text = banner::banner(address, config, start, http.as_deref());
        let mut out = io::stdout();
        // A closed standard output is not an error.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
    process::ready();
}

/// Returns the default limit of replaced documents for old snapshots, in bytes: the cache size, at
/// most 512 MiB, and at most a quarter of the memory limit.
fn history_bytes(config: &Config) -> u64 {
    let cache = config.disk.as_ref().map_or(u64::MAX, |disk| disk.cache_bytes);
    let limit = config.settings.memory_limit.as_ref().map_or(u64::MAX, |limit| limit.bytes / 4);
    cache.min(limit).clamp(1, 512 << 20)
}

/// Sets parameters with a client's command, before clients can connect.
fn set_parameters(server: &Arc<Server>, parameters: &[(String, String)]) -> Result<(), Failure> {
    let mut connection = LocalConnection::of_server(server);
    for (name, text) in parameters {
        let value = match (text.as_str(), text.parse::<i64>(), text.parse::<f64>()) {
            ("true", ..) => Value::Boolean(true),
            ("false", ..) => Value::Boolean(false),
            (_, Ok(number), _) => Value::Int64(number),
            (_, _, Ok(number)) => Value::Double(number),
            (text, ..) => Value::String(text),
        };
        let field = FieldName::new(name).map_err(|_| {
            Failure::new(Kind::Options, format!("--setParameter {name:?}: a name cannot contain a zero byte"))
        })?;
        let mut command = Builder::new();
        command.append(c"setParameter", 1).append(field, value).append(c"$db", "admin");
        let reply = connection.command(command.finish().view());
        let refused = match &reply {
            None => Some("no answer"),
            Some(reply) if reply.view().get("ok").and_then(|ok| ok.as_i64()) == Some(1) => None,
            Some(reply) => Some(reply.view().get("errmsg").and_then(|why| why.as_str()).unwrap_or("refused")),
        };
        if let Some(why) = refused {
            return Err(Failure::new(Kind::Options, format!("--setParameter {name}={text}: {why}")));
        }
    }
    Ok(())
}

/// Returns true if any user exists.
fn has_users(server: &Arc<Server>) -> bool {
    let mut command = Builder::new();
    command.append(c"count", "system.users").append(c"$db", "admin");
    let reply = LocalConnection::of_server(server).command(command.finish().view());
    let count = reply.and_then(|reply| reply.view().get("n").and_then(|count| count.as_i64()));
    count != Some(0)
}

/// A file with the process id, removed at the server's end.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: &Path) -> Result<PidFile, Failure> {
        let written = std::fs::write(path, format!("{}\n", std::process::id()));
        written.map_err(|error| Failure::of_options(format!("--pidfilepath {}: {error}", path.display())))?;
        Ok(PidFile(path.to_path_buf()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another process may have removed the file already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Prints the findings of `--strict` at any log level, since the user requested them.
fn print_strict_report(database: &Database) {
    let lines = database.strict_report().lines().into_iter();
    let text: String = lines.map(|line| format!("strict: {line}\n")).collect();
    // A closed standard error is not an error.
    let _ = io::stderr().write_all(text.as_bytes());
}

fn listen_error(error: &io::Error, bind: IpAddr, port: u16) -> String {
    // The HTTP listener's error already names the address.
    if error.get_ref().is_some() {
        return format!("cannot listen: {error}");
    }
    let address = SocketAddr::new(bind, port);
    match error.kind() {
        ErrorKind::AddrInUse => format!(
            "cannot listen on {address}: Address already in use. Choose another with --port, or --port 0 for a free one."
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

/// Stops the server at the end of standard input, which also ends with the parent process.
///
/// Errors: the thread cannot start.
fn stop_with_parent(server: Arc<Server>) -> io::Result<()> {
    let watch = move || {
        let mut buffer = [0; 256];
        while let Ok(1..) = io::stdin().read(&mut buffer) {}
        log::info!("standard input closed: stopping");
        server.stop();
    };
    threads::spawn("vellum-parent", None, watch).map(drop)
}

/// Writes panics to the log, so that getLog has them. The affected connection is closed.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        log::error!("{panic}\n{backtrace}");
    }));
}

//! Targets: the measured servers, given on the command line or started by the lab.
//!
//! All targets have the same few operations: a connection for each worker, processor time and memory of a local server,
//! its durability ([`fingerprint`]), and errors with the target's name. A server started by the lab ends with the last
//! clone of its [`Target`].

mod address;
mod counters;
mod fingerprint;
mod launch;
pub(crate) mod machine;
pub(crate) mod null_server;
mod postgres;
mod workspace;

pub(crate) use address::without_secrets;
pub(crate) use counters::{Counters, sizes};
pub(crate) use launch::{
    backed_up, durability_levels, null_server as start_null_server, placements, program, restored,
    start_copy, start_mongod,
};
pub(crate) use machine::Usage;
pub(crate) use null_server::COMMAND as NULL_SERVER_ANSWERS;
pub(crate) use postgres::{clusters, has_documentdb, start_ferretdb, start_members};
pub(crate) use workspace::{Scratch, Workspace};

use crate::options::TargetArgument;
use crate::result::TargetInfo;
use crate::{Error, Result};
use launch::Started;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, ServerAddress, ServerMonitoringMode, Tls};
use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_postgres::NoTls;

/// Timeout for reaching a target.
const REACH: Duration = Duration::from_secs(5);

/// Heartbeat interval of a client. It is long, because heartbeats cost the server uncounted time, and the next
/// operation detects a lost server.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// Protocol of a target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Mongo,
    Postgres,
}

/// A server to measure. Clones are handles of one server.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Name of the target, from the command line or the lab.
    pub(crate) name: String,
    /// Connection string with password: print [`TargetInfo::uri`] instead.
    pub(crate) uri: String,
    pub(crate) protocol: Protocol,
    /// True for the null server, which returns fixed replies. Its figures are the baseline of other targets.
    pub(crate) is_null_server: bool,
    client: Arc<ClientSettings>,
    /// Process of the server, if it is local and owns its listening socket.
    process: Option<u32>,
    /// Name of the lab's database on the target, once created.
    workspace: Arc<OnceLock<String>>,
    /// Process that ends with this target.
    started: Option<Arc<Started>>,
}

/// A validated connection string.
#[derive(Debug)]
enum ClientSettings {
    Mongo(Box<ClientOptions>),
    Postgres(Box<tokio_postgres::Config>),
}

impl Target {
    /// Connects to a server of the command line.
    ///
    /// # Errors
    /// An invalid connection string, or no answer within five seconds.
    pub(crate) async fn connect(given: &TargetArgument) -> Result<Target> {
        Target::reach(given, None).await
    }

    /// Connects to a server, which the lab may have started.
    async fn reach(given: &TargetArgument, started: Option<Started>) -> Result<Target> {
        let (protocol, client) = match given.uri.starts_with("postgres") {
            true => (Protocol::Postgres, parse_postgres(given)?),
            false => (Protocol::Mongo, parse_mongo(given).await?),
        };
        let mut target = Target {
            name: given.name.clone(),
            uri: given.uri.clone(),
            protocol,
            is_null_server: false,
            client: Arc::new(client),
            process: None,
            workspace: Arc::default(),
            started: started.map(Arc::new),
        };
        target.check_reachable().await?;
        target.process = machine::listener(&address::local(&target.addresses()));
        Ok(target)
    }

    /// Checks first that a server listens, then that it speaks the protocol. Users fix these two errors in different
    /// ways.
    async fn check_reachable(&self) -> Result<()> {
        let addresses = self.addresses();
        if let Err(why) = address::reach(&addresses, REACH).await {
            return Err(self.error(why));
        }
        tokio::time::timeout(REACH, self.handshake()).await.unwrap_or_else(|_| {
            Err(self.error(format!("accepts connections but does not reply within {} s", REACH.as_secs())))
        })
    }

    /// Opens a connection and waits until the server answers on it.
    pub(crate) async fn handshake(&self) -> Result<()> {
        match self.protocol {
            Protocol::Mongo => self.mongo().await.map(drop),
            Protocol::Postgres => self.postgres().await.map(drop),
        }
    }

    /// Returns a client with exactly one open connection, for one worker. It retries nothing, so every timed operation
    /// is one command.
    ///
    /// # Errors
    /// No answer, or a target of the other protocol.
    pub(crate) async fn mongo(&self) -> Result<mongodb::Client> {
        let ClientSettings::Mongo(options) = &*self.client else {
            return Err(self.error("is PostgreSQL, which this experiment does not support"));
        };
        let client = mongodb::Client::with_options(options.as_ref().clone()).map_err(|e| self.error(e))?;
        client.database("admin").run_command(doc! { "ping": 1 }).await.map_err(|e| self.error(e))?;
        Ok(client)
    }

    /// Runs a command on `admin` over a new connection.
    pub(crate) async fn ask(&self, command: Document) -> Result<Document> {
        let requested = self.mongo().await?.database("admin").run_command(command).await;
        requested.map_err(|error| self.error(error))
    }

    /// Returns the names of its databases; PostgreSQL: of its schemas.
    pub(crate) async fn databases(&self) -> Result<Vec<String>> {
        if self.protocol == Protocol::Postgres {
            let rows = self.postgres().await?.query("SELECT nspname::text FROM pg_namespace", &[]).await;
            let rows = rows.map_err(|error| self.error(ErrorChain(&error)))?;
            return Ok(rows.iter().filter_map(|row| row.try_get(0).ok()).collect());
        }
        let listed = self.ask(doc! { "listDatabases": 1, "nameOnly": true }).await?;
        let all = listed.get_array("databases").map_err(|_| self.error("lists no databases"))?;
        let names = all.iter().filter_map(|each| each.as_document()?.get_str("name").ok());
        Ok(names.map(str::to_string).collect())
    }

    /// Drops databases; PostgreSQL: schemas.
    pub(crate) async fn drop_databases(&self, names: impl IntoIterator<Item = &String>) -> Result<()> {
        for name in names {
            match self.protocol {
                Protocol::Postgres => self.execute(&format!("DROP SCHEMA {name} CASCADE")).await?,
                Protocol::Mongo => {
                    let dropped = self.mongo().await?.database(name).drop().await;
                    dropped.map_err(|error| self.error(error))?;
                }
            }
        }
        Ok(())
    }

    /// Runs a statement of PostgreSQL over a new connection.
    async fn execute(&self, statement: &str) -> Result<()> {
        let client = self.postgres().await?;
        client.batch_execute(statement).await.map_err(|error| self.error(ErrorChain(&error)))
    }

    /// Returns a connection to a PostgreSQL target. Unqualified names refer to the lab's own schema once it exists.
    ///
    /// # Errors
    /// No answer, or a target of the other protocol.
    pub(crate) async fn postgres(&self) -> Result<tokio_postgres::Client> {
        let ClientSettings::Postgres(config) = &*self.client else {
            return Err(self.error("is not PostgreSQL"));
        };
        let (client, connection) = config.connect(NoTls).await.map_err(|e| self.error(ErrorChain(&e)))?;
        // The task ends with the client. If the server fails, calls of the client report it.
        tokio::spawn(connection);
        if let Some(schema) = self.workspace.get() {
            let path = format!("SET search_path TO {schema}");
            client.batch_execute(&path).await.map_err(|e| self.error(ErrorChain(&e)))?;
        }
        Ok(client)
    }

    /// Returns the name of the lab's database (PostgreSQL: schema) on the target.
    ///
    /// # Errors
    /// No [`Workspace`] has been created.
    pub(crate) fn database(&self) -> Result<&str> {
        self.workspace.get().map(String::as_str).ok_or_else(|| self.error("has no database of this run yet"))
    }

    /// Returns an error with this target's name, and with the relevant part of a driver's long text.
    pub(crate) fn error(&self, error: impl Display) -> Error {
        Error::Target { name: self.name.clone(), message: short_message(&error.to_string()) }
    }

    /// Returns processor time and memory of the server's processes, if they are local.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let own = machine::usage(self.process?)?;
        Some(self.started.as_ref().map_or(own, |started| own.and(started.backend_usage())))
    }

    /// Returns true if none of its addresses is on this machine.
    pub(crate) fn is_remote(&self) -> bool {
        address::local(&self.addresses()).is_empty()
    }

    /// Returns true if the lab started it, so that all its data is the lab's.
    pub(crate) fn is_started(&self) -> bool {
        self.started.is_some()
    }

    /// Returns its properties and durability, as measured now.
    pub(crate) async fn info(&self) -> TargetInfo {
        let fingerprint = fingerprint::take(self).await;
        TargetInfo { name: self.name.clone(), uri: address::without_secrets(&self.uri), fingerprint }
    }

    /// Returns a note on encryption and authentication of the measured traffic, since both cost time.
    fn traffic(&self) -> String {
        let (encrypted, user) = match &*self.client {
            ClientSettings::Mongo(options) => {
                (matches!(options.tls, Some(Tls::Enabled(_))), options.credential.is_some())
            }
            // The lab connects to PostgreSQL without TLS.
            ClientSettings::Postgres(config) => (false, config.get_user().is_some()),
        };
        let encrypted = if encrypted { "encrypted by TLS" } else { "not encrypted" };
        let user = if user { "by a user" } else { "without a user" };
        format!("{encrypted}, {user}")
    }

    /// Returns the addresses in the connection string.
    fn addresses(&self) -> Vec<ServerAddress> {
        match &*self.client {
            ClientSettings::Mongo(options) => options.hosts.clone(),
            ClientSettings::Postgres(config) => address::of_postgres(config),
        }
    }
}

/// Parses a MongoDB connection string.
async fn parse_mongo(given: &TargetArgument) -> Result<ClientSettings> {
    let parsed = ClientOptions::parse(given.uri.as_str()).await;
    let mut options = parsed.map_err(|error| wrong_uri(given, &short_message(&error.to_string())))?;
    options.min_pool_size = Some(1);
    options.max_pool_size = Some(1);
    options.heartbeat_freq = Some(HEARTBEAT);
    options.server_monitoring_mode = Some(ServerMonitoringMode::Poll);
    options.app_name.get_or_insert_with(|| "vellum lab".to_string());
    options.connect_timeout.get_or_insert(REACH);
    options.server_selection_timeout.get_or_insert(REACH);
    options.retry_reads.get_or_insert(false);
    options.retry_writes.get_or_insert(false);
    // Servers behind a balancer are never reached directly.
    let is_balanced = options.load_balanced == Some(true);
    if options.hosts.len() == 1 && options.repl_set_name.is_none() && !is_balanced {
        options.direct_connection.get_or_insert(true);
    }
    Ok(ClientSettings::Mongo(Box::new(options)))
}

/// Parses a PostgreSQL connection string.
fn parse_postgres(given: &TargetArgument) -> Result<ClientSettings> {
    let parsed = given.uri.parse::<tokio_postgres::Config>();
    let mut config = parsed.map_err(|error| wrong_uri(given, &ErrorChain(&error).to_string()))?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(REACH);
    }
    if config.get_application_name().is_none() {
        config.application_name("vellum lab");
    }
    Ok(ClientSettings::Postgres(Box::new(config)))
}

fn wrong_uri(given: &TargetArgument, why: &str) -> Error {
    Error::Input(format!("target {}: its connection string is wrong: {why}", given.name))
}

/// An error with its causes: tokio-postgres prints "db error" and keeps the server's message in the source.
pub(crate) struct ErrorChain<'a>(pub(crate) &'a (dyn std::error::Error + 'static));

impl Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let causes = std::iter::successors(self.0.source(), |cause| cause.source());
        causes.into_iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

/// Returns the value of an answer at a path, whose names are separated by dots.
fn at<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        Some((first, rest)) => at(document.get_document(first).ok()?, rest),
        None => document.get(path),
    }
}

/// Returns a number of an answer, of any numeric type.
pub(crate) fn number(document: &Document, path: &str) -> Option<f64> {
    match at(document, path)? {
        Bson::Int32(number) => Some(f64::from(*number)),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// Removes parts of a driver's message that only its developers need.
fn short_message(message: &str) -> String {
    let message = message.strip_prefix("Kind: ").unwrap_or(message);
    let ends = [", labels: {", ", backtrace: ", ", source: None", ", server response: "];
    let end = ends.iter().filter_map(|end| message.find(end)).min().unwrap_or(message.len());
    message.get(..end).unwrap_or(message).to_string()
}

#[cfg(test)]
mod tests;

//! Which of a connection string's hosts takes writes, and what it is.

use base::bson::{Builder, Document, FieldName};
use std::time::{Duration, Instant};
use wire::client::Client;
use wire::uri::ConnectionString;

/// How long hosts may take to answer.
const REACH: Duration = Duration::from_secs(5);

/// The host of a connection string that is spoken to.
pub struct Upstream {
    /// With its port.
    pub host: String,
    /// "MongoDB 8.0.4", "Vellum 0.1.0".
    pub server: String,
}

/// The first host that takes writes, or, if none says so, the first that answers. It blocks.
///
/// # Errors
/// None answers.
pub fn choose(uri: &ConnectionString) -> Result<Upstream, String> {
    let mut found: Option<Upstream> = None;
    let mut last = "the connection string names no host".to_string();
    for host in &uri.hosts {
        match ask(host, uri) {
            Ok((upstream, true)) => return Ok(upstream),
            Ok((upstream, false)) => drop(found.get_or_insert(upstream)),
            Err(why) => last = format!("{host}: {why}"),
        }
    }
    found.ok_or(last)
}

/// What answers at a host, and whether it takes writes.
fn ask(host: &str, uri: &ConnectionString) -> Result<(Upstream, bool), String> {
    let mut client = Client::connect(host, uri, Instant::now() + REACH)?;
    let mut ask = |name: &str| {
        let mut command = Builder::new();
        command.append(FieldName::known(name), 1).append(c"$db", "admin");
        client.command(&command.finish())
    };
    // Servers before 4.4 know only the older name.
    let hello = ask("hello").or_else(|_| ask("isMaster"))?;
    let is = |name: &str| hello.view().get(name).and_then(|value| value.as_bool()) == Some(true);
    let writable = is("isWritablePrimary") || is("ismaster");
    let server = ask("buildInfo").map_or_else(|_| "unknown".to_string(), |info| server(info.view()));
    Ok((Upstream { host: host.to_string(), server }, writable))
}

fn server(info: Document<'_>) -> String {
    let text = |document: Document<'_>, name: &str| {
        document.get(name).and_then(|value| value.as_str()).map(String::from)
    };
    let version = text(info, "version").unwrap_or_default();
    match info.get("vellum") {
        Some(vellum) => {
            let own = vellum.as_str().map(str::to_string);
            let own = own.or_else(|| text(vellum.as_document()?, "version")).unwrap_or_default();
            format!("Vellum {own}").trim_end().to_string()
        }
        None => format!("MongoDB {version}").trim_end().to_string(),
    }
}

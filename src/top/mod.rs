//! `vellum top URI`: activity of a server, each second: operations, latencies, running operations,
//! and time by collection.
//!
//! The data comes from `serverStatus`, `top` and `currentOp`. Missing parts are omitted, so any
//! MongoDB-compatible server works.

mod page;
#[cfg(unix)]
mod terminal;

use crate::cli::TopOptions;
use crate::failure::Failure;
use crate::server_client;
use base::bson::{Builder, Document, DocumentBuf};
use page::{Running, Sample, View};
use std::ffi::CStr;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use wire::client::Client;

/// Default number of collections on a screen.
const ROWS: usize = 10;
/// Number of lines between two headings.
const HEAD_EVERY: u64 = 20;

/// Shows the server's activity until the user quits.
pub(crate) fn top(options: &TopOptions) -> Result<(), Failure> {
    let (client, host) = server_client::connect_to_target(&options.target)?;
    let timeout = Duration::from_millis(options.target.timeout);
    let mut server = Server { client, timeout };
    let interval = Duration::from_secs_f64(options.interval);
    let view = match io::stdin().is_terminal() && io::stdout().is_terminal() {
        #[cfg(unix)]
        true => on_screen(&mut server, &host, interval, options),
        _ => in_lines(&mut server, &host, interval, options),
    };
    view.map_err(|error| format!("{host}: {error}").into())
}

fn in_lines(server: &mut Server, host: &str, interval: Duration, options: &TopOptions) -> Result<(), String> {
    let mut before = server.sample()?.0;
    let mut next = Instant::now() + interval;
    for number in 0..options.count.unwrap_or(u64::MAX) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = (next + interval).max(Instant::now());
        let (sample, no_top) = server.sample()?;
        let running = server.running();
        let (rates, rows) = (sample.since(&before), options.rows.unwrap_or(0));
        let view =
            View { host, sample: &sample, rates: &rates, running: &running, no_top: no_top.as_deref(), rows };
        let mut text = String::new();
        if number % HEAD_EVERY == 0 {
            text.push_str(&page::head());
            text.push('\n');
        }
        text.push_str(&view.line());
        if writeln!(io::stdout(), "{text}").is_err() {
            // The reader of the output has gone.
            return Ok(());
        }
        before = sample;
    }
    Ok(())
}

#[cfg(unix)]
fn on_screen(
    server: &mut Server,
    host: &str,
    interval: Duration,
    options: &TopOptions,
) -> Result<(), String> {
    let mut before = server.sample()?.0;
    let terminal = terminal::Terminal::take().map_err(|error| error.to_string())?;
    // The first sample comes early, so that the screen fills soon.
    let mut next = Instant::now() + interval.min(Duration::from_millis(500));
    let mut left = options.count.unwrap_or(u64::MAX);
    while left > 0 && terminal.wait(next) {
        next = (next + interval).max(Instant::now());
        left -= 1;
        let (sample, no_top) = server.sample()?;
        let running = server.running();
        let (rates, rows) = (sample.since(&before), options.rows.unwrap_or(ROWS));
        let view =
            View { host, sample: &sample, rates: &rates, running: &running, no_top: no_top.as_deref(), rows };
        let (width, height) = terminal::Terminal::size();
        terminal.show(&view.screen(width, height)).map_err(|error| error.to_string())?;
        before = sample;
    }
    Ok(())
}

/// The queried server.
struct Server {
    client: Client,
    timeout: Duration,
}

impl Server {
    fn ask(&mut self, name: &'static CStr) -> Result<DocumentBuf, String> {
        let mut command = Builder::new();
        command.append(name, 1).append(c"$db", "admin");
        self.client.set_deadline(Instant::now() + self.timeout);
        self.client.command(&command.finish())
    }

    /// Returns the server's metrics, and the reason if times by collection are missing.
    fn sample(&mut self) -> Result<(Sample, Option<String>), String> {
        let status = self.ask(c"serverStatus")?;
        let at = Instant::now();
        let top = self.ask(c"top");
        let view = top.as_ref().ok().map(|top| top.view());
        Ok((Sample::read(status.view(), view, at), top.as_ref().err().cloned()))
    }

    /// Returns the running operations, longest first, without this query.
    fn running(&mut self) -> Result<Vec<Running>, String> {
        let reply = self.ask(c"currentOp")?;
        let mut running: Vec<Running> = Vec::new();
        for operation in reply
            .view()
            .get("inprog")
            .and_then(|list| list.as_array())
            .into_iter()
            .flat_map(|list| list.iter())
        {
            running.extend(operation.as_document().and_then(read_running));
        }
        running.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(running)
    }
}

/// Parses an operation that runs for a client; `None` for an idle wait.
fn read_running(operation: Document<'_>) -> Option<Running> {
    let text = |name: &str| operation.get(name).and_then(|value| value.as_str()).unwrap_or_default();
    let command = operation.get("command").and_then(|command| command.as_document());
    let name = command.and_then(|command| command.iter().next().map(|first| first.name().to_string()));
    let is_active = operation.get("active").and_then(|active| active.as_bool()).unwrap_or(true);
    // Drivers wait in hello for changes of the topology.
    const IDLE: [&str; 4] = ["currentOp", "hello", "isMaster", "ismaster"];
    let name = name.filter(|name| is_active && !IDLE.contains(&name.as_str()))?;
    let micros = operation.get("microsecs_running").and_then(|micros| micros.as_number());
    let plan = text("planSummary");
    let number = operation.get("opid").and_then(|number| number.as_i64());
    let number = number.map_or(String::new(), |number| format!("{number} "));
    Some(Running {
        seconds: micros.map_or(0.0, |micros| micros.to_f64() / 1e6),
        description: format!("{number}{name} {} {plan}", text("ns")).trim_end().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn idle_waits_are_not_running_operations() {
        let shown = |operation: &str| {
            let operation = parse(operation).unwrap();
            read_running(operation.view()).map(|running| running.description)
        };
        for name in ["hello", "isMaster", "ismaster", "currentOp"] {
            let operation = format!("{{active: true, opid: 7, ns: 'admin.$cmd', command: {{{name}: 1}}}}");
            assert_eq!(shown(&operation), None, "{name}");
        }
        assert_eq!(shown("{active: false, opid: 7, ns: 'd.c', command: {find: 'c'}}"), None);
        let find = shown("{active: true, opid: 7, ns: 'd.c', command: {find: 'c', filter: {hello: 1}}}");
        assert_eq!(find.as_deref(), Some("7 find d.c"));
    }
}

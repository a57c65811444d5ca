//! `lab record`: listens, passes everything on, and writes down what passed.

use super::passage::{Shared, pass};
use super::redact::Redactor;
use super::sink::{Sink, Written};
use super::upstream;
use crate::error::{Error, Result};
use crate::load::progress::signal;
use crate::options::Record;
use crate::report::figures;
use crate::target::{backed_up, without_secrets};
use base::bson::Builder;
use jiff::Timestamp;
use std::collections::HashSet;
use std::io::{Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use wire::trust;
use wire::uri::ConnectionString;

/// Records until somebody ends it; the exit code is 0 if the file holds everything up to then.
///
/// # Errors
/// Wrong options, a server that doesn't answer, a file that is there already.
pub(crate) async fn run(options: &Record) -> Result<ExitCode> {
    let uri = ConnectionString::parse(&options.upstream).map_err(|why| wrong(&why))?;
    if uri.login.is_some() {
        let why =
            "it has a user: users are the application's, which logs in through the recorder; leave it out";
        return Err(wrong(&why));
    }
    let tls = uri.tls.as_ref().map(trust::config).transpose().map_err(|why| wrong(&why))?;
    let chosen = tokio::task::spawn_blocking(move || upstream::choose(&uri)).await;
    let chosen = chosen
        .map_err(|error| wrong(&error))?
        .map_err(|why| wrong(&format!("it can't be reached: {why}")))?;
    if let Some(snapshot) = &options.snapshot {
        if !chosen.server.starts_with("Vellum") {
            let why = format!(
                "--snapshot backs a Vellum up, and {} is {}: copy its data by its own means, and give replay \
                 --start a server that has it",
                chosen.host, chosen.server
            );
            return Err(Error::Input(why));
        }
        backed_up(&options.upstream, snapshot)?;
    }
    let listener = TcpListener::bind(&options.listen).await;
    let listener =
        listener.map_err(|error| Error::Input(format!("can't listen on {}: {error}", options.listen)))?;
    let address = listener.local_addr().map_err(|error| wrong(&error))?;
    let sink = sink(options, &chosen.server)?;
    let redactor = Redactor::new(&options.redact);
    let hidden = Mutex::new(HashSet::new());
    let shared =
        Arc::new(Shared { sink, redactor, host: chosen.host.clone(), tls: tls.map(Arc::new), hidden });
    // The first line is the connection string, as other programs that start this read it.
    let _ = writeln!(
        stdout(),
        "mongodb://{address}/\nrecording {} at {} into {}; Ctrl-C ends it",
        chosen.server,
        chosen.host,
        options.file.display()
    );
    let connections = AtomicU32::new(0);
    tokio::select! {
        () = serve(&listener, &shared, &connections) => {}
        () = signal() => {}
        () = end_of_input(options.parent_pipe) => {}
    }
    let written = tokio::task::block_in_place(|| shared.sink.finish());
    tell(&options.file, &written, connections.load(Relaxed));
    Ok(if written.why.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn wrong(why: &dyn std::fmt::Display) -> Error {
    Error::Input(format!("--upstream: {why}"))
}

fn sink(options: &Record, server: &str) -> Result<Sink> {
    let mut header = Builder::new();
    header.append("started", Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string().as_str());
    header.append("lab", env!("CARGO_PKG_VERSION")).append("server", server);
    header.append("upstream", without_secrets(&options.upstream).as_str()).begin_array("redacted");
    for path in &options.redact {
        header.push(path.as_str());
    }
    header.end();
    Sink::create(&options.file, &header.finish(), options.max_size)
        .map_err(|error| Error::File(format!("{}: {error}", options.file.display())))
}

/// Takes connections; one that fails says so and concerns no other.
async fn serve(listener: &TcpListener, shared: &Arc<Shared>, connections: &AtomicU32) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let (shared, number) = (Arc::clone(shared), connections.fetch_add(1, Relaxed) + 1);
                tokio::spawn(async move {
                    if let Err(error) = pass(client, number, &shared).await
                        && !is_leave(&error)
                    {
                        let _ = writeln!(stderr(), "connection {number}: {error}");
                    }
                });
            }
            Err(error) => {
                let _ = writeln!(stderr(), "a connection can't be taken: {error}");
                // Out of descriptors: others have to end first.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// Whether this is how clients and servers leave.
fn is_leave(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}

/// When standard input closes, if that is to be the end.
async fn end_of_input(wanted: bool) {
    if !wanted {
        return std::future::pending().await;
    }
    let (sender, closed) = tokio::sync::oneshot::channel();
    // A thread, which nobody has to wait for: the runtime's own would be.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = closed.await;
}

fn tell(file: &Path, written: &Written, connections: u32) {
    let _ = writeln!(
        stderr(),
        "{}: {} of {}, {}{}",
        file.display(),
        figures::plural(written.events, "event"),
        figures::plural(connections.into(), "connection"),
        figures::bytes(written.bytes),
        written.why.as_ref().map(|why| format!("; it ended early: {why}")).unwrap_or_default()
    );
}

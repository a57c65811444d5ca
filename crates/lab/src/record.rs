//! `lab record`: the options, the initial backup and the output of the recorder.

use crate::options::Record;
use crate::progress::signal;
use crate::report::figures;
use crate::target::{backed_up, without_secrets};
use crate::{Error, Result};
use replay::{Recorder, Settings};
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use wire::uri::ConnectionString;

/// Records until a signal ends it. The exit code is 0 if the file is complete up to that moment.
///
/// # Errors
/// Wrong options, a server that does not answer, or an existing file.
pub(crate) async fn run(options: &Record) -> Result<ExitCode> {
    let uri = ConnectionString::parse(&options.upstream).map_err(|why| upstream_error(&why))?;
    if uri.login.is_some() {
        let why = "it contains a user: omit it, because the application logs in through the recorder";
        return Err(upstream_error(&why));
    }
    let from = uri.clone();
    let chosen = tokio::task::spawn_blocking(move || replay::select_server(&from)).await;
    let chosen = chosen
        .map_err(|error| upstream_error(&error))?
        .map_err(|why| upstream_error(&format!("cannot connect: {why}")))?;
    if let Some(snapshot) = &options.snapshot {
        if !chosen.server.starts_with("Vellum") {
            let why = format!(
                "--snapshot works only for Vellum, and {} is {}: copy its data with its own tools, and give \
                 a server with the copy to replay --start",
                chosen.host, chosen.server
            );
            return Err(Error::Input(why));
        }
        backed_up(&options.upstream, snapshot)?;
    }
    let settings = Settings {
        file: options.file.clone(),
        max_size: options.max_size,
        redact: options.redact.clone(),
        redacted_uri: without_secrets(&options.upstream),
    };
    let recorder = Recorder::start(&options.listen, &uri, &chosen, &settings).await.map_err(Error::Input)?;
    let address = recorder.address().map_err(|error| upstream_error(&error))?;
    // The first line is the connection string, for programs that start this one.
    let _ = writeln!(
        stdout(),
        "mongodb://{address}/\nrecording {} at {} into {}; Ctrl-C stops the recording",
        chosen.server,
        chosen.host,
        options.file.display()
    );
    let end = async {
        tokio::select! {
            () = signal() => {}
            () = end_of_input(options.parent_pipe) => {}
        }
    };
    let (written, connections) = recorder.record(end).await;
    let early = written.why.as_ref().map(|why| format!("; it ended early: {why}")).unwrap_or_default();
    let _ = writeln!(
        stderr(),
        "{}: {} of {}, {}{early}",
        options.file.display(),
        figures::plural(written.events, "event"),
        figures::plural(connections.into(), "connection"),
        figures::bytes(written.bytes)
    );
    Ok(if written.why.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn upstream_error(why: &dyn std::fmt::Display) -> Error {
    Error::Input(format!("--upstream: {why}"))
}

/// Returns when standard input closes, if `is_awaited`.
async fn end_of_input(is_awaited: bool) {
    if !is_awaited {
        return std::future::pending().await;
    }
    let (sender, closed) = tokio::sync::oneshot::channel();
    // A thread, since the runtime would wait for a blocking read at its end.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = closed.await;
}

//! `--init-scripts`: scripts that fill a new data directory, as MongoDB's images run
//! /docker-entrypoint-initdb.d.
//!
//! The scripts run in mongosh, in the order of their names, against a temporary server on a free
//! loopback port. The main server starts after they finish, so no client sees partial data. A file
//! marks data of scripts that have not finished.

use crate::config::Config;
use crate::failure::Failure;
use crate::process::{self, StopSignal};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Shell that runs the scripts.
const SHELL: &str = "mongosh";

/// Variable with the initial database of scripts, named as in MongoDB's images.
const DATABASE: &str = "MONGO_INITDB_DATABASE";

/// File in each data directory that was opened before.
const FORMAT: &str = "vellum.format";

/// File in a data directory from the start of the first script to the end of the last one.
const UNFINISHED: &str = "init-scripts.unfinished";

/// Returns the path of the file that marks data of scripts that have not finished.
pub(crate) fn unfinished(directory: &Path) -> PathBuf {
    directory.join(UNFINISHED)
}

/// Runs the scripts if the data directory is new.
///
/// Errors: an unreadable folder, scripts of another kind, no mongosh, a failed or stopped script now or at an earlier
/// start.
pub(crate) fn run(config: &Config, signal: &StopSignal) -> Result<(), Failure> {
    let (Some(folder), Some(disk)) = (&config.init_scripts, &config.disk) else { return Ok(()) };
    let option = config.option_name("--init-scripts", "VELLUM_INIT_SCRIPTS");
    let failed = |why: String| Failure::of_options(format!("{option} {}: {why}", folder.display()));
    let unfinished = unfinished(&disk.directory);
    let partial = || {
        let directory = disk.directory.display();
        format!(
            "{directory} has their partial results: delete it, or keep them and delete its file {UNFINISHED}"
        )
    };
    if unfinished.exists() && !is_new(config) {
        return Err(failed(format!("the scripts have not finished at an earlier start; {}", partial())));
    }
    let scripts = scripts(folder).map_err(failed)?;
    if scripts.is_empty() || !is_new(config) {
        return Ok(());
    }
    let shell =
        find_shell().ok_or_else(|| failed(format!("{SHELL}, which runs the scripts, is not on the path")))?;
    let at_mark = |error: std::io::Error| failed(format!("{}: {error}", unfinished.display()));
    std::fs::create_dir_all(&disk.directory).map_err(at_mark)?;
    std::fs::write(&unfinished, "").map_err(at_mark)?;
    let ran = start(config).map_err(|why| format!("the scripts' server: {why}")).and_then(|(server, uri)| {
        let ran = scripts.iter().try_for_each(|script| run_one(&shell, &uri, script, signal));
        ran.and(stop(server))
    });
    let ran = ran.map_err(|why| match signal.is_received() {
        true => "a signal stopped the scripts".to_string(),
        false => why,
    });
    if ran.is_err() && !is_new(config) {
        return ran.map_err(|why| failed(format!("{why}; {}", partial())));
    }
    std::fs::remove_file(&unfinished).map_err(at_mark)?;
    ran.map_err(failed)
}

/// Returns true if the data directory is new. A shared store counts as new, since its state is
/// unknown.
pub(crate) fn is_new(config: &Config) -> bool {
    config.disk.as_ref().is_none_or(|disk| !disk.directory.join(FORMAT).exists())
}

/// Returns the scripts of a folder by name. Other files are logged and skipped, as in MongoDB's
/// images.
fn scripts(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut scripts = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("js") => scripts.push(path),
            Some("sh") => return Err(format!("{}: shell scripts are not supported", path.display())),
            _ => log::info!("--init-scripts: {} is not a script", path.display()),
        }
    }
    scripts.sort();
    Ok(scripts)
}

fn find_shell() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(SHELL)).find(|program| program.is_file())
}

/// Starts a server on the same data. Returns it with its connection string.
fn start(config: &Config) -> Result<(Child, String), String> {
    let disk = config.disk.as_ref().ok_or("no data directory")?;
    let mut command = process::own_program().map_err(|error| error.to_string())?;
    command
        .args([
            "serve",
            "--bind",
            "127.0.0.1",
            "--port",
            "0",
            "--parent-pipe",
            "--no-auth",
            "--allow-other-files",
            "--data",
        ])
        .arg(&disk.directory);
    if let Some(journal) = &disk.journal_directory {
        command.arg("--journal-dir").arg(journal);
    }
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("VELLUM_") {
            command.env_remove(variable);
        }
    }
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut server = spawned.map_err(|error| error.to_string())?;
    let mut output = server.stdout.take().map(BufReader::new).ok_or("it has no output")?;
    let mut uri = String::new();
    // The line stays empty at the end of the output or after an error.
    let _ = output.read_line(&mut uri);
    // Further output is discarded, so that it cannot fill the pipe.
    storage::threads::spawn("vellum-init", None, move || std::io::copy(&mut output, &mut std::io::sink()))
        .map_err(|error| error.to_string())?;
    match uri.starts_with("mongodb://") {
        true => Ok((server, uri.trim_end().to_string())),
        false => Err("it did not start".to_string()),
    }
}

/// Runs a script. The signal ends it with all its processes, which form a group.
fn run_one(shell: &Path, uri: &str, script: &Path, signal: &StopSignal) -> Result<(), String> {
    log::info!("--init-scripts: running {}", script.display());
    let database = std::env::var(DATABASE).unwrap_or_default();
    let mut command = Command::new(shell);
    command.arg("--quiet").arg(format!("{uri}{database}")).arg(script).stdin(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    // Standard output and standard error have log and connection string.
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output = spawned.and_then(|child| {
        let leader = child.id();
        signal.set_action(move || process::end_group(leader));
        let output = child.wait_with_output();
        let is_stopped = signal.is_received();
        signal.set_action(|| {});
        Ok((output?, is_stopped))
    });
    let (output, is_stopped) = output.map_err(|error| format!("{}: {error}", shell.display()))?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        log::info!("{}: {line}", script.display());
    }
    match output.status.success() {
        // The script may end with success after the signal.
        true if is_stopped => Err(format!("{}: stopped", script.display())),
        true => Ok(()),
        false => {
            let why = match String::from_utf8_lossy(&output.stderr).trim() {
                "" => output.status.to_string(),
                text => format!("{text} ({})", output.status),
            };
            Err(format!("{} failed: {why}", script.display()))
        }
    }
}

/// Stops the server, which closes its data.
fn stop(mut server: Child) -> Result<(), String> {
    drop(server.stdin.take());
    match server.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the scripts' server ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

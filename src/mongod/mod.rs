//! Replacement of mongod: its options, log and exit codes, for launchers of mongod.
//!
//! The program acts as mongod if it is called `mongod` through a link, or as `vellum mongod`.
//! Options without a meaning here are refused by name, so that a launcher never gets less than it
//! requests.

mod options;
mod settings;
mod table;

use crate::failure::{Failure, Kind};
use crate::first_user::FirstUser;
use crate::process::{is_child, start_child};
use crate::serve::{serve, start_log};
use server::logging::Destination;
use settings::Options;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// mongod's exit codes.
const BAD_OPTIONS: u8 = 2;
const NET_ERROR: u8 = 48;
const UNCAUGHT: u8 = 100;

/// Runs the server with mongod's options: the words after the program's name.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    match prepare(words) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(options)) => start(options, words),
        Err(why) => bad_options(&why),
    }
}

fn bad_options(why: &str) -> ExitCode {
    // A closed standard error leaves no place for the message.
    let _ =
        writeln!(io::stderr(), "Error parsing command line: {why}\ntry 'mongod --help' for more information");
    ExitCode::from(BAD_OPTIONS)
}

/// Returns the options of command line and file; `None` if only a text was requested.
fn prepare(words: &[OsString]) -> Result<Option<Options>, String> {
    let text = |word: &OsString| match word.to_str() {
        Some(word) => Ok(word.to_string()),
        None => Err(format!("'{}' is not UTF-8", word.to_string_lossy())),
    };
    let words = words.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let mut given = options::parse(&words)?;
    for (requested, text) in [("help", help as fn() -> String), ("version", version)] {
        if given.iter().any(|(name, _)| *name == requested) {
            // A closed standard output is not an error.
            let _ = io::stdout().write_all(text().as_bytes());
            return Ok(None);
        }
    }
    if let Some((_, path)) = given.iter().find(|(name, _)| *name == "config") {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("Error reading config file {path}: {error}"))?;
        options::add_file(&mut given, options::parse_file(&text)?);
    }
    Ok(Some(Options(given)))
}

fn start(options: Options, words: &[OsString]) -> ExitCode {
    let forks = options.has("fork") && !is_child();
    let directory = options.directory();
    let refuses_users = options.has("noauth");
    let mut config = match options.into_config(crate::tls::command_line()) {
        Ok(config) => config,
        Err(why) => return bad_options(&why),
    };
    if let (Some(disk), Ok(value)) = (&mut config.disk, std::env::var("VELLUM_ALLOW_OTHER_FILES")) {
        disk.allow_other_files = crate::option_sources::parse_bool(&value).unwrap_or_default();
    }
    // mongod has no such option. Container images set the folder of scripts.
    let scripts = std::env::var_os("VELLUM_INIT_SCRIPTS").filter(|_| config.disk.is_some());
    config.init_scripts = scripts.map(PathBuf::from);
    match FirstUser::from_environment(|name| std::env::var(name).ok()) {
        Ok(user) => config.first_user = user,
        Err(why) => return bad_options(&why),
    }
    config.settings.auth |= config.first_user.is_some() && !refuses_users;
    if forks {
        return start_child(words);
    }
    let logs_to_file = config.log.to != Destination::StandardOutput;
    let result = match directory.is_dir() || config.repair {
        true => serve(config),
        false => start_log(&config).and_then(|()| {
            Err(Failure::new(
                Kind::Data,
                format!(
                    "NonExistentPath: Data directory {} not found. Create the missing directory or specify another \
                     path using (1) the --dbpath command line option, or (2) by adding the 'storage.dbPath' option \
                     in the configuration file.",
                    directory.display()
                ),
            ))
        }),
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    // The log on standard output already has the other errors.
    if logs_to_file || failure.kind == Kind::Options {
        let _ = writeln!(io::stderr(), "{}", failure.message);
    }
    match failure.kind {
        Kind::Options => ExitCode::from(BAD_OPTIONS),
        Kind::Address => {
            log::error!(id = 20568, c = "NETWORK", error = failure.message.as_str(); "Error setting up listener");
            ExitCode::from(NET_ERROR)
        }
        Kind::Data => {
            log::error!(
                id = 20557, c = "STORAGE", error = failure.message.as_str();
                "DBException in initAndListen, terminating"
            );
            ExitCode::from(UNCAUGHT)
        }
        Kind::Other => {
            log::error!(c = "CONTROL"; "{}", failure.message);
            ExitCode::FAILURE
        }
    }
}

/// Returns the version in mongod's format. Scripts search for both lines.
fn version() -> String {
    let arch = std::env::consts::ARCH;
    format!(
        "db version v{}\nBuild Info: {{\n    \"version\": \"{0}\",\n    \"gitVersion\": \"unknown\",\n    \
         \"modules\": [],\n    \"allocator\": \"system\",\n    \"environment\": {{\n        \
         \"distarch\": \"{arch}\",\n        \"target_arch\": \"{arch}\"\n    }},\n    \
         \"vellum\": \"{}\"\n}}\n",
        server::CompatibleWith::default().version(),
        env!("CARGO_PKG_VERSION")
    )
}

fn help() -> String {
    let mut text = String::from(
        "Usage: mongod [options]\n\nVellum as a replacement for mongod. Supported options, some of which \
         only confirm Vellum's own behavior:\n\n",
    );
    for known in table::OPTIONS {
        match known.treatment {
            table::Support::Switch => text.push_str(&format!("  --{}\n", known.name)),
            table::Support::Value => text.push_str(&format!("  --{} VALUE\n", known.name)),
            table::Support::Off(_) | table::Support::Refused(_) => {}
        }
    }
    text.push_str("\nThe other options of mongod are errors that name a reason.\n");
    text
}

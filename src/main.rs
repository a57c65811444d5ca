//! The `vellum` program: a verb with options from command line, environment and file, merged into
//! one validated configuration. Only this crate selects the engine.
//!
//! A new verb is a variant of [`cli::Verb`] and a case in `main`.

mod advise;
mod backup;
mod banner;
mod cli;
mod config;
mod failure;
mod first_user;
mod hints;
mod init_scripts;
mod lab;
mod mongod;
mod option_sources;
mod process;
mod serve;
mod server_client;
mod tls;
mod top;
mod verify;

use clap::Parser;
use cli::{Cli, Verb};
use failure::{Failure, Kind};
use first_user::FirstUser;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = words();
    let name = words.first().and_then(|word| Path::new(word).file_stem());
    if name == Some(OsStr::new("mongod")) {
        return mongod::run(words.get(1..).unwrap_or_default());
    }
    let expanded = match option_sources::expand(words, std::env::vars_os()) {
        Ok(expanded) => expanded,
        Err(why) => {
            print_error(&why);
            return ExitCode::from(2);
        }
    };
    let cli =
        Cli::try_parse_from(expanded.words).unwrap_or_else(|error| exit_with(&error, &expanded.origins));
    let options = match cli.verb {
        None => cli.serve,
        Some(Verb::Serve(options)) => *options,
        Some(Verb::Mongod(words)) => return mongod::run(&words.words),
        Some(Verb::Lab(words)) => return lab::run(&words.words),
        Some(Verb::Advise(options)) => return print_result(advise::advise(&options), false),
        Some(Verb::Backup(options)) => return print_result(backup::back_up(&options), options.quiet),
        Some(Verb::Restore(options)) => return print_result(backup::restore(&options), options.quiet),
        Some(Verb::Verify(options)) => return verify::verify(&options),
        Some(Verb::Top(options)) => {
            return match top::top(&options) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => print_failure(&failure),
            };
        }
        Some(Verb::Ping(options)) => {
            return match server_client::ping(&options) {
                // ping --quiet prints nothing at all.
                Err(failure) if options.quiet => exit_code(&failure),
                result => print_result(result, options.quiet),
            };
        }
    };
    let arguments = tls::command_line();
    let first_user = match FirstUser::from_environment(|name| std::env::var(name).ok()) {
        Ok(user) => user,
        Err(why) => {
            print_error(&why);
            return ExitCode::from(2);
        }
    };
    let config = options.into_config(arguments, first_user);
    let config = config.unwrap_or_else(|error| exit_with(&error, &expanded.origins));
    match serve::serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}

/// Returns the command line.
fn words() -> Vec<OsString> {
    rewrite_words(std::env::args_os().collect())
}

/// Rewrites the words `help`, `help VERB` and `version` as the options of these names.
fn rewrite_words(mut words: Vec<OsString>) -> Vec<OsString> {
    match words.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(1);
            words.truncate(2);
            words.push("--help".into());
        }
        Some("version") if words.len() == 2 => words = vec![words.remove(0), "--version".into()],
        _ => {}
    }
    words
}

/// Prints an error of the command line, with the options that were not typed.
fn exit_with(error: &clap::Error, origins: &[String]) -> ! {
    if let Some(hint) = hints::hint(error, &words()) {
        print_error(&hint);
        std::process::exit(2);
    }
    if error.use_stderr() && !origins.is_empty() {
        print_error(&format!("options were also read from: {}", origins.join(", ")));
    }
    error.exit()
}

/// Prints the result of a command. `quiet` omits the message of a success.
fn print_result(result: Result<String, Failure>, quiet: bool) -> ExitCode {
    match result {
        Ok(message) => {
            if !quiet {
                // A closed standard output is not an error.
                let _ = writeln!(io::stdout(), "{message}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => print_failure(&failure),
    }
}

/// Prints a failure on standard error.
fn print_failure(failure: &Failure) -> ExitCode {
    print_error(&failure.message);
    exit_code(failure)
}

/// Returns 2 for a wrong option or value, and 1 for other failures.
fn exit_code(failure: &Failure) -> ExitCode {
    match failure.kind {
        Kind::Options => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// Prints an error on standard error.
pub(crate) fn print_error(message: &str) {
    // A closed standard error leaves no place for the message.
    let _ = writeln!(io::stderr(), "vellum: {message}");
}

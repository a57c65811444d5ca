//! Runs one fuzz target for a given time: `cargo run --release -p fuzz -- TARGET SECONDS [NUMBER]`.
//! `unpack TARGET FOLDER` writes its corpus to a folder, and `pack TARGET FOLDER` stores a folder
//! as its corpus.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use fuzz::{TARGETS, Target, corpus};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn target(name: Option<&String>) -> Option<&'static Target> {
    TARGETS.iter().find(|target| Some(target.name) == name.map(String::as_str))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("list") => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            ExitCode::SUCCESS
        }
        Some(verb @ ("unpack" | "pack")) => keep(verb, target(arguments.get(1)), arguments.get(2)),
        _ => run(&arguments),
    }
}

fn keep(verb: &str, target: Option<&Target>, folder: Option<&String>) -> ExitCode {
    let (Some(target), Some(folder)) = (target, folder) else { return usage() };
    let done = match verb {
        "pack" => corpus::pack(target, Path::new(folder))
            .map(|count| println!("{}: {count} inputs kept", target.name)),
        _ => corpus::unpack(target, Path::new(folder)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{folder}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> ExitCode {
    let seconds = arguments.get(1).and_then(|text| text.parse().ok());
    let (Some(target), Some(seconds)) = (target(arguments.first()), seconds) else { return usage() };
    let first = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = fuzz::run(target, Duration::from_secs(seconds), first);
    println!("{}: {count} inputs, none failed", target.name);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!(
        "usage: fuzz TARGET SECONDS [NUMBER]\n       fuzz list\n       fuzz unpack|pack TARGET FOLDER\ntargets: {}",
        names.join(" ")
    );
    ExitCode::FAILURE
}

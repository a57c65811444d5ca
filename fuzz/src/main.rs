//! Runs one fuzz target for long: `cargo run --release -p fuzz -- TARGET SECONDS [NUMBER]`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let target = arguments.first().and_then(|name| fuzz::TARGETS.iter().find(|target| target.name == *name));
    let seconds = arguments.get(1).and_then(|text| text.parse().ok());
    let (Some(target), Some(seconds)) = (target, seconds) else {
        let names: Vec<&str> = fuzz::TARGETS.iter().map(|target| target.name).collect();
        eprintln!("usage: fuzz TARGET SECONDS [NUMBER]\ntargets: {}", names.join(" "));
        return ExitCode::FAILURE;
    };
    let first = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = fuzz::run(target, Duration::from_secs(seconds), first);
    println!("{}: {count} inputs, none failed", target.name);
    ExitCode::SUCCESS
}

//! Runs simulations: `simulate [--seed N] [--seeds N] [--steps N] [--show] [--shrink]`.

#![allow(clippy::print_stdout, reason = "a command line program")]

use simulate::{Report, Script, fails};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let mut script = Script::new(0);
    let (mut seeds, mut minutes, mut shrinks) = (1, None, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse::<u64>().ok());
        let is_known = match word.as_str() {
            "--seed" => number().map(|number| script.seed = number).is_some(),
            "--seeds" => number().map(|number| seeds = number).is_some(),
            "--steps" => number().map(|number| script.steps = number).is_some(),
            "--minutes" => number().map(|number| minutes = Some(number)).is_some(),
            "--show" => true.then(|| script.is_shown = true).is_some(),
            "--shrink" => true.then(|| shrinks = true).is_some(),
            _ => false,
        };
        if !is_known {
            println!("simulate [--seed N] [--seeds N | --minutes N] [--steps N] [--show] [--shrink]");
            return ExitCode::from(2);
        }
    }
    let began = Instant::now();
    let (mut total, mut failed, first) = (Report::default(), 0u64, script.seed);
    let is_left = |ran: u64| match minutes {
        Some(minutes) => began.elapsed() < Duration::from_secs(60 * minutes),
        None => ran < seeds,
    };
    let mut ran = 0;
    while is_left(ran) {
        script.seed = first + ran;
        ran += 1;
        match script.run() {
            Ok(report) => total.add(&report),
            Err(what) => {
                failed += 1;
                println!("seed {}: {what}", script.seed);
                if shrinks {
                    let short = script.shrink();
                    println!("shrunk to {} steps, without operations {:?}", short.steps, short.dropped);
                    let shown = Script { is_shown: true, ..short };
                    println!("{}", fails(&shown).unwrap_or_default());
                }
            }
        }
    }
    for (mark, count) in &total.marks {
        println!("{count:>10}  {mark}");
    }
    let (simulated, real) = (total.simulated.as_secs_f64(), began.elapsed().as_secs_f64());
    println!(
        "{simulated:.0} simulated seconds in {real:.1} s ({:.0} a second), hash {:016x}",
        simulated / real,
        total.hash
    );
    println!("{} passed, {failed} failed", ran - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

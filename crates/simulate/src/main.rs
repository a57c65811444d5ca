//! Runs simulations and reports their events and the code marks that they reached.

#![allow(clippy::print_stdout, reason = "a command line program")]

use simulate::{Report, Script, UNREACHED, all_marks};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "simulate [--seed N] [--seeds N | --minutes N] [--steps N] [--threads N] [--show] [--shrink] \
                     [--every-mark] [--logins] [--growth-max MIB]";
/// Number of seeds after which the resident memory must stay level.
const WARM_UP_SEEDS: u64 = 100;

fn main() -> ExitCode {
    let mut script = Script::new(0);
    let (mut seeds, mut minutes, mut threads, mut shrinks, mut every_mark) = (1, None, 1, false, false);
    let mut growth_max = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse::<u64>().ok());
        let is_known = match word.as_str() {
            "--seed" => number().map(|number| script.seed = number).is_some(),
            "--seeds" => number().map(|number| seeds = number).is_some(),
            "--steps" => number().map(|number| script.steps = number).is_some(),
            "--minutes" => number().map(|number| minutes = Some(number)).is_some(),
            "--threads" => number().map(|number| threads = number).is_some(),
            "--growth-max" => number().map(|number| growth_max = Some(number)).is_some(),
            "--show" => true.then(|| script.is_shown = true).is_some(),
            "--logins" => true.then(|| script.has_logins = true).is_some(),
            "--shrink" => true.then(|| shrinks = true).is_some(),
            "--every-mark" => true.then(|| every_mark = true).is_some(),
            #[cfg(feature = "mutants")]
            "--mutant" => words.next().map(|name| storage::mutants::switch_on(Some(name.leak()))).is_some(),
            _ => false,
        };
        if !is_known {
            println!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    let began = Instant::now();
    let (ran, failed, total) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Report::default()));
    let warm = AtomicU64::new(0);
    let run_some = || {
        loop {
            let number = ran.fetch_add(1, Ordering::Relaxed);
            let is_over = match minutes {
                Some(minutes) => began.elapsed() >= Duration::from_secs(60 * minutes),
                None => number >= seeds,
            };
            if is_over {
                ran.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            if number == WARM_UP_SEEDS {
                warm.store(resident_mib(), Ordering::Relaxed);
            }
            let script = Script { seed: script.seed + number, ..script.clone() };
            match (script.run(), total.lock()) {
                (Ok(report), Ok(mut total)) => total.add(&report),
                (result, total) => {
                    drop(total);
                    failed.fetch_add(1, Ordering::Relaxed);
                    explain(&script, &result.err().unwrap_or_default(), shrinks);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run_some);
        }
    });
    let (ran, failed) = (ran.into_inner(), failed.into_inner());
    let total = total.into_inner().unwrap_or_default();
    for (mark, count) in &total.marks {
        println!("{count:>10}  {mark}");
    }
    let (simulated, real) = (total.simulated.as_secs_f64(), began.elapsed().as_secs_f64());
    println!(
        "{simulated:.0} simulated seconds in {real:.1} s ({:.0} a second), hash {:016x}",
        simulated / real,
        total.hash
    );
    let lists_marks = report_marks(&total);
    let is_level = report_memory(warm.into_inner(), growth_max);
    println!("{} passed, {failed} failed", ran - failed);
    if failed == 0 && is_level && (lists_marks || !every_mark) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the code marks that the runs have reached. Returns true if the list of the other marks is right.
fn report_marks(total: &Report) -> bool {
    let all = all_marks();
    println!("{} of {} code marks were reached:", total.code.len(), all.len());
    for (mark, count) in &total.code {
        println!("{count:>10}  {mark}");
    }
    let mut is_right = true;
    for name in all.iter().filter(|name| !total.code.contains_key(name.as_str())) {
        let reason = UNREACHED.iter().find(|(known, _)| known == name).map(|(_, reason)| *reason);
        is_right &= reason.is_some();
        println!("     never  {name} ({})", reason.unwrap_or("UNEXPECTED"));
    }
    for (name, _) in UNREACHED.iter().filter(|(name, _)| !all.contains(*name)) {
        is_right = false;
        println!("no mark has the listed name {name}");
    }
    is_right
}

/// Returns the resident memory of the process. 0 on systems without `/proc`.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let text = status.split("VmRSS:").nth(1).and_then(|rest| rest.split_whitespace().next());
    text.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Prints the resident memory after the first seeds and now. Returns true if the growth is within a limit. `warm` is 0
/// if fewer seeds ran.
fn report_memory(warm: u64, growth_max: Option<u64>) -> bool {
    let now = resident_mib();
    if warm == 0 {
        println!("{now} MiB of memory at the end");
        return true;
    }
    println!("{warm} MiB of memory after {WARM_UP_SEEDS} seeds, {now} MiB at the end");
    growth_max.is_none_or(|growth_max| now <= warm + growth_max)
}

/// Prints a failure, and a short script that fails too.
fn explain(script: &Script, violation: &str, shrinks: bool) {
    println!("seed {}: {violation}", script.seed);
    if shrinks {
        let short = script.shrink();
        println!("shrunk to {} steps, without operations {:?}", short.steps, short.dropped);
        let shown = Script { is_shown: true, ..short };
        println!("{}", shown.run().err().unwrap_or_default());
    }
}

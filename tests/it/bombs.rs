//! Hostile commands: no command of one client brings the server down. Random commands around every operator of every
//! table try to grow and nest values and to multiply documents, on a server with little memory.
//!
//! Each command has a time limit. No command may delay a second client, exceed the memory limit, or end the process.
//! `VELLUM_BOMBS=SEED` uses another seed; `VELLUM_BOMB=SEED/NUMBER` runs and prints a single command.

mod arguments;
pub(crate) mod generate;

use crate::client::Client;
use crate::print_line;
use crate::server::Server;
use base::bson::extended_json::parse;
use base::bson::{Builder, DocumentBuf};
use generate::{Core, Maker, cores};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of commands: every operator is in at least one.
const BOMBS: usize = 500;
/// Default seed.
const SEED: u64 = 1;
/// Time limit of each command.
const MAX_TIME: Duration = Duration::from_millis(200);
/// Maximum delay of an answer, on a busy machine with an unoptimized build.
const LATE: Duration = Duration::from_secs(15);
/// Maximum delay of a ping meanwhile.
const PING_LATE: Duration = Duration::from_secs(10);
/// Number of connections that send the commands.
const THROWERS: usize = 3;
/// Memory limit of the process, and the tolerance for a moment, in megabytes. Several operations may double a value
/// between two checks, and on a busy machine the watch of the resident memory runs late.
const LIMIT: u64 = 320;
const BEYOND: u64 = 240;
/// Address space of the server in kilobytes, far above the resident limit. Freed memory keeps its addresses, each
/// thread needs some for its stack, and PCRE2 fails without space for its own stack.
const SPACE: u64 = 8 << 20;

/// Returns the command of a number: first every operator once, then random ones.
fn bomb(seed: u64, number: usize, cores: &[Core]) -> String {
    let mut maker = Maker::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number as u64);
    let core = match cores.get(number) {
        Some(core) => *core,
        None if number.is_multiple_of(2) => Core::Mixed,
        None => maker.pick(cores),
    };
    maker.command(core)
}

fn command(text: &str, more: impl FnOnce(&mut Builder)) -> Result<DocumentBuf, String> {
    let parsed = parse(text).map_err(|error| format!("{error:?} in {text:.2000}"))?;
    let mut out = Builder::new();
    out.append_all(parsed.view());
    more(&mut out);
    out.append(c"$db", "bombs");
    Ok(out.finish())
}

/// Inserts documents with values of every kind, once memory is available.
fn fill(client: &mut Client) -> Result<(), String> {
    let carry_out = |client: &mut Client, sent: &DocumentBuf| {
        let started = Instant::now();
        loop {
            let reply = client.command(sent).map_err(|error| format!("no answer: {error}"))?;
            let errors = reply.view().get("writeErrors").is_some();
            match reply.view().get("ok").and_then(|ok| ok.as_i64()) {
                Some(1) if !errors => return Ok(()),
                _ if started.elapsed() > LATE => return Err(format!("can't fill: {reply:.500}")),
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    };
    carry_out(client, &command("{dropDatabase: 1}", |_| {})?)?;
    let insert = command("{insert: 'c'}", |out| {
        out.begin_array(c"documents");
        for id in 0..60 {
            out.push_document().append(c"_id", id).append(c"k", id % 7).append(c"next", (id + 1) % 60);
            out.append(c"s", "abcdefgh a".repeat(20).as_str()).append(c"x", id * 7919 % 60);
            out.append(c"d", base::bson::Value::DateTime(1_700_000_000_000 + i64::from(id)));
            out.begin_array(c"l");
            (0..100).for_each(|n| _ = out.push(n));
            out.end();
            out.begin_array(c"m");
            for _ in 0..20 {
                out.push_document().begin_array(c"v");
                for w in 0..20 {
                    out.push_document().append(c"w", w).end();
                }
                out.end().end();
            }
            out.end();
            (0..60).for_each(|_| _ = out.begin_document(c"deep"));
            out.append(c"a", 1);
            (0..60).for_each(|_| _ = out.end());
            out.begin_document(c"o").append(c"p", 1).end();
            out.begin_array(c"g").push(f64::from(id)).push(f64::from(id)).end().end();
        }
        out.end();
    });
    carry_out(client, &insert?)?;
    for index in
        ["{key: {g: '2dsphere'}, name: 'g'}", "{key: {s: 'text'}, name: 's'}", "{key: {l: 1}, name: 'l'}"]
    {
        carry_out(client, &command(&format!("{{createIndexes: 'c', indexes: [{index}]}}"), |_| {})?)?;
    }
    Ok(())
}

/// Sends a command. Returns the delay of the answer and its code.
fn throw(client: &mut Client, text: &str) -> Result<(Duration, i64), String> {
    let bomb = command(text, |out| _ = out.append(c"maxTimeMS", MAX_TIME.as_millis() as i32))?;
    let started = Instant::now();
    let reply = client.command(&bomb).map_err(|error| format!("no answer: {error}"))?;
    let late = started.elapsed().saturating_sub(MAX_TIME);
    let code = |document: base::bson::Document<'_>| document.get("code").and_then(|code| code.as_i64());
    let first = reply.view().get("writeErrors").and_then(|errors| errors.as_array()?.get(0)?.as_document());
    let code = code(reply.view()).or_else(|| first.and_then(code)).unwrap_or(0);
    if matches!(code, 1 | 8) {
        return Err(format!("{reply:.300}"));
    }
    let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document()?.get("id")?.as_i64());
    if let Some(id) = cursor.filter(|id| *id != 0) {
        let close = command("{killCursors: 'c'}", |out| _ = out.begin_array(c"cursors").push(id).end());
        client.command(&close?).map_err(|error| format!("no answer to killCursors: {error}"))?;
    }
    Ok((late, code))
}

/// Sends pings until the end, and returns the longest time of one.
fn ping(mut client: Client, stop: &AtomicBool) -> Duration {
    let ping = command("{ping: 1}", |_| {}).unwrap();
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        if client.command(&ping).is_err() {
            return Duration::MAX;
        }
        longest = longest.max(started.elapsed());
        thread::sleep(Duration::from_millis(5));
    }
    longest
}

/// Returns a number of serverStatus.
fn status(client: &mut Client, section: &str, name: &str) -> i64 {
    let status = command("{serverStatus: 1}", |_| {}).unwrap();
    let reply = client.command(&status).unwrap();
    let section = reply.view().get(section).and_then(|section| section.as_document());
    section.and_then(|section| section.get(name)?.as_i64()).unwrap_or(0)
}

/// Describes a failure with the values to repeat it.
fn fault(seed: u64, number: usize, cores: &[Core], what: &str) -> String {
    let core = cores.get(number).copied().unwrap_or(Core::Mixed);
    format!("VELLUM_BOMB={seed}/{number} ({core:?}): {what}")
}

#[test]
fn no_hostile_command_ends_the_server() {
    let limit = format!("{LIMIT}M");
    let Some(server) = Server::start_bounded(SPACE, &["--memory-limit", &limit]) else { return };
    let cores = cores();
    let mut client = server.connect().unwrap();
    fill(&mut client).unwrap();
    if let Ok(only) = std::env::var("VELLUM_BOMB") {
        let (seed, number) = only.split_once('/').expect("SEED/NUMBER");
        let text = bomb(seed.parse().unwrap(), number.parse().unwrap(), &cores);
        print_line(&format!("{text:.4000}\n{:?}", throw(&mut client, &text)));
        let peak = status(&mut client, "extra_info", "maximum_resident_set_kb") >> 10;
        return print_line(&format!("at most {peak} MB resident"));
    }
    let seed = std::env::var("VELLUM_BOMBS").map_or(SEED, |seed| seed.parse().unwrap());
    assert!(cores.len() <= BOMBS, "there are more operators than bombs");
    let (stop, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut faults: Vec<String> = Vec::new();
    let (mut latest, mut codes) = ((Duration::ZERO, 0), std::collections::BTreeMap::<i64, usize>::new());
    let longest = thread::scope(|scope| {
        let second = server.connect().unwrap();
        let pings = scope.spawn(|| ping(second, &stop));
        let throwers: Vec<_> = (0..THROWERS)
            .map(|thrower| {
                let (server, cores, next) = (&server, &cores, &next);
                scope.spawn(move || {
                    let mut client = server.connect().unwrap();
                    let mut outcomes = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= BOMBS {
                            return outcomes;
                        }
                        if thrower == 0 && number % 10 < THROWERS {
                            // The commands have enlarged the data. Other running commands may be in the way.
                            if let Err(why) = fill(&mut client) {
                                outcomes.push((number, Err(why)));
                            }
                        }
                        let outcome = throw(&mut client, &bomb(seed, number, cores));
                        let ended = outcome.as_ref().is_err_and(|why| why.starts_with("no answer"));
                        outcomes.push((number, outcome));
                        if ended {
                            match server.connect() {
                                Ok(another) => client = another,
                                Err(_) => return outcomes,
                            }
                        }
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = throwers.into_iter().map(|thrower| thrower.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for outcomes in outcomes {
            for (number, outcome) in outcomes.unwrap() {
                match outcome {
                    Ok((late, code)) => {
                        latest = latest.max((late, number));
                        *codes.entry(code).or_default() += 1;
                        if late > LATE {
                            faults.push(fault(seed, number, &cores, &format!("answered {late:?} late")));
                        }
                    }
                    Err(why) => faults.push(fault(seed, number, &cores, &why)),
                }
            }
        }
        pings.join().unwrap()
    });
    assert!(faults.is_empty(), "\n{}\n{}", faults.join("\n"), server.log_tail());
    let peak = status(&mut client, "extra_info", "maximum_resident_set_kb") >> 10;
    print_line(&format!(
        "bombs: {BOMBS}, at most {:?} late ({seed}/{}) and {peak} MB resident of {LIMIT}; pings at most {longest:?}; codes {codes:?}",
        latest.0, latest.1
    ));
    assert!(longest < PING_LATE, "a ping took {longest:?}");
    assert!(peak < (LIMIT + BEYOND) as i64, "{peak} MB were resident");
}

#[test]
fn every_form_is_known() {
    let cores = cores();
    for (number, core) in cores.iter().enumerate() {
        for seed in 0..3 {
            let text = bomb(seed, number, &cores);
            command(&text, |_| {}).unwrap_or_else(|why| panic!("{core:?}: {why}"));
            let name = match core {
                Core::Expression(name) | Core::Accumulator(name) | Core::Window(name) | Core::Stage(name) => {
                    name
                }
                Core::Filter(name) | Core::Update(name) => name,
                Core::Mixed => "",
            };
            let shown = text.contains(name) || matches!(core, Core::Filter("$comment"));
            assert!(shown, "{core:?} isn't in {text:.500}");
        }
    }
}

//! Experiments against fake servers in this process.

use super::Experiment;
use crate::Result;
use crate::load::measure::{Bench, Case, Prepared, RoundSpec, WARM_UP};
use crate::load::{Lab, LoadEnd, Worker};
use crate::options::{Common, Options, TargetArgument};
use crate::progress::Progress;
use crate::result::Kind;
use crate::run::empty_report;
use crate::target::{Target, null_server};
use clap::Parser;
use mongodb::bson::doc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// Parses arguments into options.
pub(crate) fn common(arguments: &[&str]) -> Common {
    let line = Line::try_parse_from(["lab", "clean"].iter().chain(arguments)).unwrap();
    match line.options.verb {
        crate::options::Verb::Clean(common) => common,
        other => panic!("{other:?}"),
    }
}

/// A null server in this process, behind a proxy that can be shut down.
struct Fake {
    target: Target,
    connections: Arc<Mutex<Vec<tokio::task::JoinHandle<()>>>>,
    door: tokio::task::JoinHandle<()>,
}

impl Fake {
    async fn open(name: &str) -> Fake {
        let null_server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let behind = null_server.local_addr().unwrap();
        std::thread::spawn(move || null_server::serve(&null_server, Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("mongodb://{}/", listener.local_addr().unwrap());
        let connections = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::clone(&connections);
        let door = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let passing = tokio::spawn(async move {
                    let mut server = TcpStream::connect(behind).await.unwrap();
                    server.set_nodelay(true).unwrap();
                    client.set_nodelay(true).unwrap();
                    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                });
                open.lock().unwrap().push(passing);
            }
        });
        let target = Target::connect(&TargetArgument { name: name.to_string(), uri }).await.unwrap();
        Fake { target, connections, door }
    }

    /// Closes all connections and refuses new ones.
    fn die(&self) {
        self.door.abort();
        self.connections.lock().unwrap().iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Sends pings, and counts the measured ones of one target.
#[derive(Clone, Default)]
struct Pinging {
    counts: &'static str,
    measured: Arc<AtomicU64>,
}

impl Pinging {
    /// Waits until some pings have been measured.
    async fn under_way(&self) {
        while self.measured.load(Relaxed) < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

struct Pinger(Target, mongodb::Client, Option<Arc<AtomicU64>>);

impl Bench for Pinging {
    type Worker = Pinger;

    async fn prepare(&self, target: &Target, visit: &RoundSpec) -> Result<Prepared<Pinger>> {
        let mut workers = Vec::new();
        for _ in 0..visit.connections {
            let counter = (target.name == self.counts).then(|| Arc::clone(&self.measured));
            workers.push(Pinger(target.clone(), target.mongo().await?, counter));
        }
        Ok(Prepared::Ready(workers))
    }
}

impl Worker for Pinger {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let ping = self.1.database("admin").run_command(doc! { "ping": 1 }).await;
        ping.map_err(|error| self.0.error(error))?;
        if let Some(counter) = self.2.as_ref().filter(|_| number < WARM_UP) {
            counter.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

fn lab(arguments: &[&str], fakes: &[&Fake]) -> Lab {
    let common = common(arguments);
    let report =
        empty_report(super::Run::own("clean").unwrap().describe(), "id".to_string(), 1, &common, Vec::new());
    let targets = fakes.iter().map(|fake| fake.target.clone()).collect();
    Lab::new(&common, targets, report, Progress::new(true))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_add_up_on_every_target() {
    let (a, b) = (Fake::open("a").await, Fake::open("b").await);
    let mut lab = lab(&["--rounds", "2"], &[&a, &b]);
    let section = lab.section("s", "", "", Kind::Bars);
    let case = Case::new("ping", LoadEnd::Operations(30), Pinging::default());
    lab.measure(section, &[case.clone(), Case { connections: 2, ..case }]).await;
    assert_eq!(lab.report.errors, Vec::<String>::new());
    let rows = &lab.report.sections[section].rows;
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!((row.operations, row.latency.count(), row.rounds.len()), (60, 60, 2));
        assert_eq!(row.rounds.iter().map(|round| round.operations).sum::<u64>(), 60);
        assert!((row.rounds.iter().map(|round| round.seconds).sum::<f64>() - row.seconds).abs() < 1e-9);
        assert!(!row.partial && row.note.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_dies_keeps_its_figures_and_the_others_go_on() {
    let (a, b) = (Fake::open("healthy").await, Fake::open("mortal").await);
    let mut lab = lab(&["--rounds", "2", "--duration", "2"], &[&a, &b]);
    let section = lab.section("s", "", "", Kind::Bars);
    let pinging = Pinging { counts: "mortal", ..Pinging::default() };
    let case = Case::new("ping", LoadEnd::Operations(1), pinging.clone());
    let cases = [Case { warm_up: LoadEnd::Operations(5), ..case }];
    // Rounds of a second: first `healthy`, then `mortal`, which dies in the middle.
    let killer = async {
        pinging.under_way().await;
        b.die();
    };
    tokio::join!(lab.measure(section, &cases), killer);
    let rows = &lab.report.sections[section].rows;
    assert_eq!((rows[0].rounds.len(), rows[0].partial), (2, false), "{:?}", lab.report.errors);
    assert!(rows[1].partial && rows[1].operations > 0);
    assert!(rows[1].note.as_ref().unwrap().starts_with("cut short"), "{:?}", rows[1].note);
    assert_eq!(lab.report.errors.len(), 1);
    assert!(lab.report.errors[0].starts_with("target mortal: crashed"), "{:?}", lab.report.errors);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_rows_that_say_so() {
    let a = Fake::open("a").await;
    let mut lab = lab(&["--rounds", "2", "--duration", "60"], &[&a]);
    let section = lab.section("s", "", "", Kind::Bars);
    let progress = lab.progress.clone();
    let pinging = Pinging { counts: "a", ..Pinging::default() };
    let stopper = async {
        pinging.under_way().await;
        progress.stop();
    };
    let case = Case::new("ping", LoadEnd::Operations(1), pinging.clone());
    let cases = [case.clone(), Case { name: "later".to_string(), ..case }];
    tokio::join!(lab.measure(section, &cases), stopper);
    let rows = &lab.report.sections[section].rows;
    assert!(rows[0].partial && rows[0].operations > 0, "{:?}", rows[0].note);
    assert_eq!((rows[1].partial, rows[1].operations), (false, 0));
    assert_eq!(rows[1].note.as_deref(), Some("not measured: the run was stopped early"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_highest_rate_is_searched_and_measured_around() {
    let a = Fake::open("a").await;
    let mut lab = lab(&["--rounds", "1", "--find-rate", "200", "--duration", "0.3"], &[&a]);
    let section = lab.section("s", "", "", Kind::Bars);
    let fast = Case::new("ping", LoadEnd::Operations(20), Pinging::default());
    let exact = fast.clone().with_fixed_operations(3, 0);
    lab.measure(section, &[fast, exact]).await;
    assert_eq!(lab.report.sections.len(), 2, "what is no stream has no rate");
    let found = lab.report.sections[section].rows[0].extra.iter().next().unwrap();
    assert_eq!(found.0, "highest rate with p99 within 200 ms, 1/s");
    assert!(*found.1 > 1.0);
    let rates = &lab.report.sections[1];
    assert_eq!((rates.kind, rates.rows.len()), (Kind::Rates, 8));
    let offered: Vec<f64> = rates.rows.iter().filter_map(|row| row.x).collect();
    assert!(offered.len() == 8 && offered.is_sorted());
    assert!(rates.rows.iter().all(|row| row.service.is_some() && row.operations > 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_offered_to_streams_only() {
    let a = Fake::open("a").await;
    let mut lab = lab(&["--rounds", "1", "--rate", "100"], &[&a]);
    let section = lab.section("s", "", "", Kind::Bars);
    let stream = Case::new("ping", LoadEnd::Operations(50), Pinging::default());
    lab.measure(section, &[stream.clone(), stream.with_fixed_operations(5, 1)]).await;
    let rows = &lab.report.sections[section].rows;
    assert!(rows[0].service.is_some() && (0.4..2.0).contains(&rows[0].seconds), "{}", rows[0].seconds);
    assert!(rows[1].service.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_rates_are_measured_in_turn_and_shown_as_rates() {
    let a = Fake::open("a").await;
    let mut lab = lab(&["--rounds", "2", "--rate", "100,400"], &[&a]);
    let section = lab.section("s", "", "", Kind::Bars);
    lab.measure(section, &[Case::new("ping", LoadEnd::Operations(40), Pinging::default())]).await;
    let section = &lab.report.sections[section];
    assert_eq!((section.kind, section.rows.len()), (Kind::Rates, 2));
    let offered: Vec<_> = section.rows.iter().filter_map(|row| row.x).collect();
    assert_eq!(offered, [100.0, 400.0]);
    assert!(section.rows[0].seconds > section.rows[1].seconds);
    assert!(section.rows.iter().all(|row| row.operations == 80 && !row.is_shortened()));
}

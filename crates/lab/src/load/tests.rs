//! The load generator against fake servers in this process: one stalls, one dies, one is silent, one is slow.

use super::*;
use crate::Error;
use crate::progress::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Delay of a fake server's answer by the time since its start.
type Manner = fn(Duration) -> Duration;

/// Answers each byte with a byte, after the delay of its manner.
async fn serve(manner: Manner) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let start = Instant::now();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    let wait = manner(start.elapsed());
                    if !wait.is_zero() {
                        tokio::time::sleep(wait).await;
                    }
                    if stream.write_all(&byte).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

struct Caller(TcpStream);

impl Worker for Caller {
    async fn operation(&mut self, _: u64) -> crate::Result<()> {
        let gone = |error: std::io::Error| Error::Input(error.to_string());
        self.0.write_all(&[1]).await.map_err(gone)?;
        let mut byte = [0];
        self.0.read_exact(&mut byte).await.map(drop).map_err(gone)
    }
}

async fn callers(manner: Manner, count: usize) -> Vec<Caller> {
    let address = serve(manner).await;
    let mut callers = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        callers.push(Caller(stream));
    }
    callers
}

async fn run<W: Worker>(workers: &mut Vec<W>, rate: Option<f64>, until: LoadEnd) -> LoadResult {
    run_load(workers, Load { rate, until, first: 0 }, &Progress::new(true)).await
}

/// No answers from 0.5 to 1.5 seconds.
fn stall(since: Duration) -> Duration {
    let (from, to) = (Duration::from_millis(500), Duration::from_millis(1500));
    if since >= from { to.saturating_sub(since) } else { Duration::ZERO }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stall_is_in_open_percentiles_and_not_in_closed_ones() {
    let mut workers = callers(stall, 4).await;
    let open = run(&mut workers, Some(300.0), LoadEnd::Seconds(2.5)).await;
    let mut workers = callers(stall, 4).await;
    let closed = run(&mut workers, None, LoadEnd::Seconds(2.5)).await;
    assert_eq!(open.operations(), 750, "all that fell due were sent");
    // About 300 of the 750 operations fell due in the stall, and waited half a second on average.
    assert!(open.latency.quantile(0.90) > 600_000.0, "{:?}", open.latency.summary());
    assert!(open.late >= 250, "{}", open.late);
    let service = open.service.summary();
    assert!(service.p90 < 300_000.0, "the server took long for four only: {service:?}");
    // The closed loop sent four operations in that second, and thousands in other seconds.
    let closed = closed.latency.summary();
    assert!(closed.p99 < 300_000.0 && closed.max > 700_000.0, "{closed:?}");
    // The timelines of both show the gap.
    let silent: f64 =
        open.timeline.iter().filter(|moment| moment.operations == 0).map(|moment| moment.seconds).sum();
    assert!((0.6..1.3).contains(&silent), "{silent}");
    assert_eq!(open.timeline.iter().map(|moment| moment.operations).sum::<u64>(), 750);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_schedule_is_kept() {
    let mut workers = callers(|_| Duration::ZERO, 8).await;
    let outcome = run(&mut workers, Some(500.0), LoadEnd::Operations(500)).await;
    assert_eq!((outcome.operations(), outcome.ended), (500, EndReason::Done));
    assert!((0.9..1.6).contains(&outcome.seconds), "{}", outcome.seconds);
    assert_eq!(workers.len(), 8, "they come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_that_no_one_can_keep_ends() {
    let mut workers = callers(|_| Duration::from_millis(100), 1).await;
    let outcome = run(&mut workers, Some(1000.0), LoadEnd::Seconds(0.2)).await;
    assert_eq!(outcome.ended, EndReason::Behind);
    assert_eq!(outcome.operations() + outcome.unserved, 200);
    assert_eq!(outcome.lagging, 0, "the server's fault, not the generator's");
}

/// Does nothing, and fails from a given number on.
struct Counter {
    sum: Arc<AtomicU64>,
    fails_from: u64,
}

impl Worker for Counter {
    async fn operation(&mut self, number: u64) -> crate::Result<()> {
        tokio::time::sleep(Duration::from_micros(100)).await;
        self.sum.fetch_add(number, Relaxed);
        if number < self.fails_from { Ok(()) } else { Err(Error::Input(format!("no {number}"))) }
    }
}

fn counters(count: usize, fails_from: u64) -> (Vec<Counter>, Arc<AtomicU64>) {
    let sum = Arc::new(AtomicU64::new(0));
    ((0..count).map(|_| Counter { sum: Arc::clone(&sum), fails_from }).collect(), sum)
}

#[tokio::test]
async fn every_number_is_used_once() {
    let (mut workers, sum) = counters(5, u64::MAX);
    let load = Load { rate: None, until: LoadEnd::Operations(50), first: 100 };
    let outcome = run_load(&mut workers, load, &Progress::new(true)).await;
    assert_eq!((outcome.operations(), sum.load(Relaxed)), (50, (100..150).sum()));
    assert_eq!(outcome.operations(), outcome.latency.count());
}

#[tokio::test]
async fn a_failing_server_ends_the_load_and_keeps_earlier_results() {
    let (mut workers, _) = counters(2, 60);
    let outcome = run(&mut workers, None, LoadEnd::Seconds(20.0)).await;
    assert_eq!((outcome.ended, outcome.operations()), (EndReason::Broken, 60));
    assert!(outcome.failures >= 20);
    assert!(outcome.first_error.as_ref().unwrap().to_string().starts_with("no 6"));
    assert!(outcome.seconds < 10.0);
}

/// Never answers.
struct Silent(Arc<AtomicBool>);

impl Worker for Silent {
    async fn operation(&mut self, _: u64) -> crate::Result<()> {
        self.0.store(true, Relaxed);
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_stop_ends_hanging_operations() {
    let requested = Arc::new(AtomicBool::new(false));
    let (mut workers, progress) = (vec![Silent(Arc::clone(&requested))], Progress::new(true));
    let (stopper, hangs) = (progress.clone(), Arc::clone(&requested));
    tokio::spawn(async move {
        while !hangs.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stopper.stop();
    });
    let outcome =
        run_load(&mut workers, Load { rate: None, until: LoadEnd::Operations(10), first: 0 }, &progress)
            .await;
    assert_eq!((outcome.ended, outcome.operations()), (EndReason::Stopped, 0));
    assert!(requested.load(Relaxed) && workers.is_empty());
}

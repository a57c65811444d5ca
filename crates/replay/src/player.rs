//! Sends the requests of a recording to a target: one thread for each connection, requests in order.

use super::compare::{Comparison, outcome};
use super::mapping::Mapping;
use super::order::Order;
use super::script::{Connection, Exchange, Script};
use crate::message::{MORE_TO_COME, Sections};
use crate::proxy::select_server;
use crate::redact::Redactor;
use std::io::Read;
use std::time::{Duration, Instant};
use wire::client::Client;
use wire::uri::ConnectionString;

/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a reply, in addition to ten times the recorded time.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay beyond which a request counts as late.
const LATE_AFTER: Duration = Duration::from_millis(1);

/// Interval at which a waiting thread checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Stack size of a thread. Only documents nest deeply, at most 200 levels.
const STACK: usize = 2 << 20;

/// Pace of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// A factor of the recorded pace: 2.0 is twice as fast.
    Times(f64),
    /// Each connection sends its next request when the last one has its reply.
    Max,
}

/// A recording that can be played any number of times.
pub struct Recording {
    /// The requests to send.
    pub script: Script,
    ranks: Ranks,
}

/// Settings of one replay on one target.
pub struct Round {
    /// Pace.
    pub speed: Speed,
    /// True to compare replies, and to keep the order between connections.
    pub check: bool,
    /// False for a null server, whose outcomes mean nothing.
    pub check_outcomes: bool,
    /// Makes session ids unique, so that no server takes a request for a retry of another round.
    pub salt: [u8; 16],
}

impl Recording {
    /// Reads a recording. `spares_system` skips requests that change users, settings or system databases.
    ///
    /// # Errors
    /// It is no recording, or damaged at its start.
    pub fn read(source: impl Read, spares_system: bool) -> Result<Recording, String> {
        let script = Script::read(source, spares_system)?;
        Ok(Recording { ranks: Ranks::of(&script), script })
    }

    /// Sends everything to a target, until `order` is stopped. Blocks.
    ///
    /// # Errors
    /// No host of the target answers.
    pub fn play(
        &self,
        uri: &ConnectionString,
        round: &Round,
        order: &Order,
    ) -> Result<(Vec<Observation>, Duration), String> {
        let host = select_server(uri)?.host;
        let mapping = Mapping::new(round.salt, &self.script.server_generated);
        let redactor = Redactor::new(&self.script.header.redacted);
        let player = Player {
            script: &self.script,
            uri,
            host: &host,
            speed: round.speed,
            check: round.check,
            check_outcomes: round.check_outcomes,
            mapping: &mapping,
            redactor: &redactor,
            order,
            ranks: &self.ranks,
        };
        Ok(player.run())
    }

    /// Returns the handle that can end a round early.
    pub fn order(&self) -> Order {
        Order::new(self.script.exchanges.len())
    }
}

/// State of a replay on one target.
pub(super) struct Player<'a> {
    pub(super) script: &'a Script,
    pub(super) uri: &'a ConnectionString,
    /// Address of the target.
    pub(super) host: &'a str,
    pub(super) speed: Speed,
    /// True to compare replies, and to keep the order between connections.
    pub(super) check: bool,
    /// False for a null server, whose outcomes mean nothing.
    pub(super) check_outcomes: bool,
    pub(super) mapping: &'a Mapping<'a>,
    pub(super) redactor: &'a Redactor,
    pub(super) order: &'a Order,
    pub(super) ranks: &'a Ranks,
}

/// Ranks by end time of the exchanges, and then of the connections.
pub(super) struct Ranks {
    /// Rank of each sent exchange.
    rank: Vec<usize>,
    /// End time of each rank.
    ended: Vec<u64>,
    /// Last exchanges of the connections that ended before this one began.
    predecessors: Vec<Vec<usize>>,
}

impl Ranks {
    /// Ranks the exchanges and connections of a script by their end.
    pub(super) fn of(script: &Script) -> Ranks {
        // Exchanges without a recorded reply are not sent, so no other may wait for them.
        let sent = script.connections.iter().flat_map(|connection| connection.exchanges.iter().copied());
        let mut sorted: Vec<usize> = sent.collect();
        sorted.sort_by_key(|exchange| script.exchanges[*exchange].ended());
        let mut rank = vec![usize::MAX; script.exchanges.len()];
        sorted.iter().enumerate().for_each(|(index, exchange)| rank[*exchange] = index);
        let ended = sorted.iter().map(|exchange| script.exchanges[*exchange].ended()).collect();
        let last = |connection: &Connection| connection.exchanges.last().copied();
        let predecessors = script.connections.iter().map(|this| {
            let finished = script.connections.iter().filter(|other| other.closed < this.opened);
            finished.filter_map(last).collect()
        });
        Ranks { rank, ended, predecessors: predecessors.collect() }
    }

    /// Returns the number of exchanges that had finished at this time.
    fn finished_before(&self, at: u64) -> usize {
        self.ended.partition_point(|ended| *ended < at)
    }
}

/// Result of one exchange.
pub struct Observation {
    /// Number of the exchange in the script.
    pub exchange: usize,
    /// Time from the request to its reply.
    pub latency: Duration,
    /// True if it was sent more than a millisecond after it was due.
    pub late: bool,
    /// Error of a request without a reply.
    pub result: Result<(), String>,
    /// Outcome, if it differs from the recorded one.
    pub error_differs: Option<String>,
    /// Different reply with the same outcome.
    pub reply_differs: Option<String>,
}

impl Player<'_> {
    /// Sends everything. Returns the result of each exchange, and the total time.
    pub(super) fn run(&self) -> (Vec<Observation>, Duration) {
        let began = Instant::now();
        let mut all = Vec::new();
        std::thread::scope(|scope| {
            let connections = self.script.connections.iter().enumerate();
            let threads: Vec<_> = connections
                .map(|(index, connection)| {
                    let thread = std::thread::Builder::new().stack_size(STACK);
                    thread.spawn_scoped(scope, move || self.connection(index, connection, began))
                })
                .collect();
            if threads.iter().any(Result::is_err) {
                self.order.stop();
            }
            for thread in threads {
                let observations = thread.map(|thread| thread.join().unwrap_or_default());
                all.extend(observations.unwrap_or_default());
            }
        });
        (all, began.elapsed())
    }

    /// Replays one connection until its last exchange or the end of the replay.
    fn connection(&self, index: usize, connection: &Connection, began: Instant) -> Vec<Observation> {
        let mut observations = Vec::new();
        if self.speed == Speed::Max
            && !self.ranks.predecessors[index].iter().all(|last| self.order.wait_for(self.ranks.rank[*last]))
        {
            return observations;
        }
        if !self.sleep_until(self.due(connection.opened, began)) {
            return observations;
        }
        let mut client = None;
        for &exchange in &connection.exchanges {
            let recorded = &self.script.exchanges[exchange];
            if !self.wait_until_due(recorded, began) {
                return observations;
            }
            observations.extend(self.exchange(&mut client, exchange, recorded, began));
            self.order.finish(self.ranks.rank[exchange]);
        }
        observations
    }

    /// Returns the due time of a recorded moment; `None` if the pace has no schedule.
    fn due(&self, at: u64, began: Instant) -> Option<Instant> {
        match self.speed {
            Speed::Max => None,
            Speed::Times(factor) => Some(began + Duration::from_micros(at).div_f64(factor)),
        }
    }

    /// Waits for the due time and for the required predecessors. Returns false if the replay is to end.
    fn wait_until_due(&self, recorded: &Exchange, began: Instant) -> bool {
        self.sleep_until(self.due(recorded.at, began))
            && (!self.check || self.order.wait_for_all_before(self.ranks.finished_before(recorded.at)))
            && recorded.requires.iter().all(|required| self.order.wait_for(self.ranks.rank[*required]))
    }

    /// Sleeps until the due time. Returns false if the replay is to end.
    fn sleep_until(&self, due: Option<Instant>) -> bool {
        let Some(due) = due else { return !self.order.is_stopped() };
        loop {
            if self.order.is_stopped() {
                return false;
            }
            let remaining = due.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return true;
            }
            std::thread::sleep(remaining.min(POLL_INTERVAL));
        }
    }

    /// Sends one request and reads its reply; `None` if nothing is to be sent.
    fn exchange(
        &self,
        client: &mut Option<Client>,
        exchange: usize,
        recorded: &Exchange,
        began: Instant,
    ) -> Option<Observation> {
        let parts = Sections::parse(&recorded.sections)?;
        let sections = self.mapping.request(&parts);
        let mut observation = Observation {
            exchange,
            latency: Duration::ZERO,
            late: self.due(recorded.at, began).is_some_and(|due| due + LATE_AFTER < Instant::now()),
            result: Ok(()),
            error_differs: None,
            reply_differs: None,
        };
        let timeout = recorded.reply.as_ref().map_or(0, |reply| reply.at.saturating_sub(recorded.at));
        let timeout = REPLY_TIMEOUT + Duration::from_micros(timeout) * 10;
        let mut attempt = || -> Result<(), String> {
            let client = self.open(client)?;
            let sent = Instant::now();
            client.set_deadline(sent + timeout);
            client.send(recorded.flags & MORE_TO_COME, &sections).map_err(|error| error.to_string())?;
            let Some(reply) = &recorded.reply else {
                observation.latency = sent.elapsed();
                return Ok(());
            };
            let actual = client.receive().map_err(|error| error.to_string())?;
            observation.latency = sent.elapsed();
            if !self.check_outcomes {
                return Ok(());
            }
            let expected = outcome(reply.document.view());
            let found = outcome(actual.view());
            let lacks_cursor = self.mapping.lacks_cursor(&parts);
            self.mapping.learn(&reply.document, &actual);
            if expected != found {
                let why = if lacks_cursor { ", because the first batch closed the cursor" } else { "" };
                let reason = actual.view().get("errmsg").and_then(|text| text.as_str()).unwrap_or_default();
                let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                observation.error_differs = Some(format!("{found}{reason} instead of {expected}{why}"));
            } else if self.check {
                let comparison = Comparison { mapping: self.mapping, redactor: self.redactor };
                observation.reply_differs =
                    comparison.difference(&parts, reply.document.view(), actual.view());
            }
            Ok(())
        };
        let result = attempt();
        if result.is_err() {
            // The next request opens a new connection.
            *client = None;
        }
        observation.result = result;
        Some(observation)
    }

    /// Returns the connection's client, and connects it at its first request.
    fn open<'c>(&self, client: &'c mut Option<Client>) -> Result<&'c mut Client, String> {
        if client.is_none() {
            let connected = Client::connect(self.host, self.uri, Instant::now() + CONNECT_TIMEOUT);
            *client = Some(connected.map_err(|why| format!("cannot connect: {why}"))?);
        }
        client.as_mut().ok_or_else(|| "not connected".to_string())
    }
}

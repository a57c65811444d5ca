//! A question each second, whose answer says that the server is there: a network that swallows packets ends no
//! connection by itself, and whoever waits on one would wait for as long as TCP hopes.

use crate::connection::{Connection, Statement};
use crate::failure::Answer;
use crate::lease::Lease;
use crate::members::Standbys;
use crate::pool::Place;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::threads;

/// How often the question is asked.
const BEAT: Duration = Duration::from_secs(1);

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often the other hosts are looked at: one of them may have taken the primary's place, while that one still
/// believes itself to be it.
const SURVEY: Duration = Duration::from_secs(3);

/// A server that answers a new connection this soon would have answered an old one.
const SOON: Duration = Duration::from_secs(1);

/// After how long without an answer all connections are given up.
const GONE: Duration = Duration::from_secs(10);

/// Begins to ask, until the front is gone.
pub(crate) fn start(place: &Arc<Place>, lease: &Arc<Lease>) {
    let (place, lease) = (place.clone(), lease.clone());
    let question = Statement::new("pulse", "select 1::int8");
    let mut pulse = Pulse { place, question, connection: None, silent_since: None };
    let beat = move || {
        while !lease.wait(BEAT) {
            pulse.beat();
        }
    };
    if let Err(error) = threads::spawn("postgres-pulse", None, beat) {
        log::error!("nobody notices when PostgreSQL answers no more: {error}");
    }
}

/// Begins to look at the hosts, where there are several, until the front is gone.
pub(crate) fn start_survey(place: &Arc<Place>, standbys: &Arc<Standbys>, lease: &Arc<Lease>) {
    if standbys.is_empty() {
        return;
    }
    let (place, standbys, lease) = (place.clone(), standbys.clone(), lease.clone());
    let survey = move || {
        while !lease.wait(Duration::ZERO) {
            standbys.look(&place);
            standbys.rest(SURVEY);
        }
    };
    if let Err(error) = threads::spawn("postgres-survey", None, survey) {
        log::error!("nobody notices when another PostgreSQL server is promoted: {error}");
    }
}

struct Pulse {
    place: Arc<Place>,
    question: Arc<Statement>,
    connection: Option<Connection>,
    silent_since: Option<Instant>,
}

impl Pulse {
    fn beat(&mut self) {
        let asked = Instant::now();
        let had_one = self.connection.is_some();
        let Err(failure) = self.ask() else { return self.silent_since = None };
        let took = asked.elapsed();
        self.connection = None;
        if !had_one {
            return self.gone(&format!("{failure:?}"));
        }
        let again = Instant::now();
        match self.ask() {
            // The way that others still wait on leads nowhere. Where another life has begun they have been ended.
            Ok(()) if took >= PATIENCE && again.elapsed() < SOON => {
                log::warn!("connections to PostgreSQL that nobody answers on are ended");
                self.place.lives.end_connections();
                self.connection = None;
                self.silent_since = None;
            }
            Ok(()) => self.silent_since = None,
            Err(failure) => self.gone(&format!("{failure:?}")),
        }
    }

    fn ask(&mut self) -> Answer<()> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let mut opened = self.place.connect(&Arc::default())?;
                opened.limit(PATIENCE)?;
                opened
            }
        };
        connection.one(&self.question, &[])?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Notes that nobody answers, and ends all connections once that has lasted.
    fn gone(&mut self, why: &str) {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= GONE {
            log::warn!("PostgreSQL has not answered for {} s: {why}", since.elapsed().as_secs());
            self.place.lives.end_connections();
            self.silent_since = Some(Instant::now());
        }
    }
}

//! Reads from standbys: which there are, and how far each has come.
//!
//! A front notes what it knew whenever it renews its lease, and what the lease said from then on. A standby that shows
//! that very lease has come to that moment, at least: by the front's own clock, on the history that the front
//! writes to, whatever a standby may say of itself that follows a primary of the past. A causal read that wants more
//! has the lease renewed, written to disk at once so that it is sent on, and waits until the standby shows it.

use crate::config::{Config, Wanted};
use crate::connection::{Connection, Param};
use crate::failure::{Answer, Failure, LOOK, go_on};
use crate::front::Front;
use crate::lives::Lives;
use crate::log::time_from;
use crate::pool::{Lent, Place, Pool};
use crate::session::{Session, end};
use crate::snapshot::PostgresSnapshot;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use storage::store::{Among, Elsewhere, Sight};

/// How long a standby may take to come up to what is wanted, where nobody else will do, and where the primary will.
const CATCHES_UP: Duration = Duration::from_secs(10);
const CATCHES_UP_OR_ELSE: Duration = Duration::from_secs(1);

/// For how long nobody waits for one that has taken longer.
const PASSED_OVER: Duration = Duration::from_secs(3);

/// By how much longer than the nearest others may take to answer that count as near, too: as routers have it.
const AS_NEAR: Duration = Duration::from_millis(15);

/// How often a standby is asked how far it is.
const ASK: Duration = Duration::from_millis(3);

/// How long the first look at all hosts may take, or one that somebody has asked for.
const LOOKED_FOR: Duration = Duration::from_secs(12);

/// What a host is, as of the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Role {
    Away,
    Primary,
    Standby,
}

/// One of the hosts of the connection string.
struct Member {
    place: Arc<Place>,
    pool: Arc<Pool>,
    role: AtomicU8,
    /// How long it takes to answer, in microseconds: the latest looks count most.
    took: AtomicU64,
    /// Until when it is passed over.
    passed_over: Mutex<Option<Instant>>,
}

impl Member {
    fn is(&self, role: Role) -> bool {
        self.role.load(Ordering::Acquire) == role as u8
    }

    fn note(&self, role: Role) {
        self.role.store(role as u8, Ordering::Release);
    }

    fn note_took(&self, took: Duration) {
        let took = took.as_micros() as u64;
        let smooth = |before: u64| Some(if before == 0 { took } else { (4 * before + took) / 5 });
        // Nobody else notes it.
        let _ = self.took.fetch_update(Ordering::Relaxed, Ordering::Relaxed, smooth);
    }

    fn took(&self) -> Duration {
        Duration::from_micros(self.took.load(Ordering::Relaxed))
    }

    fn is_passed_over(&self) -> bool {
        self.passed_over.lock().is_some_and(|until| Instant::now() < until)
    }
}

/// All hosts that may have standbys.
pub(crate) struct Standbys {
    /// None where there is but one host.
    members: Vec<Member>,
    next: AtomicUsize,
    /// How many looks at all hosts there have been, and whether somebody waits for the next.
    looks: Mutex<(u64, bool)>,
    looked: Condvar,
    asked: Condvar,
}

impl Standbys {
    /// Those of a connection string; so many connections to each.
    pub(crate) fn new(place: &Place, pool: &Pool, most: usize) -> Standbys {
        let hosts = if place.config.hosts.len() > 1 { place.config.hosts.as_slice() } else { &[] };
        let member = |host: &(String, u16)| {
            let config = Config { hosts: vec![host.clone()], wanted: Wanted::Any, ..place.config.clone() };
            let place = Arc::new(Place { config, lives: Arc::new(Lives::default()), life: None });
            Member {
                pool: pool.leading_to(&place, most),
                place,
                role: AtomicU8::new(Role::Away as u8),
                took: AtomicU64::new(0),
                passed_over: Mutex::default(),
            }
        };
        Standbys {
            members: hosts.iter().map(member).collect(),
            next: AtomicUsize::new(0),
            looks: Mutex::default(),
            looked: Condvar::new(),
            asked: Condvar::new(),
        }
    }

    /// Whether there can be any.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Looks at each host: what it is, and whether it has taken the primary's place. Connections to one that
    /// doesn't answer are ended, so that nobody waits on them.
    pub(crate) fn look(&self, primary: &Place) {
        for member in &self.members {
            let opened = Connection::open(&member.place.config, &Lives::default());
            match opened.and_then(|connection| primary.meet(connection)) {
                Ok((is_standby, took)) => {
                    member.note_took(took);
                    member.note(if is_standby { Role::Standby } else { Role::Primary });
                }
                Err(failure) => {
                    member.note(Role::Away);
                    if matches!(failure, Failure::Lost(_)) {
                        member.place.lives.end_connections();
                    }
                }
            }
        }
        let mut looks = self.looks.lock();
        *looks = (looks.0 + 1, false);
        self.looked.notify_all();
    }

    /// Waits so long, or until somebody asks for a look.
    pub(crate) fn rest(&self, pause: Duration) {
        let mut looks = self.looks.lock();
        if !looks.1 {
            self.asked.wait_for(&mut looks, pause);
        }
    }

    /// Has all hosts looked at, and waits for that.
    ///
    /// Errors: `GivenUp`.
    fn look_again(&self) -> Answer<()> {
        let end = Instant::now() + LOOKED_FOR;
        let mut looks = self.looks.lock();
        let before = looks.0;
        while looks.0 == before && Instant::now() < end {
            looks.1 = true;
            self.asked.notify_all();
            self.looked.wait_for(&mut looks, LOOK);
            go_on()?;
        }
        Ok(())
    }

    /// The standbys, beginning with another each time; last those that took too long a moment ago, where nobody else
    /// will do.
    fn at_hand(&self, among: Among) -> Vec<&Member> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.members.len();
        let turned = (0..count).filter_map(|at| self.members.get((first + at) % count));
        let there: Vec<&Member> = match among {
            Among::Others | Among::OthersFirst => turned.filter(|member| member.is(Role::Standby)).collect(),
            // The primary answers where it is its turn.
            Among::Nearest => {
                let there: Vec<&Member> = turned.filter(|member| !member.is(Role::Away)).collect();
                let nearest = there.iter().map(|member| member.took()).min().unwrap_or_default();
                let mut near = there.into_iter().filter(|member| member.took() <= nearest + AS_NEAR);
                near.next().filter(|member| member.is(Role::Standby)).into_iter().collect()
            }
            Among::WriterFirst if self.members.iter().any(|member| member.is(Role::Primary)) => Vec::new(),
            Among::WriterFirst => turned.filter(|member| member.is(Role::Standby)).collect(),
        };
        let (late, good): (Vec<_>, Vec<_>) = there.into_iter().partition(|member| member.is_passed_over());
        if among.writer_will_do() { good } else { good.into_iter().chain(late).collect() }
    }
}

/// What a standby shows.
struct Shown {
    generation: u64,
    is_current: bool,
    is_after: bool,
}

impl Front {
    /// A state of a standby that is as was asked; `None` where there is no such standby.
    ///
    /// Errors: `GivenUp`.
    pub(crate) fn sight_elsewhere(&self, asked: Elsewhere) -> Answer<Option<Sight>> {
        let since = Instant::now();
        if self.standbys.is_empty() {
            return Ok(None);
        }
        for round in 0..2 {
            for member in self.standbys.at_hand(asked.among) {
                match self.read_from(member, asked, since) {
                    Ok(Some(sight)) => return Ok(Some(sight)),
                    Ok(None) => {}
                    Err(failure @ Failure::GivenUp(_)) => return Err(failure),
                    Err(failure) => {
                        log::warn!("a standby is not read from: {failure:?}");
                        member.note(Role::Away);
                    }
                }
            }
            // What was known of them may be old; where the primary will do, nobody waits for news.
            if round == 0 && !asked.among.writer_will_do() {
                self.standbys.look_again()?;
            } else {
                break;
            }
        }
        Ok(None)
    }

    fn read_from(&self, member: &Member, asked: Elsewhere, since: Instant) -> Answer<Option<Sight>> {
        let patience = if asked.among.writer_will_do() { CATCHES_UP_OR_ELSE } else { CATCHES_UP };
        let mut is_marked = false;
        loop {
            let mut lent = member.pool.take(&|| self.sessions.make_room())?;
            let shown = match self.ask_standby(&mut lent, asked.after, since) {
                Err(failure) if failure.ends_connection() && !lent.is_new => {
                    member.pool.clear();
                    continue;
                }
                shown => shown,
            };
            match shown {
                Ok(Some(shown)) if shown.is_current && shown.is_after => {
                    let session = Session::of_standby(&self.statements, lent, &member.pool, &self.sessions);
                    let snapshot = PostgresSnapshot { statements: self.statements.clone(), session };
                    let generation = shown.generation;
                    return Ok(Some(Sight { snapshot: Arc::new(snapshot), generation }));
                }
                Ok(shown) => {
                    end(&mut lent, &self.statements.rollback);
                    if shown.is_none() {
                        member.note(Role::Primary);
                        return Ok(None);
                    }
                }
                Err(failure) => {
                    end(&mut lent, &self.statements.rollback);
                    return Err(failure);
                }
            }
            drop(lent);
            if since.elapsed() >= patience {
                *member.passed_over.lock() = Some(Instant::now() + PASSED_OVER);
                return Ok(None);
            }
            if !is_marked {
                is_marked = true;
                match self.lease.mark(&self.control, &self.statements, &self.times, since) {
                    // Without a primary, what the standby will show tells how far it is, or doesn't.
                    Err(failure) if !matches!(failure, Failure::GivenUp(_)) => {
                        log::debug!("the lease is not renewed for a standby: {failure:?}");
                    }
                    marked => marked?,
                }
            }
            go_on()?;
            std::thread::sleep(ASK);
        }
    }

    /// Begins a state of a standby, and tells how far that is; `None` where it isn't one any more.
    fn ask_standby(&self, lent: &mut Lent, after: Option<u64>, since: Instant) -> Answer<Option<Shown>> {
        lent.only_reads = true;
        lent.call(&self.statements.begin_read, &[])?;
        lent.call(&self.statements.standby_state, &[Param::Int(self.number())])?;
        lent.flush()?;
        let answers = match lent.answer() {
            // It hasn't come as far as the schema's beginning.
            Err(failure) if failure.is("42P01") || failure.is("3F000") => {
                return Ok(Some(Shown { generation: 0, is_current: false, is_after: false }));
            }
            answers => answers?,
        };
        let row = answers.last().and_then(|rows| rows.first()).cloned().unwrap_or_default();
        if row.int(0) == 0 {
            return Ok(None);
        }
        let marker = self.lease.marker_of(row.int(1), self.lives().current());
        let logged = row.bytes(2).map(|_| time_from(row.int(2)));
        let is_after = after.is_none_or(|after| {
            logged.is_some_and(|logged| logged >= after)
                || marker.is_some_and(|marker| marker.time >= after || marker.at >= since)
        });
        let is_current = marker.is_some_and(|marker| marker.at.elapsed() < self.lease.stale);
        Ok(Some(Shown { generation: row.int(3) as u64, is_current, is_after }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Limits;
    use crate::store::PostgresStore;
    use crate::testing::Cluster;
    use storage::store::Store;

    /// A time that nothing here takes.
    const SOON: Duration = Duration::from_secs(20);

    fn is_read(store: &PostgresStore) -> bool {
        let asked = Elsewhere { after: None, among: Among::OthersFirst };
        store.sight_elsewhere(asked).unwrap().is_some()
    }

    #[test]
    fn a_standby_that_stands_still_is_read_until_it_is_too_old() {
        let Some(primary) = Cluster::start().unwrap() else { return };
        let standby = primary.start_standby().unwrap();
        let both = format!(
            "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=postgres",
            primary.port(),
            standby.port()
        );
        let stale = Duration::from_secs(3);
        let config = Config::parse(&both, &|_| None).unwrap();
        let store =
            PostgresStore::open(config, "stale", Limits { stale, ..Limits::default() }, None).unwrap();
        let until_read = || {
            let begin = Instant::now();
            while !is_read(&store) {
                assert!(begin.elapsed() < SOON, "the standby is not read");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        until_read();
        standby.run(&["select count(pg_wal_replay_pause())"]).unwrap();
        let state = "select (pg_get_wal_replay_pause_state() = 'paused')::int4";
        while standby.run(&[state]).unwrap() != Some(1) {
            std::thread::sleep(Duration::from_millis(20));
        }
        // What it shows was written before now.
        let paused = Instant::now();
        assert!(is_read(&store), "it is not too old yet");
        while is_read(&store) {
            assert!(paused.elapsed() < stale + SOON, "it is read however old it is");
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(stale.saturating_sub(paused.elapsed()));
        assert!(!is_read(&store), "it has not come any further");
        let others = Elsewhere { after: None, among: Among::Others };
        assert!(store.sight_elsewhere(others).unwrap().is_none());
        standby.run(&["select count(pg_wal_replay_resume())"]).unwrap();
        until_read();
    }
}

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
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use storage::store::{Elsewhere, Sight};

/// How old a state may be that is read on a standby: the least that maxStalenessSeconds can ask for.
pub(crate) const STALE: Duration = Duration::from_secs(90);

/// How long a standby may take to come up to what is wanted, where nobody else will do, and where the primary will.
const CATCHES_UP: Duration = Duration::from_secs(10);
const CATCHES_UP_OR_ELSE: Duration = Duration::from_secs(1);

/// For how long nobody waits for one that has taken longer.
const PASSED_OVER: Duration = Duration::from_secs(3);

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
            let found = opened.and_then(|connection| primary.meet(connection));
            match found {
                Ok(true) => member.note(Role::Standby),
                Ok(false) => member.note(Role::Primary),
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

    /// The standbys, beginning with another each time; last those that took too long a moment ago.
    fn at_hand(&self, preferred_only: bool) -> Vec<&Member> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.members.len();
        let turned = (0..count).filter_map(|at| self.members.get((first + at) % count));
        let (late, good): (Vec<_>, Vec<_>) =
            turned.filter(|member| member.is(Role::Standby)).partition(|member| member.is_passed_over());
        if preferred_only { good } else { good.into_iter().chain(late).collect() }
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
            for member in self.standbys.at_hand(asked.preferred_only) {
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
            if round == 0 && !asked.preferred_only {
                self.standbys.look_again()?;
            } else {
                break;
            }
        }
        Ok(None)
    }

    fn read_from(&self, member: &Member, asked: Elsewhere, since: Instant) -> Answer<Option<Sight>> {
        let patience = if asked.preferred_only { CATCHES_UP_OR_ELSE } else { CATCHES_UP };
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
        let is_current = marker.is_some_and(|marker| marker.at.elapsed() < STALE);
        Ok(Some(Shown { generation: row.int(3) as u64, is_current, is_after }))
    }
}

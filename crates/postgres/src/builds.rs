//! Index builds of this front and of others: writers report changed records to the builder through a table.
//!
//! The builder reads the reports while it holds the fence. No commit is under way then, so the reports are complete.
//!
//! A build ends with the lease of its front. A front that finds the lease expired deletes the row of the build. The
//! builder may still run, for example after a pause of its machine. It finds no row and starts again.

use crate::connection::Param;
use crate::failure::PgResult;
use crate::front::Front;
use crate::keys::stored_ident;
use crate::pool::PooledConnection;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use storage::Ident;
use storage::store::{Build, SideEffect};

/// The index builds of this front, and builds of other fronts that its writers have found.
#[derive(Default)]
pub(crate) struct Builds(Mutex<HashMap<Ident, KnownBuild>>);

/// An index build, with its registration on the server.
struct KnownBuild {
    build: Arc<Build>,
    /// True if this front builds the index.
    is_own: bool,
    /// Number of the front and incarnation of the server at the start of the build. Marks are stored under this pair.
    begun: (i64, u64),
    /// True once a duplicate key was reported to the builder.
    reported: bool,
}

impl Builds {
    /// Returns the tree of the build that a side effect concerns.
    pub(crate) fn ident_of(&self, side_effect: &SideEffect) -> Option<Ident> {
        let (SideEffect::Mark(build, _) | SideEffect::MarkAll(build)) = side_effect else { return None };
        let known = self.0.lock();
        known.iter().find(|(_, known)| Arc::ptr_eq(&known.build, build)).map(|(ident, _)| *ident)
    }

    /// Returns the build of a tree, if any front runs one.
    pub(crate) fn get(&self, front: &Front, ident: Ident) -> Option<Arc<Build>> {
        if let Some(known) = self.0.lock().get(&ident).filter(|known| known.is_own) {
            return Some(known.build.clone());
        }
        let rows = front.run(|conn| conn.query(&front.statements.build, &[Param::Int(stored_ident(ident))]));
        let goes_on = match rows {
            Ok(rows) => !rows.is_empty(),
            Err(failure) => {
                log::error!("PostgreSQL does not report whether an index build runs: {failure:?}");
                // Extra entries do no harm.
                true
            }
        };
        let mut known = self.0.lock();
        if !goes_on {
            known.remove(&ident);
            return None;
        }
        let new =
            || KnownBuild { build: Arc::new(Build::new(0)), is_own: false, begun: (0, 0), reported: false };
        Some(known.entry(ident).or_insert_with(new).build.clone())
    }

    /// Registers a build.
    pub(crate) fn begin(&self, front: &Front, ident: Ident, greatest: u64) -> Arc<Build> {
        let build = Arc::new(Build::new(greatest));
        let begun = (front.number(), front.incarnations().current());
        let before = self
            .0
            .lock()
            .insert(ident, KnownBuild { build: build.clone(), is_own: true, begun, reported: true });
        debug_assert!(before.is_none_or(|before| !before.is_own), "two builds in {ident:?}");
        let params = [Param::Int(stored_ident(ident)), Param::Int(begun.0)];
        if let Err(failure) = front.run(|conn| conn.query(&front.statements.begin_build, &params)) {
            // Other fronts cannot report their changes, so the build must not be published.
            log::error!("an index build cannot be registered in PostgreSQL: {failure:?}");
            *build.duplicate.lock() = Some((Vec::new(), Vec::new()));
        }
        build
    }

    /// Removes a build.
    pub(crate) fn end(&self, front: &Front, ident: Ident) {
        self.0.lock().remove(&ident);
        if let Err(failure) =
            front.run(|conn| conn.query(&front.statements.end_build, &[Param::Int(stored_ident(ident))]))
        {
            log::warn!("a finished index build stays registered in PostgreSQL: {failure:?}");
        }
    }

    /// Reports duplicate keys, found by writers of this front, to the builders in other fronts.
    pub(crate) fn report_failures(&self, front: &Front) -> PgResult<()> {
        let mut reports = Vec::new();
        for (ident, known) in self.0.lock().iter_mut().filter(|(_, known)| !known.reported) {
            if let Some(duplicate) = known.build.duplicate.lock().clone() {
                known.reported = true;
                reports.push((*ident, duplicate));
            }
        }
        for (ident, (key_string, type_bits)) in reports {
            let params =
                [Param::Int(stored_ident(ident)), Param::Bytes(&key_string), Param::Bytes(&type_bits)];
            front.run(|conn| conn.query(&front.statements.fail_build, &params))?;
        }
        Ok(())
    }

    /// Reads the reports for the builds of this front. The caller holds the fence.
    pub(crate) fn read_reports(&self, front: &Front, conn: &mut PooledConnection) -> PgResult<()> {
        let is_own = |(ident, known): (&Ident, &KnownBuild)| {
            known.is_own.then(|| (*ident, known.build.clone(), known.begun))
        };
        let builds: Vec<(Ident, Arc<Build>, (i64, u64))> = self.0.lock().iter().filter_map(is_own).collect();
        for (ident, build, begun) in builds {
            // Reports of an earlier incarnation may be lost, and other fronts may have missed the build.
            if begun != (front.number(), front.incarnations().current()) {
                build.duplicate.lock().get_or_insert((Vec::new(), Vec::new()));
                continue;
            }
            for row in conn.query(&front.statements.take_marks, &[Param::Int(stored_ident(ident))])? {
                match row.int(0) {
                    -1 => build.changed.fill(),
                    record => build.changed.add(record as u64),
                }
            }
            let rows = conn.query(&front.statements.build_report, &[Param::Int(stored_ident(ident))])?;
            let row = rows.first();
            // Another front has ended a build without a row, and its writers may have missed it since.
            if row.is_none_or(|row| row.bytes(0).is_some()) {
                let part = |column| row.and_then(|row| row.bytes(column)).unwrap_or_default().to_vec();
                build.duplicate.lock().get_or_insert((part(0), part(1)));
            }
        }
        Ok(())
    }
}

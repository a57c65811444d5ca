//! Replays the recordings on fronts over PostgreSQL. A front gives every answer that a server in memory gives, except
//! those listed in `tests/recordings/postgres.differences` with a reason. `VELLUM_RECORDING=core/foo` selects some and
//! shows the differences.

use crate::recordings::{Allowed, details, recordings, replay_all, table, unpack};
use crate::server::Server;
use crate::{bless, print_line};
use postgres::testing::Cluster;
use std::collections::BTreeSet;
use std::time::Instant;

/// In the format of `allowed.txt`, without the sources.
const DIFFERENCES: &str = "tests/recordings/postgres.differences";

#[test]
fn recorded_replies_of_fronts_are_equal() {
    if bless() || std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let Some(folder) = unpack() else { return print_line("recordings skipped: there is no ../shared") };
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line(
            "recordings on PostgreSQL skipped: it isn't installed (apt-get install postgresql)",
        );
    };
    let (files, details) = (recordings(&folder), details());
    let listed = Allowed::read(DIFFERENCES);
    let mut allowed = Allowed::load();
    let of_all = allowed.lines.clone();
    let twice: Vec<_> = of_all.intersection(&listed.lines).collect();
    assert_eq!(
        twice,
        Vec::<&String>::new(),
        "these differ on every engine: {DIFFERENCES} has no place for them"
    );
    let own = listed.lines.clone();
    allowed.extend(listed);
    let started = Instant::now();
    let connection = cluster.connection_string();
    let start = || Server::on_postgres(&connection);
    let Some((totals, report)) = replay_all(&files, details, &allowed, &start) else {
        return print_line("recordings skipped: the binary has no server");
    };
    print_line(&report);
    print_line(&table("groups on PostgreSQL", &totals.groups, 50));
    print_line(&format!("{} files on PostgreSQL, {:?}", files.len(), started.elapsed()));
    print_line(&format!("the slowest exchange, {}, took {:?}", totals.slowest.1, totals.slowest.0));
    assert_eq!(totals.unlisted, Vec::<String>::new(), "these differ without a reason in {DIFFERENCES}");
    // The list may only get shorter: an equal exchange must not be listed.
    let replayed: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let is_replayed =
        |place: &&String| place.rsplit_once(':').is_some_and(|(name, _)| replayed.contains(name));
    let idle: Vec<_> = own.difference(&totals.allowed).filter(is_replayed).collect();
    assert_eq!(idle, Vec::<&String>::new(), "{DIFFERENCES} lists these, and they don't differ");
}

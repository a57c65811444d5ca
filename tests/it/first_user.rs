//! The localhost exception creates one user, however many clients try at once.

use crate::print_line;
use crate::server::{Scratch, Server};
use base::bson::extended_json::parse;
use postgres::testing::Cluster;
use std::sync::Barrier;

const CLIENTS: usize = 40;

/// Makes many clients create a user at the same moment, spread over the servers.
fn make_at_once(servers: &[Server]) {
    let begin = Barrier::new(CLIENTS);
    let make = &|number: usize| {
        let mut client = servers[number % servers.len()].connect().unwrap();
        let create = format!("{{createUser: 'u{number}', pwd: 'p', roles: ['root'], $db: 'admin'}}");
        let create = parse(&create).unwrap();
        begin.wait();
        let reply = client.command(&create).unwrap();
        let number = |name: &str| reply.view().get(name).and_then(|value| value.as_i64());
        (number("ok"), number("code"))
    };
    let replies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || make(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let made = replies.iter().filter(|reply| **reply == (Some(1), None)).count();
    let refused = replies.iter().filter(|reply| **reply == (Some(0), Some(13))).count();
    assert_eq!((made, refused), (1, CLIENTS - 1), "{replies:?}");
}

#[test]
fn one_of_many_clients_creates_the_first_user() {
    let data = Scratch::new("first-user");
    let servers = [Server::start_with(&["--auth"]), Server::start_on(&data, &["--auth"])];
    servers.into_iter().flatten().for_each(|server| make_at_once(&[server]));
}

#[test]
fn one_of_many_clients_creates_the_first_user_over_postgres() {
    let Some(cluster) = Cluster::start().unwrap() else {
        return print_line(
            "the first user over PostgreSQL skipped: it isn't installed (apt-get install postgresql)",
        );
    };
    let connection = cluster.connection_string();
    let start = || Server::on_schema_with(&connection, "first", &["--auth"]);
    let (Some(one), Some(other)) = (start(), start()) else { return };
    make_at_once(&[one, other]);
}

//! Commands that read the state of the replica set. The set has one member. A standalone refuses
//! them.

use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::process::logging::now_millis;
use crate::state::replica_set::ReplicaSet;
use base::bson::{Builder, FieldName, Value};
use base::{Result, err};
use database::time;

/// Returns the replica set.
///
/// Errors: NoReplicationEnabled on a standalone; NotYetInitialized before the set is initiated.
pub(crate) fn replica_set<'a>(call: &Call<'a>) -> Result<&'a ReplicaSet> {
    let server = call.server;
    server.set().ok_or_else(|| match server.is_replica_set() {
        true => err!(NotYetInitialized, "no replset config has been received"),
        false => err!(NoReplicationEnabled, "not running with --replSet"),
    })
}

/// The row of `replSetGetStatus`.
pub(crate) const GET_STATUS: Row =
    Row::admin("replSetGetStatus", get_status, Requirements::Cluster(Action::ReplSetGetStatus))
        .help("Returns the state of the replica set's members.")
        .admin_only();

/// Values that the status of both the set and the member needs.
#[derive(Clone, Copy)]
struct Status {
    primary: bool,
    /// Time of the last write.
    time: u64,
    term: i64,
    /// Cluster time of the last election, and its date in milliseconds.
    elected: (u64, i64),
}

impl Status {
    fn millis(&self) -> i64 {
        (self.time >> 32) as i64 * 1000
    }

    /// Appends the time of the last write under each of these names.
    fn append_optimes(&self, out: &mut Builder, names: &[&str]) {
        for name in names {
            append_optime(out, name, self.time, self.term);
        }
    }

    fn append_dates(&self, out: &mut Builder, names: &[&str]) {
        for name in names {
            out.append(FieldName::trusted(name), Value::DateTime(self.millis()));
        }
    }

    fn state(&self) -> (i32, &'static str) {
        if self.primary { (1, "PRIMARY") } else { (2, "SECONDARY") }
    }
}

fn append_optime(out: &mut Builder, name: &str, time: u64, term: i64) {
    out.begin_document(FieldName::trusted(name))
        .append(c"ts", Value::Timestamp(time))
        .append(c"t", term)
        .end();
}

fn get_status(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    fields.natural("initialSync")?;
    fields.finish()?;
    let set = replica_set(call)?;
    let primary = set.is_primary(&call.server.database);
    let election_state = set.election_state();
    // Read first, so that the durable time is not later than the cluster time.
    let durable_time = call.server.database.durable_time();
    let time = call.server.database.cluster_time();
    let status = Status { primary, time, term: election_state.term, elected: election_state.elected };
    let durable = Status { time: durable_time, ..status };
    let config = set.config();
    let address = call.server.topology.own_address(call.connection.local);
    let uptime = i32::try_from(time::since(call.server.started).as_secs()).unwrap_or(i32::MAX);
    let reply = &mut *call.reply;
    reply.append(c"set", &set.name).append(c"date", Value::DateTime(now_millis()));
    reply.append(c"myState", status.state().0).append(c"term", status.term);
    reply.append(c"syncSourceHost", "").append(c"syncSourceId", -1);
    reply.append(c"heartbeatIntervalMillis", i64::from(config.setting("heartbeatIntervalMillis")));
    for count in
        ["majorityVoteCount", "writeMajorityCount", "votingMembersCount", "writableVotingMembersCount"]
    {
        reply.append(FieldName::literal(count), 1);
    }
    reply.begin_document(c"optimes");
    durable.append_optimes(reply, &["lastCommittedOpTime"]);
    durable.append_dates(reply, &["lastCommittedWallTime"]);
    durable.append_optimes(reply, &["readConcernMajorityOpTime"]);
    status.append_optimes(reply, &["appliedOpTime"]);
    durable.append_optimes(reply, &["durableOpTime"]);
    status.append_optimes(reply, &["writtenOpTime"]);
    status.append_dates(reply, &["lastAppliedWallTime"]);
    durable.append_dates(reply, &["lastDurableWallTime"]);
    status.append_dates(reply, &["lastWrittenWallTime"]);
    reply.end().append(c"lastStableRecoveryTimestamp", Value::Timestamp(durable_time));
    if primary {
        append_election(reply, &status, config.priority(), config.setting("electionTimeoutMillis"));
    }
    reply.begin_array(c"members").push_document();
    reply.append(c"_id", config.member_id()).append(c"name", &address).append(c"health", 1.0);
    reply.append(c"state", status.state().0).append(c"stateStr", status.state().1).append(c"uptime", uptime);
    status.append_optimes(reply, &["optime"]);
    status.append_dates(reply, &["optimeDate"]);
    status.append_optimes(reply, &["optimeWritten"]);
    status.append_dates(reply, &["optimeWrittenDate", "lastAppliedWallTime"]);
    durable.append_dates(reply, &["lastDurableWallTime"]);
    status.append_dates(reply, &["lastWrittenWallTime"]);
    reply.append(c"syncSourceHost", "").append(c"syncSourceId", -1).append(c"infoMessage", "");
    if primary {
        reply.append(c"electionTime", Value::Timestamp(status.elected.0));
        reply.append(c"electionDate", Value::DateTime(status.elected.1));
    }
    reply.append(c"configVersion", config.version);
    reply.append(c"configTerm", i32::try_from(config.term).unwrap_or(i32::MAX));
    reply.append(c"self", true).append(c"lastHeartbeatMessage", "").end().end();
    Ok(HandlerStatus::Done)
}

/// Appends metrics of the last election. With one voter it ends at once.
fn append_election(out: &mut Builder, status: &Status, priority: f64, timeout_millis: i32) {
    out.begin_document(c"electionCandidateMetrics").append(c"lastElectionReason", "electionTimeout");
    out.append(c"lastElectionDate", Value::DateTime(status.elected.1)).append(c"electionTerm", status.term);
    for name in
        ["lastCommittedOpTimeAtElection", "lastSeenWrittenOpTimeAtElection", "lastSeenOpTimeAtElection"]
    {
        append_optime(out, name, status.elected.0, status.term - 1);
    }
    out.append(c"numVotesNeeded", 1).append(c"priorityAtElection", priority);
    out.append(c"electionTimeoutMillis", i64::from(timeout_millis));
    for name in ["newTermStartDate", "wMajorityWriteAvailabilityDate"] {
        out.append(FieldName::literal(name), Value::DateTime(status.elected.1));
    }
    out.end();
}

/// The row of `replSetGetConfig`.
pub(crate) const GET_CONFIG: Row =
    Row::admin("replSetGetConfig", get_config, Requirements::Cluster(Action::ReplSetGetConfig))
        .help("Returns the configuration of the replica set.")
        .admin_only();

fn get_config(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let commitment = fields.flag("commitmentStatus")?.unwrap_or(false);
    fields.finish()?;
    let set = replica_set(call)?;
    let address = call.server.topology.own_address(call.connection.local);
    set.config().append_to(&set.name, &address, call.reply.begin_document(c"config"));
    call.reply.end();
    if commitment {
        // The only member has the configuration at once.
        call.reply.append(c"commitmentStatus", true);
    }
    Ok(HandlerStatus::Done)
}

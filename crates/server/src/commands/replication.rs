//! Commands about the replica set: answered for the set of one, or refused where there is none.

use crate::call::{Answer, Call};
use crate::command::{Command, Kind};
use crate::commands::hello::own_address;
use crate::logging::now_millis;
use base::bson::Value;
use base::{Result, err};

/// Refuses the command: as a standalone does, or as not implemented for a set.
pub(crate) fn no_replication(call: &mut Call<'_>) -> Result<Answer> {
    if call.server.is_replica_set() {
        return Err(err!(NotImplemented, "the command '{}' is not implemented", call.command.name));
    }
    Err(err!(NoReplicationEnabled, "not running with --replSet"))
}

/// The row of `replSetGetStatus`.
pub(crate) const GET_STATUS: Command =
    Command::new("replSetGetStatus", Kind::Admin, "Tells how the set's members are.", get_status)
        .admin_only();

fn get_status(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.command_value();
    fields.natural("initialSync")?;
    fields.finish()?;
    let Some(name) = &call.server.settings.replica_set else { return no_replication(call) };
    let address = own_address(call);
    let time = call.server.cluster_time();
    let uptime = i32::try_from(call.server.started.elapsed().as_secs()).unwrap_or(i32::MAX);
    let reply = &mut call.reply;
    reply.append("set", name).append("date", Value::DateTime(now_millis()));
    reply.append("myState", 1).append("term", 1i64).append("heartbeatIntervalMillis", 2000i64);
    reply.append("majorityVoteCount", 1).append("writeMajorityCount", 1).append("votingMembersCount", 1);
    reply.begin_document("optimes");
    for point in ["lastCommittedOpTime", "readConcernMajorityOpTime", "appliedOpTime", "durableOpTime"] {
        reply.begin_document(point).append("ts", Value::Timestamp(time)).append("t", 1i64).end();
    }
    reply.end().begin_array("members").push_document();
    reply.append("_id", 0).append("name", &address).append("health", 1.0).append("state", 1);
    reply.append("stateStr", "PRIMARY").append("uptime", uptime);
    reply.begin_document("optime").append("ts", Value::Timestamp(time)).append("t", 1i64).end();
    reply.append("configVersion", 1).append("configTerm", 1).append("self", true);
    reply.end().end();
    Ok(Answer::Done)
}

/// The row of `replSetGetConfig`.
pub(crate) const GET_CONFIG: Command =
    Command::new("replSetGetConfig", Kind::Admin, "Tells the set's configuration.", get_config).admin_only();

fn get_config(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.command_value();
    fields.flag("commitmentStatus")?;
    fields.finish()?;
    let Some(name) = &call.server.settings.replica_set else { return no_replication(call) };
    let address = own_address(call);
    let reply = &mut call.reply;
    reply.begin_document("config").append("_id", name).append("version", 1).append("term", 1);
    reply.begin_array("members").push_document();
    reply.append("_id", 0).append("host", &address).append("arbiterOnly", false).append("buildIndexes", true);
    reply.append("hidden", false).append("priority", 1.0).append("votes", 1).end().end();
    reply.append("protocolVersion", 1i64).append("writeConcernMajorityJournalDefault", true);
    reply.begin_document("settings").append("electionTimeoutMillis", 10_000);
    reply.append("replicaSetId", call.server.topology.process_id).end().end();
    Ok(Answer::Done)
}

/// The row of `replSetInitiate`.
pub(crate) const INITIATE: Command =
    Command::new("replSetInitiate", Kind::Admin, "Says that the set is there already.", initiate)
        .admin_only();

/// The set is there from the start, so what launchers of mongod send first finds it so.
fn initiate(call: &mut Call<'_>) -> Result<Answer> {
    if !call.server.is_replica_set() {
        return no_replication(call);
    }
    Err(err!(AlreadyInitialized, "already initialized"))
}

/// The row of `replSetReconfig`.
pub(crate) const RECONFIGURE: Command =
    Command::new("replSetReconfig", Kind::Admin, "Takes the configuration that there is.", reconfigure)
        .admin_only();

/// Takes a configuration of the set of one as it is; any other can't be honoured.
fn reconfigure(call: &mut Call<'_>) -> Result<Answer> {
    let Some(name) = call.server.settings.replica_set.clone() else { return no_replication(call) };
    let mut fields = call.fields();
    let config = fields.command_value();
    fields.flag("force")?;
    fields.finish()?;
    let own = own_address(call);
    let config = config.as_document();
    let member = config
        .and_then(|config| config.get("members")?.as_array())
        .map(|members| members.iter().collect::<Vec<_>>())
        .filter(|members| members.len() == 1)
        .and_then(|members| members.first()?.as_document()?.get("host")?.as_str());
    let named = config.and_then(|config| config.get("_id")?.as_str());
    if named != Some(name.as_str()) || member != Some(own.as_str()) {
        return Err(err!(
            NewReplicaSetConfigurationIncompatible,
            "the configuration has to be that of {name} with the one member {own}"
        ));
    }
    Ok(Answer::Done)
}

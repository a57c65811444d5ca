//! Commands about other members, connection pools and user caches. A single server has none of
//! these.

use super::replication::replica_set;
use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use base::Result;

/// The row of `dropConnections`.
pub(crate) const DROP_CONNECTIONS: Row =
    Row::admin("dropConnections", drop_connections, Requirements::Cluster(Action::DropConnections))
        .help("Closes connections to other servers. Has no effect here.")
        .admin_only();

fn drop_connections(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let hosts = fields.required("hostAndPort", Fields::array)?;
    if let Some(other) = hosts.iter().find(|host| host.as_str().is_none() && !host.is_nullish()) {
        return Err(fields.wrong_type("hostAndPort", other.kind(), "string"));
    }
    fields.finish()?;
    Ok(HandlerStatus::Done)
}

/// The row of `invalidateUserCache`.
pub(crate) const INVALIDATE_USER_CACHE: Row =
    Row::admin("invalidateUserCache", no_options, Requirements::Cluster(Action::InvalidateUserCache))
        .help("Clears the cache of users. Has no effect here.")
        .admin_only();

fn no_options(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    Ok(HandlerStatus::Done)
}

/// The row of `replSetGetRBID`.
pub(crate) const GET_ROLLBACK_ID: Row =
    Row::admin("replSetGetRBID", rollback_id, Requirements::Cluster(Action::Internal))
        .help("Returns the number of the latest rollback, which is always the same here.")
        .admin_only();

fn rollback_id(call: &mut Call<'_>) -> Result<HandlerStatus> {
    no_options(call)?;
    replica_set(call)?;
    call.reply.append(c"rbid", 1);
    Ok(HandlerStatus::Done)
}

/// The row of `shardingState`.
pub(crate) const SHARDING_STATE: Row =
    Row::admin("shardingState", sharding_state, Requirements::Cluster(Action::ShardingState))
        .help("Returns whether this server is a shard, which is always false.")
        .admin_only();

fn sharding_state(call: &mut Call<'_>) -> Result<HandlerStatus> {
    no_options(call)?;
    call.reply.append(c"enabled", false);
    Ok(HandlerStatus::Done)
}

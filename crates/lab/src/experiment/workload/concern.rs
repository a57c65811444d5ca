//! Write concerns of operations, and why a target's figures with one would say something else.

use super::maker::Constant;
use crate::error::Result;
use crate::experiment::parts::Link;
use crate::result::Promise;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use serde::Deserialize;

/// A write concern.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Constant")]
pub(super) struct Concern {
    /// As the command has it.
    pub(super) document: Document,
    /// Members that must have the write, where it is a number.
    members: Option<i64>,
    journaled: bool,
}

impl TryFrom<Constant> for Concern {
    type Error = &'static str;

    fn try_from(Constant(document): Constant) -> std::result::Result<Concern, &'static str> {
        let members = match document.get("w") {
            Some(Bson::Int32(members)) => Some(i64::from(*members)),
            Some(Bson::String(_)) | None => None,
            Some(_) => return Err("w is a number of members or \"majority\""),
        };
        Ok(Concern { members, journaled: document.get_bool("j").unwrap_or(false), document })
    }
}

impl Concern {
    /// Whether no answer comes.
    pub(super) fn is_unacknowledged(&self) -> bool {
        self.members == Some(0)
    }

    /// Tries a command with it: why it isn't measured, if so. A target that acknowledges what it can't have done has
    /// no figure.
    ///
    /// # Errors
    /// The target is gone.
    pub(super) async fn refusal(
        &self,
        link: &Link,
        promise: Promise,
        mut command: Document,
    ) -> Result<Option<String>> {
        command.insert("writeConcern", self.document.clone());
        let reply = match link.database.run_command(command).await {
            Ok(reply) => reply,
            Err(error) => match &*error.kind {
                ErrorKind::Command(refused) => return Ok(Some(format!("refused: {}", refused.message))),
                _ => return Err(link.target.error(error)),
            },
        };
        if let Ok(error) = reply.get_document("writeConcernError") {
            let why = error.get_str("errmsg").unwrap_or("a write concern error");
            return Ok(Some(format!("refused: {why}")));
        }
        if link.target.is_floor {
            return Ok(None);
        }
        if let (Some(wanted), Some(members)) = (self.members, members(link).await?)
            && wanted > members
        {
            return Ok(Some(format!(
                "claimed: it acknowledged w: {wanted}, but says itself that {members} member holds data"
            )));
        }
        let claims = self.journaled && !self.is_unacknowledged() && promise == Promise::Memory;
        Ok(claims.then(|| "claimed: it acknowledged j: true, but keeps its data in memory only".to_string()))
    }
}

/// How many members that hold data the target says there are; `None` behind a router.
async fn members(link: &Link) -> Result<Option<i64>> {
    let hello = match link.database.run_command(doc! { "hello": 1 }).await {
        Ok(hello) => hello,
        // Servers before 4.4 know it by its older name.
        Err(_) => link.admin(doc! { "isMaster": 1 }).await?,
    };
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Ok(None);
    }
    if !hello.contains_key("setName") {
        return Ok(Some(1));
    }
    Ok(Some(listed(&hello)))
}

/// Members that hello names, arbiters aside.
fn listed(hello: &Document) -> i64 {
    let count = |field| hello.get_array(field).map_or(0, Vec::len);
    (count("hosts") + count("passives")).max(1) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbiters_do_not_count() {
        assert_eq!(listed(&doc! { "hosts": ["a", "b"], "arbiters": ["c"] }), 2);
        assert_eq!(listed(&doc! {}), 1);
    }
}

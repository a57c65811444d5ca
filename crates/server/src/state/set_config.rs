//! Configuration of a replica set with one member: fields, parsing and validation.

use crate::protocol::fields::Fields;
use base::bson::{Builder, Document, DocumentBuf, FieldName, ObjectId, Value};
use base::{Result, bail, err};

/// Settings with their defaults. Most concern other members and have no effect. Tools read the
/// values.
const SETTINGS: [(&str, i32); 5] = [
    ("heartbeatIntervalMillis", 2000),
    ("heartbeatTimeoutSecs", 10),
    ("electionTimeoutMillis", 10_000),
    ("catchUpTimeoutMillis", -1),
    ("catchUpTakeoverDelayMillis", 30_000),
];

/// The configuration of a replica set with one member.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SetConfig {
    /// Version, which only grows.
    pub(crate) version: i32,
    /// Term of the configuration.
    pub(crate) term: i64,
    member_id: i32,
    priority: f64,
    tags: DocumentBuf,
    chaining: bool,
    settings: [i32; SETTINGS.len()],
    set_id: ObjectId,
    /// Member's address from a command; `None` uses the address that each client connected to.
    pub(crate) host: Option<String>,
}

/// Parts of a configuration that are stored elsewhere.
#[derive(Debug, PartialEq)]
pub(crate) struct Named {
    /// Name of the set.
    pub(crate) set: String,
    /// Addresses of the members.
    pub(crate) hosts: Vec<String>,
}

impl SetConfig {
    /// Returns the configuration of a new set.
    pub(crate) fn new(set_id: ObjectId) -> SetConfig {
        SetConfig {
            version: 1,
            term: 1,
            member_id: 0,
            priority: 1.0,
            tags: DocumentBuf::empty(),
            chaining: true,
            settings: SETTINGS.map(|(_, value)| value),
            set_id,
            host: None,
        }
    }

    /// Returns the value of a setting.
    pub(crate) fn setting(&self, name: &str) -> i32 {
        let at = SETTINGS.iter().position(|(known, _)| *known == name);
        at.and_then(|at| self.settings.get(at)).copied().unwrap_or_default()
    }

    /// Returns the permanent id of the set.
    pub(crate) fn set_id(&self) -> ObjectId {
        self.set_id
    }

    /// Returns the member's priority.
    pub(crate) fn priority(&self) -> f64 {
        self.priority
    }

    /// Returns the member's tags.
    pub(crate) fn tags(&self) -> Document<'_> {
        self.tags.view()
    }

    /// Returns the member's id.
    pub(crate) fn member_id(&self) -> i32 {
        self.member_id
    }

    /// Parses a stored configuration and its member's address.
    ///
    /// Errors: as [`read`](Self::read).
    pub(crate) fn stored(document: Document<'_>) -> Result<(SetConfig, Option<String>)> {
        let (config, named) = SetConfig::read(document, ObjectId::from_parts(0, [0; 5], 0))?;
        Ok((config, named.hosts.into_iter().next()))
    }

    /// Parses the first configuration of a set with this name. `is_own` finds this server among the
    /// members. The default version is 1.
    ///
    /// Errors: InvalidReplicaSetConfig, NewReplicaSetConfigurationIncompatible and NodeNotFound as
    /// MongoDB; as [`read`](Self::read).
    pub(crate) fn first(
        document: Document<'_>,
        name: &str,
        set_id: ObjectId,
        is_own: impl Fn(&str) -> bool,
    ) -> Result<(SetConfig, String)> {
        let mut given = Builder::new();
        given.append_all(document);
        if document.get("version").is_none() {
            given.append(c"version", 1);
        }
        let (config, named) = SetConfig::read(given.finish().view(), set_id)?;
        if named.set != name {
            bail!(
                InvalidReplicaSetConfig,
                "Attempting to initiate a replica set with name {}, but command line reports {name}; rejecting",
                named.set
            );
        }
        if config.version != 1 {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "Configuration used to initiate a replica set must have version 1, but found {}",
                config.version
            );
        }
        if config.set_id != set_id {
            bail!(
                InvalidReplicaSetConfig,
                "replica set configuration cannot contain 'replicaSetId' field when called from replSetInitiate: {}",
                config.set_id
            );
        }
        let Some(host) = named.hosts.iter().find(|host| is_own(host)).cloned() else {
            bail!(
                InvalidReplicaSetConfig,
                "No host described in new configuration with {{version: 1, term: 0}} for replica set {name} maps to \
                 this node"
            );
        };
        if let Some(other) = named.hosts.iter().find(|other| **other != host) {
            bail!(
                NodeNotFound,
                "replSetInitiate quorum check failed because not all proposed set members responded affirmatively: \
                 {other} failed with: a set of Vellum has one member"
            );
        }
        Ok((SetConfig { term: 1, host: Some(host.clone()), ..config }, host))
    }

    /// Parses a configuration.
    ///
    /// Errors: InvalidReplicaSetConfig as MongoDB; NotImplemented with the name of a feature that
    /// one member cannot have; errors of fields.
    pub(crate) fn read(document: Document<'_>, set_id: ObjectId) -> Result<(SetConfig, Named)> {
        let mut config = SetConfig::new(set_id);
        let mut fields = Fields::of_document("ReplSetConfig", document);
        let set = fields.required("_id", Fields::string)?.to_string();
        let version = fields.required("version", Fields::integer)?;
        config.version = i32::try_from(version).ok().filter(|version| *version > 0).ok_or_else(|| {
            err!(BadValue, "BSON field 'version' value must be >= 1, actual value '{version}'")
        })?;
        config.term = fields.integer("term")?.unwrap_or(1);
        if fields.integer("protocolVersion")?.unwrap_or(1) != 1 {
            bail!(BadValue, "protocolVersion of 1 is the only one supported");
        }
        if fields.boolean("writeConcernMajorityJournalDefault")? == Some(false) {
            bail!(
                NotImplemented,
                "BSON field 'ReplSetConfig.writeConcernMajorityJournalDefault' is not implemented as false"
            );
        }
        fields.refuse_unless_default("configsvr")?;
        let members = fields.required("members", Fields::documents)?;
        let settings = fields.document("settings")?;
        fields.finish()?;
        if let Some(settings) = settings {
            config.read_settings(settings)?;
        }
        let mut hosts = Vec::new();
        for member in members.iter() {
            let mut fields = Fields::of_document("ReplSetConfig.members", member);
            hosts.push(fields.required("host", Fields::string)?.to_string());
            // With several members the error is their number, not their content.
            if hosts.len() == 1 {
                config.read_member(&mut fields)?;
            }
        }
        if hosts.is_empty() {
            bail!(InvalidReplicaSetConfig, "Number of members must be between 1 and 50, but was 0");
        }
        Ok((config, Named { set, hosts }))
    }

    fn read_settings(&mut self, settings: Document<'_>) -> Result<()> {
        let mut fields = Fields::of_document("ReplSetConfig.settings", settings);
        for ((name, _), setting) in SETTINGS.iter().zip(&mut self.settings) {
            if let Some(value) = fields.integer(name)? {
                *setting = i32::try_from(value).map_err(|_| {
                    err!(BadValue, "BSON field 'ReplSetConfig.settings.{name}' is out of range: {value}")
                })?;
            }
        }
        self.chaining = fields.boolean("chainingAllowed")?.unwrap_or(true);
        if let Some(Value::ObjectId(id)) = fields.any("replicaSetId")? {
            self.set_id = id;
        }
        // Since MongoDB 5.0 only the default value is allowed.
        let last_error = fields.document("getLastErrorDefaults")?.unwrap_or(Document::EMPTY);
        let is_default = last_error.iter().all(|field| match field.name() {
            "w" => field.value().as_i64() == Some(1),
            "wtimeout" => field.value().as_i64() == Some(0),
            _ => false,
        });
        if !is_default {
            bail!(
                InvalidReplicaSetConfig,
                "'settings.getLastErrorDefaults' cannot be changed; use the 'setDefaultRWConcern' command instead"
            );
        }
        fields.refuse_unless_default("getLastErrorModes")?;
        fields.finish()
    }

    fn read_member(&mut self, fields: &mut Fields<'_>) -> Result<()> {
        let id = fields.required("_id", Fields::integer)?;
        self.member_id = i32::try_from(id)
            .ok()
            .filter(|id| (0..=255).contains(id))
            .ok_or_else(|| err!(BadValue, "_id field value of {id} is out of range."))?;
        self.priority = fields.number("priority")?.unwrap_or(1.0);
        if !(0.0..=1000.0).contains(&self.priority) {
            bail!(
                BadValue,
                "BSON field 'priority' value must be >= 0 and <= 1000, actual value '{}'",
                self.priority
            );
        }
        self.tags = fields.document("tags")?.unwrap_or(Document::EMPTY).to_owned();
        let electable = self.priority > 0.0
            && !fields.flag("arbiterOnly")?.unwrap_or(false)
            && !fields.flag("hidden")?.unwrap_or(false)
            && fields.flag("buildIndexes")?.unwrap_or(true)
            && fields.integer("votes")?.unwrap_or(1) == 1
            && fields.integer("secondaryDelaySecs")?.unwrap_or(0) == 0;
        fields.refuse_unless_default("horizons")?;
        if !electable {
            bail!(
                InvalidReplicaSetConfig,
                "Replica set configuration must contain at least one non-arbiter member with priority > 0"
            );
        }
        fields.finish()
    }

    /// Appends the configuration in the form of replSetGetConfig.
    pub(crate) fn append_to(&self, name: &str, host: &str, out: &mut Builder) {
        out.append(c"_id", name).append(c"version", self.version);
        out.append(c"term", i32::try_from(self.term).unwrap_or(i32::MAX));
        out.begin_array(c"members").push_document();
        out.append(c"_id", self.member_id).append(c"host", host).append(c"arbiterOnly", false);
        out.append(c"buildIndexes", true).append(c"hidden", false).append(c"priority", self.priority);
        out.append(c"tags", &self.tags).append(c"secondaryDelaySecs", 0i64).append(c"votes", 1).end().end();
        out.append(c"protocolVersion", 1i64).append(c"writeConcernMajorityJournalDefault", true);
        out.begin_document(c"settings").append(c"chainingAllowed", self.chaining);
        for ((name, _), value) in SETTINGS.iter().zip(self.settings) {
            out.append(FieldName::literal(name), value);
        }
        out.begin_document(c"getLastErrorModes").end();
        out.begin_document(c"getLastErrorDefaults").append(c"w", 1).append(c"wtimeout", 0).end();
        out.append(c"replicaSetId", self.set_id).end();
    }

    /// Returns the configuration after a reconfig to `other`, which `named` belongs to. `own` is
    /// the member's address.
    ///
    /// Errors: NewReplicaSetConfigurationIncompatible; NodeNotFound for other members.
    pub(crate) fn become_other(
        &self,
        other: SetConfig,
        named: &Named,
        (name, own): (&str, &str),
        forced_by: Option<i32>,
    ) -> Result<SetConfig> {
        if named.set != name {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "New and old configurations differ in replica set name; old was {name}, and new is {}",
                named.set
            );
        }
        if forced_by.is_none() && other.version <= self.version {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "New replica set configuration version must be greater than old, but {} is not greater than {} for \
                 replica set {name}",
                other.version,
                self.version
            );
        }
        if other.set_id != self.set_id {
            bail!(
                NewReplicaSetConfigurationIncompatible,
                "New and old configurations differ in replica set ID; old was {}, and new is {}",
                self.set_id,
                other.set_id
            );
        }
        let (version, term) = (other.version, self.term);
        if !named.hosts.iter().any(|host| host.eq_ignore_ascii_case(own)) {
            bail!(
                NodeNotFound,
                "No host described in new configuration with {{version: {version}, term: {term}}} for replica set \
                 {name} maps to this node"
            );
        }
        if let [_, _, ..] = named.hosts.as_slice() {
            let (count, others) = (named.hosts.len(), &named.hosts);
            let missing: Vec<&str> =
                others.iter().filter(|host| !host.eq_ignore_ascii_case(own)).map(String::as_str).collect();
            bail!(
                NodeNotFound,
                "Quorum check failed because not enough voting nodes responded; required {} but only the following 1 \
                 voting nodes responded: {own}; the following nodes did not respond affirmatively: {}",
                count / 2 + 1,
                missing.join(", ")
            );
        }
        // A forced reconfig skips versions, so that it supersedes concurrent configurations.
        let version = forced_by.map_or(version, |skip| version.max(self.version).saturating_add(skip));
        let host = self.host.as_ref().map(|_| own.to_string());
        Ok(SetConfig { version, term, host, ..other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    const ID: &str = "replicaSetId: ObjectId('0102030405060708090a0b0c')";

    fn id() -> ObjectId {
        ObjectId::parse("0102030405060708090a0b0c").unwrap()
    }

    fn read(more: &str, member: &str) -> Result<(SetConfig, Named)> {
        let text = format!(
            "{{_id: 'rs0', version: 2, protocolVersion: 1, members: [{{_id: 0, host: 'h:1'{member}}}]{more}}}"
        );
        SetConfig::read(parse(&text).unwrap().view(), id())
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
        result.unwrap_err().code().number()
    }

    #[test]
    fn configurations_round_trip() {
        let (config, named) =
            read(&format!(", settings: {{electionTimeoutMillis: 5, {ID}}}"), ", priority: 2, tags: {a: 'b'}")
                .unwrap();
        assert_eq!(named, Named { set: "rs0".into(), hosts: vec!["h:1".into()] });
        let mut shown = Builder::new();
        config.append_to("rs0", "h:1", &mut shown);
        assert_eq!(
            SetConfig::stored(shown.finish().view()).unwrap(),
            (config.clone(), Some("h:1".to_string()))
        );
        assert_eq!((config.setting("electionTimeoutMillis"), config.priority()), (5, 2.0));
    }

    #[test]
    fn unsupported_configurations_are_refused() {
        for (more, member, expected) in [
            ("", ", priority: 0", 93),
            ("", ", arbiterOnly: true", 93),
            ("", ", votes: 0", 93),
            ("", ", secondaryDelaySecs: 5", 93),
            ("", ", priority: -1", 2),
            ("", ", horizons: {a: 'b'}", 238),
            ("", ", x: 1", 40_415),
            (", writeConcernMajorityJournalDefault: false", "", 238),
            (", settings: {getLastErrorModes: {m: {a: 1}}}", "", 238),
            (", settings: {getLastErrorDefaults: {w: 2}}", "", 93),
            (", settings: {x: 1}", "", 40_415),
            (", x: 1", "", 40_415),
        ] {
            assert_eq!(code(read(more, member)), expected, "{more} {member}");
        }
    }

    #[test]
    fn a_reconfig_needs_a_newer_version_and_this_member_alone() {
        let old = SetConfig { term: 3, ..SetConfig::new(id()) };
        let (new, named) = read("", "").unwrap();
        let taken = old.become_other(new.clone(), &named, ("rs0", "H:1"), None).unwrap();
        assert_eq!((taken.version, taken.term), (2, 3));
        assert_eq!(code(taken.become_other(new.clone(), &named, ("rs0", "h:1"), None)), 103);
        let forced = taken.become_other(new.clone(), &named, ("rs0", "h:1"), Some(10_000)).unwrap();
        assert_eq!(forced.version, 10_002);
        assert_eq!(code(old.become_other(new.clone(), &named, ("rs1", "h:1"), None)), 103);
        assert_eq!(code(old.become_other(new.clone(), &named, ("rs0", "h:2"), None)), 74);
        let two = Named { hosts: vec!["h:1".into(), "h:2".into()], ..named };
        assert_eq!(code(old.become_other(new, &two, ("rs0", "h:1"), None)), 74);
    }
    #[test]
    fn a_set_begins_with_this_member_alone() {
        let first = |text: &str| {
            SetConfig::first(parse(text).unwrap().view(), "rs0", id(), |host| host == "h:1" || host == "n:1")
        };
        let (config, host) = first("{_id: 'rs0', term: 7, members: [{_id: 3, host: 'n:1'}]}").unwrap();
        assert_eq!((config.version, config.term, config.member_id(), host.as_str()), (1, 1, 3, "n:1"));
        for (text, expected) in [
            ("{_id: 'rs0', members: [{_id: 0, host: 'h:1'}, {_id: 1, host: 'h:2'}]}", 74),
            ("{_id: 'rs0', members: [{_id: 0, host: 'h:2'}]}", 93),
            ("{_id: 'rs1', members: [{_id: 0, host: 'h:1'}]}", 93),
            ("{_id: 'rs0', version: 2, members: [{_id: 0, host: 'h:1'}]}", 103),
        ] {
            assert_eq!(code(first(text)), expected, "{text}");
        }
    }
}

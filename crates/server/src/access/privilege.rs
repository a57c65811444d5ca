//! Privileges as roles grant them, the union of a user's privileges, and the user of a connection.

use super::action::{Action, Actions};
use super::resource::{Pattern, Resource, is_internal, is_normal, series_of};
use crate::protocol::fields::Fields;
use crate::protocol::names::{RoleName, UserName};
use base::bson::{Builder, Document, ValueBuf};
use base::{Result, bail};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// The right to run actions on the resources of a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Privilege {
    pub(crate) resource: Pattern,
    pub(crate) actions: Actions,
}

impl Privilege {
    /// Parses `{resource: {…}, actions: […]}` and adds unknown actions to `unknown`. `path` is the list's path.
    ///
    /// Errors: MongoDB's errors for wrong shapes; BadValue without actions.
    pub(crate) fn parse(
        path: &str,
        document: Document<'_>,
        unknown: &mut BTreeSet<String>,
    ) -> Result<Privilege> {
        let mut fields = Fields::of_document(path, document);
        let resource = fields.required("resource", Fields::document)?;
        let resource = Pattern::parse(&format!("{path}.resource"), resource)?;
        let names = fields.required("actions", Fields::strings)?;
        fields.finish()?;
        if names.is_empty() {
            bail!(BadValue, "'actions' field of privilege resource must not be empty");
        }
        Ok(Privilege { resource, actions: Actions::parse(&names, unknown) })
    }

    /// Appends `resource` and `actions`.
    pub(crate) fn append(&self, out: &mut Builder) {
        self.resource.append(out.begin_document(c"resource"));
        out.end().begin_array(c"actions");
        for action in self.actions.iter() {
            out.push(action.name());
        }
        out.end();
    }
}

/// Adds a privilege to a list and merges the actions on equal resources.
pub(crate) fn add(list: &mut Vec<Privilege>, privilege: Privilege) {
    match list.iter_mut().find(|known| known.resource == privilege.resource) {
        Some(known) => known.actions = known.actions.and(privilege.actions),
        None => list.push(privilege),
    }
}

/// Actions by the names in patterns.
#[derive(Default)]
struct Scope {
    /// Actions for all names.
    everywhere: Actions,
    /// Actions in one database.
    databases: HashMap<Box<str>, Actions>,
    /// Actions on one collection name in all databases.
    named: HashMap<Box<str>, Actions>,
    /// Actions on one collection name in one database.
    exact: HashMap<Box<str>, HashMap<Box<str>, Actions>>,
}

/// Returns the actions under a name, empty if the name is missing.
fn of(map: &HashMap<Box<str>, Actions>, name: &str) -> Actions {
    map.get(name).copied().unwrap_or_default()
}

impl Scope {
    fn add(&mut self, database: &str, name: &str, actions: Actions) {
        let slot = match (database, name) {
            ("", "") => &mut self.everywhere,
            (database, "") => self.databases.entry(database.into()).or_default(),
            ("", name) => self.named.entry(name.into()).or_default(),
            (database, name) => {
                self.exact.entry(database.into()).or_default().entry(name.into()).or_default()
            }
        };
        *slot = slot.and(actions);
    }

    fn exact(&self, database: &str, name: &str) -> Actions {
        self.exact.get(database).map(|names| of(names, name)).unwrap_or_default()
    }

    /// Returns true if a pattern may match in the database, `everywhere` excepted.
    fn touches(&self, database: &str) -> bool {
        !self.named.is_empty() || self.databases.contains_key(database) || self.exact.contains_key(database)
    }
}

/// All privileges of a user. A check takes a few lookups and no allocation.
#[derive(Default)]
pub(crate) struct Privileges {
    list: Vec<Privilege>,
    /// Source roles, including inherited roles.
    roles: Vec<RoleName>,
    /// Value of `$$USER_ROLES`, for users with roles.
    user_roles: Option<Arc<ValueBuf>>,
    anything: Actions,
    cluster: Actions,
    normal: Scope,
    buckets: Scope,
}

impl std::fmt::Debug for Privileges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} privileges", self.list.len())
    }
}

impl Privileges {
    /// Returns the union of the privileges.
    pub(crate) fn new(privileges: impl IntoIterator<Item = Privilege>) -> Privileges {
        let mut all = Privileges::default();
        for privilege in privileges {
            let actions = privilege.actions;
            match &privilege.resource {
                Pattern::Any => all.anything = all.anything.and(actions),
                Pattern::Cluster => all.cluster = all.cluster.and(actions),
                Pattern::AnyNormal => all.normal.add("", "", actions),
                Pattern::Database(database) => all.normal.add(database, "", actions),
                Pattern::Named(name) => all.normal.add("", name, actions),
                Pattern::Collection(database, name) => all.normal.add(database, name, actions),
                Pattern::Buckets(database, series) => all.buckets.add(database, series, actions),
            }
            add(&mut all.list, privilege);
        }
        all
    }

    /// Sets the source roles.
    pub(crate) fn through(self, roles: Vec<RoleName>) -> Privileges {
        let mut out = Builder::new();
        out.begin_array(c"roles");
        for RoleName { role, db } in &roles {
            let id = format!("{db}.{role}");
            out.push_document().append(c"_id", &*id).append(c"role", role).append(c"db", db).end();
        }
        out.end();
        let user_roles = out.finish().view().get("roles").map(|roles| Arc::new(roles.to_owned()));
        Privileges { roles, user_roles, ..self }
    }

    /// Returns the source roles, including inherited roles.
    pub(crate) fn roles(&self) -> &[RoleName] {
        &self.roles
    }

    /// Returns the value of `$$USER_ROLES`.
    pub(crate) fn user_roles(&self) -> Option<Arc<ValueBuf>> {
        self.user_roles.clone()
    }

    /// Returns each resource with its actions.
    pub(crate) fn list(&self) -> &[Privilege] {
        &self.list
    }

    /// Returns all actions on a resource.
    pub(crate) fn on(&self, resource: Resource<'_>) -> Actions {
        let everywhere = |database: &str| match is_internal(database) {
            true => Actions::NONE,
            false => self.normal.everywhere,
        };
        let own = match resource {
            Resource::Any => Actions::NONE,
            Resource::Cluster => self.cluster,
            Resource::AnyNormal => self.normal.everywhere,
            Resource::Database(database) => everywhere(database).and(of(&self.normal.databases, database)),
            Resource::Collection(database, name) => {
                let named = of(&self.normal.named, name).and(self.normal.exact(database, name));
                let around = if is_normal(database, name) {
                    everywhere(database).and(of(&self.normal.databases, database))
                } else if let Some(series) = series_of(name) {
                    let any = self.buckets.everywhere.and(of(&self.buckets.databases, database));
                    any.and(of(&self.buckets.named, series)).and(self.buckets.exact(database, series))
                } else {
                    Actions::NONE
                };
                named.and(around)
            }
        };
        self.anything.and(own)
    }

    /// Returns true if an action is allowed.
    pub(crate) fn allows(&self, resource: Resource<'_>, action: Action) -> bool {
        self.anything.contains(action) || self.on(resource).contains(action)
    }

    /// Returns true if all of these actions are allowed.
    pub(crate) fn allows_all(&self, resource: Resource<'_>, actions: Actions) -> bool {
        actions.without(self.on(resource)).is_empty()
    }

    /// Returns true if any action is allowed in a database.
    pub(crate) fn touches(&self, database: &str) -> bool {
        let anywhere = !self.anything.is_empty() || !self.buckets.everywhere.is_empty();
        let normal = !is_internal(database) && !self.normal.everywhere.is_empty();
        anywhere || normal || self.normal.touches(database) || self.buckets.touches(database)
    }
}

/// An authenticated user, as of the last read of its document.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) user: UserName,
    /// Id that distinguishes the user from an earlier user of this name.
    pub(crate) user_id: Option<[u8; 16]>,
    /// Directly granted roles, without inherited roles.
    pub(crate) roles: Vec<RoleName>,
    pub(crate) mechanism: &'static str,
    /// Digest that identifies the user's sessions.
    pub(crate) digest: [u8; 32],
    /// Privileges of the roles, including inherited roles.
    pub(crate) privileges: Arc<Privileges>,
    /// Generation of users and roles at the last read.
    pub(crate) generation: u64,
    /// Time of the last read.
    pub(crate) read: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn privileges(list: &[(Pattern, &[Action])]) -> Privileges {
        Privileges::new(list.iter().map(|(resource, actions)| Privilege {
            resource: resource.clone(),
            actions: Actions::of(actions),
        }))
    }

    #[test]
    fn patterns_match_their_resources() {
        use Action::{Find, Insert, Update};
        use Resource::{Cluster, Collection, Database};
        let own = privileges(&[
            (Pattern::AnyNormal, &[Find]),
            (Pattern::Database("d".into()), &[Insert]),
            (Pattern::Collection("d".into(), "system.js".into()), &[Update]),
            (Pattern::Named("system.profile".into()), &[Find]),
        ]);
        assert!(own.allows(Collection("x", "c"), Find) && own.allows(Database("x"), Find));
        assert!(!own.allows(Collection("local", "c"), Find) && !own.allows(Database("config"), Find));
        assert!(!own.allows(Collection("x", "system.users"), Find) && !own.allows(Cluster, Find));
        assert!(
            own.allows(Collection("d", "c"), Insert) && !own.allows(Collection("d", "system.js"), Insert)
        );
        assert!(own.allows(Collection("d", "system.js"), Update));
        assert!(own.allows(Collection("local", "system.profile"), Find));
        assert!(own.allows_all(Collection("d", "c"), Actions::of(&[Find, Insert])));
        assert!(!own.allows_all(Collection("d", "c"), Actions::of(&[Find, Update])));
        assert!(own.touches("d") && own.touches("local"), "by the name of a collection");
    }

    #[test]
    fn buckets_are_a_matter_of_their_own() {
        use Action::Find;
        let own = privileges(&[
            (Pattern::AnyNormal, &[Find]),
            (Pattern::Buckets("d".into(), "t".into()), &[Find]),
            (Pattern::Buckets("".into(), "u".into()), &[Find]),
        ]);
        assert!(own.allows(Resource::Collection("d", "system.buckets.t"), Find));
        assert!(own.allows(Resource::Collection("x", "system.buckets.u"), Find));
        assert!(!own.allows(Resource::Collection("x", "system.buckets.t"), Find));
        let any = privileges(&[(Pattern::Any, &[Find])]);
        assert!(
            any.allows(Resource::Cluster, Find)
                && any.allows(Resource::Collection("local", "system.x"), Find)
        );
        assert!(!privileges(&[]).touches("d"));
    }

    #[test]
    fn privileges_of_one_resource_are_put_together() {
        let twice = [(Pattern::Cluster, &[Action::Top][..]), (Pattern::Cluster, &[Action::Inprog][..])];
        let own = privileges(&twice);
        assert_eq!(own.list().len(), 1);
        let mut out = Builder::new();
        own.list()[0].append(&mut out);
        let document = out.finish();
        let parsed = Privilege::parse("privileges", document.view(), &mut BTreeSet::new()).unwrap();
        assert!(parsed == own.list()[0]);
    }
}

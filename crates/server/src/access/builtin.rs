//! Built-in roles: MongoDB 8.0's, and Vellum's own for its clean-slate commands.

use super::grants::{self, RolePrivileges};
use super::privilege::Privilege;
use crate::protocol::names::RoleName;

/// A role that always exists.
pub(crate) struct Builtin {
    /// Name without a database.
    pub(crate) name: &'static str,
    /// True if the role exists only in `admin`. Other roles exist in each database and apply to it.
    pub(crate) admin_only: bool,
    /// Adds the role's privileges in a database.
    grant: fn(&str, &mut RolePrivileges),
}

/// All built-in roles, sorted by name.
// tidy: sorted
pub(crate) static BUILTIN: &[Builtin] = &[
    Builtin { name: "__queryableBackup", admin_only: true, grant: grants::queryable_backup },
    Builtin { name: "__system", admin_only: true, grant: grants::system },
    Builtin { name: "backup", admin_only: true, grant: grants::backup },
    Builtin { name: "clusterAdmin", admin_only: true, grant: grants::cluster_admin },
    Builtin { name: "clusterManager", admin_only: true, grant: grants::cluster_manager },
    Builtin { name: "clusterMonitor", admin_only: true, grant: grants::cluster_monitor },
    Builtin { name: "dbAdmin", admin_only: false, grant: grants::db_admin },
    Builtin { name: "dbAdminAnyDatabase", admin_only: true, grant: grants::db_admin_any },
    Builtin { name: "dbOwner", admin_only: false, grant: grants::db_owner },
    Builtin { name: "directShardOperations", admin_only: true, grant: grants::direct_shard_operations },
    Builtin { name: "enableSharding", admin_only: false, grant: grants::enable_sharding },
    Builtin { name: "hostManager", admin_only: true, grant: grants::host_manager },
    Builtin { name: "read", admin_only: false, grant: grants::read },
    Builtin { name: "readAnyDatabase", admin_only: true, grant: grants::read_any },
    Builtin { name: "readWrite", admin_only: false, grant: grants::read_write },
    Builtin { name: "readWriteAnyDatabase", admin_only: true, grant: grants::read_write_any },
    Builtin { name: "restore", admin_only: true, grant: grants::restore },
    Builtin { name: "root", admin_only: true, grant: grants::root },
    Builtin { name: "userAdmin", admin_only: false, grant: grants::user_admin },
    Builtin { name: "userAdminAnyDatabase", admin_only: true, grant: grants::user_admin_any },
    Builtin { name: "vellumCleanSlate", admin_only: false, grant: grants::clean_slate },
    Builtin { name: "vellumCleanSlateAnyDatabase", admin_only: true, grant: grants::clean_slate_any },
];

fn find(role: &RoleName) -> Option<&'static Builtin> {
    let at = BUILTIN.binary_search_by(|builtin| builtin.name.cmp(&role.role)).ok()?;
    let known = BUILTIN.get(at)?;
    let is_there = role.db == "admin" || !known.admin_only && !role.db.is_empty() && role.db != "$external";
    is_there.then_some(known)
}

/// Returns true for the name of a built-in role.
pub(crate) fn is_builtin(role: &RoleName) -> bool {
    find(role).is_some()
}

/// Returns the privileges of a built-in role; `None` for an unknown name.
pub(crate) fn privileges(role: &RoleName) -> Option<Vec<Privilege>> {
    let mut granted = RolePrivileges::default();
    (find(role)?.grant)(&role.db, &mut granted);
    Some(granted.0)
}

/// Returns the built-in roles of a database, by name.
pub(crate) fn of_database(database: &str) -> Vec<RoleName> {
    let roles = BUILTIN.iter().map(|builtin| RoleName::new(builtin.name, database));
    roles.filter(is_builtin).collect()
}

#[cfg(test)]
mod tests {
    use super::super::action::Action::{
        CreateUser, Find, Impersonate, Insert, Internal, Validate, VellumForkDatabase, VellumResetDatabase,
    };
    use super::super::privilege::Privileges;
    use super::super::resource::Resource::{Cluster, Collection, Database};
    use super::*;

    fn role(name: &str, database: &str) -> Privileges {
        Privileges::new(privileges(&RoleName::new(name, database)).unwrap())
    }

    #[test]
    fn roles_are_there_where_they_belong() {
        assert!(is_builtin(&RoleName::new("read", "d")) && !is_builtin(&RoleName::new("root", "d")));
        assert!(
            !is_builtin(&RoleName::new("read", "$external")) && !is_builtin(&RoleName::new("reads", "d"))
        );
        assert_eq!(of_database("d").len(), 7);
        assert_eq!(of_database("admin").len(), BUILTIN.len());
    }

    #[test]
    fn a_role_of_a_database_ends_at_it() {
        let read = role("read", "d");
        assert!(read.allows(Collection("d", "c"), Find) && read.allows(Collection("d", "system.js"), Find));
        for resource in [Collection("x", "c"), Collection("d", "system.users"), Database("x"), Cluster] {
            assert!(!read.allows(resource, Find));
        }
        assert!(!read.allows(Collection("d", "c"), Insert));
        assert!(role("dbOwner", "d").allows(Database("d"), CreateUser));
    }

    #[test]
    fn any_database_excludes_system_databases() {
        let any = role("readWriteAnyDatabase", "admin");
        assert!(
            any.allows(Collection("x", "c"), Insert) && any.allows(Collection("x", "system.buckets.c"), Find)
        );
        assert!(
            !any.allows(Collection("local", "c"), Find) && !any.allows(Collection("x", "system.users"), Find)
        );
        let users = role("userAdminAnyDatabase", "admin");
        assert!(users.allows(Collection("admin", "system.users"), Find));
        assert!(!users.allows(Collection("admin", "system.users"), Insert));
    }

    #[test]
    fn the_system_may_do_anything_and_root_nearly() {
        let (system, root) = (role("__system", "admin"), role("root", "admin"));
        assert!(system.allows(Cluster, Internal) && !root.allows(Cluster, Internal));
        assert!(root.allows(Collection("local", "system.x"), Validate));
        assert!(!root.allows(Collection("local", "system.x"), Find));
        assert!(!root.allows(Cluster, Impersonate) && root.allows(Database("d"), VellumForkDatabase));
        assert!(!role("readWriteAnyDatabase", "admin").allows(Database("d"), VellumResetDatabase));
    }
}

//! Conflicts between users: cursors, sessions, views, names, roles.

use super::{Client, guarded, system};
use base::bson::{Builder, Value};

const UNAUTHORIZED: i64 = 13;

fn cursor_of(client: &mut Client, text: &str) -> i64 {
    let reply = client.ask(text);
    let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document());
    cursor.unwrap_or_else(|| panic!("{}", reply.view())).get("id").unwrap().as_i64().unwrap()
}

fn get_more(id: i64) -> String {
    format!(r#"{{getMore: {{$numberLong: "{id}"}}, collection: "c", $db: "d"}}"#)
}

fn kill(id: i64) -> String {
    format!(r#"{{killCursors: "c", cursors: [{{$numberLong: "{id}"}}], $db: "d"}}"#)
}

fn fill(server: &crate::server::Server) {
    system(server, r#"{insert: "c", documents: [{_id: 1}, {_id: 2}, {_id: 3}], $db: "d"}"#);
    system(server, r#"{insert: "secret", documents: [{_id: 1}], $db: "d"}"#);
}

#[test]
fn a_cursor_is_for_its_user_while_privileges_last() {
    let server = guarded();
    fill(&server);
    let mut one = Client::user(&server, "one", &["read@d"]);
    let mut two = Client::user(&server, "two", &["readWrite@d"]);
    let open = r#"{find: "c", batchSize: 1, $db: "d"}"#;
    let id = cursor_of(&mut one, open);
    let (code, message) = two.code(&get_more(id));
    assert_eq!(code, UNAUTHORIZED);
    assert_eq!(message, format!("cursor id {id} was not created by the authenticated user"));
    let (code, message) = two.code(&kill(id));
    assert_eq!(code, UNAUTHORIZED);
    assert!(message.starts_with(r#"not authorized on d to execute command { killCursors: "c", cursors: [ "#));
    assert_eq!(one.code(&get_more(id)).0, 0, "it is still there");
    let id = cursor_of(&mut one, open);
    one.log_in("one", &["read@other"]);
    let (code, message) = one.code(&get_more(id));
    assert_eq!((code, message), (UNAUTHORIZED, format!("not authorized for getMore with cursor id {id}")));
    assert_eq!(one.code(&kill(id)).0, 0, "one's own may be killed with no rights left");
    let id = cursor_of(&mut two, open);
    let mut host = Client::user(&server, "host", &["hostManager@admin"]);
    assert_eq!(host.code(&kill(id)).0, 0);
    assert_eq!(two.code(&get_more(id)).0, 43);
    // A full name may refer to another database than the request's.
    assert_eq!(two.code(r#"{checkShardingIndex: "e.c", keyPattern: {a: 1}, $db: "d"}"#).0, UNAUTHORIZED);
    assert_eq!(two.code(r#"{dataSize: "e.c", $db: "d"}"#).0, UNAUTHORIZED);
}

#[test]
fn a_cursor_is_for_its_session() {
    let server = guarded();
    fill(&server);
    let mut one = Client::user(&server, "one", &["read@d"]);
    let session = |last| {
        format!(
            r#""lsid": {{"id": {{"$binary": {{"base64": "AAAAAAAAAAAAAAAAAAAA{last}", "subType": "04"}}}}}}"#
        )
    };
    let (first, second) = (session("AA=="), session("AQ=="));
    let id = cursor_of(&mut one, &format!(r#"{{find: "c", batchSize: 1, {first}, $db: "d"}}"#));
    let next = |extra: &str| get_more(id).replace("$db", &format!("{extra}$db"));
    for (extra, given) in
        [(String::new(), "none"), (format!("{second}, "), "00000000-0000-0000-0000-000000000001 - ")]
    {
        let (code, message) = one.code(&next(&extra));
        assert_eq!(code, UNAUTHORIZED);
        assert!(
            message.starts_with("Cursor session id (00000000-0000-0000-0000-000000000000 - "),
            "{message}"
        );
        let end = format!(") is not the same as the operation context's session id ({given}");
        assert!(message.contains(&end), "{message}");
    }
    assert_eq!(one.code(&next(&format!("{first}, "))).0, 0);
}

#[test]
fn a_cursor_over_several_collections_needs_all_of_them_to_the_end() {
    let server = guarded();
    fill(&server);
    let make = |name: &str| {
        let privileges = format!(r#"{{resource: {{db: "d", collection: "{name}"}}, actions: ["find"]}}"#);
        let role = format!(r#"{{createRole: "{name}", privileges: [{privileges}], roles: [], $db: "d"}}"#);
        system(&server, &role);
    };
    make("c");
    make("secret");
    let open = r#"{aggregate: "c", pipeline: [{$unionWith: "secret"}], cursor: {batchSize: 1}, $db: "d"}"#;
    let mut client = Client::user(&server, "one", &["c@d"]);
    assert_eq!(client.code(open).0, UNAUTHORIZED);
    client.log_in("one", &["c@d", "secret@d"]);
    let id = cursor_of(&mut client, open);
    client.log_in("one", &["c@d"]);
    assert_eq!(client.code(&get_more(id)).0, UNAUTHORIZED);
}

#[test]
fn stages_require_their_privileges_at_any_depth() {
    let server = guarded();
    fill(&server);
    for (name, collection) in [("c", "c"), ("out", "out")] {
        let actions = r#"["find", "insert", "remove", "createIndex"]"#;
        system(
            &server,
            &format!(
                r#"{{createRole: "{name}", privileges: [{{resource: {{db: "d", collection: "{collection}"}},
                    actions: {actions}}}], roles: [], $db: "d"}}"#
            ),
        );
    }
    let mut client = Client::user(&server, "one", &["c@d", "out@d"]);
    let mut run = |stages: &str| {
        client.code(&format!(r#"{{aggregate: "c", pipeline: [{stages}], cursor: {{}}, $db: "d"}}"#)).0
    };
    let lookup = r#"{$lookup: {from: "secret", pipeline: [], as: "s"}}"#;
    let joined = r#"{$graphLookup: {from: "secret", startWith: "$a", connectFromField: "a", connectToField: "a", as: "s"}}"#;
    for stage in [
        lookup.to_string(),
        joined.to_string(),
        r#"{$unionWith: "secret"}"#.to_string(),
        r#"{$unionWith: {coll: "secret"}}"#.to_string(),
        format!("{{$facet: {{f: [{lookup}]}}}}"),
        format!(r#"{{$lookup: {{from: "c", pipeline: [{lookup}], as: "x"}}}}"#),
        format!(r#"{{$unionWith: {{coll: "c", pipeline: [{joined}]}}}}"#),
        r#"{$lookup: {from: "c", from: "secret", pipeline: [], as: "s"}}"#.to_string(),
        r#"{$out: "secret"}"#.to_string(),
        r#"{$out: {db: "e", coll: "c"}}"#.to_string(),
        r#"{$merge: {into: "out", whenMatched: "merge"}}"#.to_string(),
        r#"{$collStats: {count: {}}}"#.to_string(),
        r#"{$currentOp: {allUsers: true}}"#.to_string(),
    ] {
        assert_eq!(run(&stage), UNAUTHORIZED, "{stage}");
    }
    for stage in [
        r#"{$lookup: {from: "out", pipeline: [], as: "s"}}"#,
        r#"{$lookup: {pipeline: [{$documents: [{a: 1}]}], as: "s"}}"#,
        r#"{$merge: {into: "out", whenMatched: "keepExisting"}}"#,
        r#"{$out: "out"}"#,
    ] {
        assert_eq!(run(stage), 0, "{stage}");
    }
    let secret = system(&server, r#"{count: "secret", $db: "d"}"#);
    assert_eq!(secret.view().get("n").unwrap().as_i64(), Some(1));
    system(
        &server,
        r#"{createRole: "stats", privileges: [{resource: {db: "d", collection: "c"},
            actions: ["find", "indexStats"]}], roles: [], $db: "d"}"#,
    );
    let mut client = Client::user(&server, "two", &["stats@d"]);
    for (named, code) in [(r#"coll: "c""#, 0), (r#"coll: "c", coll: "secret""#, UNAUTHORIZED)] {
        let stage = format!("{{$unionWith: {{{named}, pipeline: [{{$indexStats: {{}}}}]}}}}");
        let aggregate = format!(r#"{{aggregate: "c", pipeline: [{stage}], cursor: {{}}, $db: "d"}}"#);
        assert_eq!(client.code(&aggregate).0, code, "{stage}");
    }
}

#[test]
fn a_view_is_read_by_its_privilege_and_created_by_privileges_on_its_sources() {
    let server = guarded();
    fill(&server);
    system(&server, r#"{create: "shown", viewOn: "secret", pipeline: [], $db: "d"}"#);
    let on = |name: &str, actions: &str| {
        format!(r#"{{resource: {{db: "d", collection: "{name}"}}, actions: {actions}}}"#)
    };
    system(
        &server,
        &format!(
            r#"{{createRole: "viewer", privileges: [{}, {}, {}], roles: [], $db: "d"}}"#,
            on("shown", r#"["find", "collMod"]"#),
            on("mine", r#"["find", "createCollection"]"#),
            on("blind", r#"["createCollection"]"#),
        ),
    );
    let mut client = Client::user(&server, "one", &["viewer@d"]);
    assert_eq!(client.code(r#"{find: "shown", $db: "d"}"#).0, 0);
    assert_eq!(client.code(r#"{find: "secret", $db: "d"}"#).0, UNAUTHORIZED);
    for refused in [
        r#"{create: "mine", viewOn: "secret", pipeline: [], $db: "d"}"#,
        r#"{create: "mine", viewOn: "shown", pipeline: [{$unionWith: "secret"}], $db: "d"}"#,
        r#"{create: "mine", viewOn: "shown", viewOn: "secret", $db: "d"}"#,
        r#"{collMod: "shown", viewOn: "secret", pipeline: [], $db: "d"}"#,
    ] {
        assert_eq!(client.code(refused).0, UNAUTHORIZED, "{refused}");
    }
    assert_eq!(client.code(r#"{collMod: "shown", viewOn: "c", $db: "d"}"#).0, 72);
    assert_eq!(client.code(r#"{create: "mine", viewOn: "shown", pipeline: [], $db: "d"}"#).0, 0);
    assert_eq!(client.code(r#"{create: "blind", viewOn: "secret", pipeline: [], $db: "d"}"#).0, 0);
    assert_eq!(client.code(r#"{find: "blind", $db: "d"}"#).0, UNAUTHORIZED);
}

#[test]
fn a_rename_reveals_no_documents() {
    let server = guarded();
    fill(&server);
    system(
        &server,
        r#"{createRole: "mover", privileges: [{resource: {db: "d", collection: ""}, actions: ["renameCollectionSameDB"]},
            {resource: {db: "d", collection: "open"}, actions: ["find"]}], roles: [], $db: "d"}"#,
    );
    let mut client = Client::user(&server, "one", &["mover@d"]);
    assert_eq!(client.code(r#"{renameCollection: "d.secret", to: "d.open", $db: "admin"}"#).0, UNAUTHORIZED);
    assert_eq!(client.code(r#"{renameCollection: "d.secret", to: "d.hidden", $db: "admin"}"#).0, 0);
    assert_eq!(client.code(r#"{renameCollection: "d.c", to: "e.c", $db: "admin"}"#).0, UNAUTHORIZED);
    assert_eq!(
        client.code(r#"{renameCollection: "d.c", to: "d.hidden", dropTarget: true, $db: "admin"}"#).0,
        UNAUTHORIZED
    );
}

const LSID: &str = r#"{$binary: {base64: "AAAAAAAAAAAAAAAAAAAAAQ==", subType: "04"}}"#;

#[test]
fn a_session_is_of_the_user_on_the_connection() {
    let server = guarded();
    fill(&server);
    let mut one = Client::user(&server, "one", &["readWrite@d"]);
    let mut two = Client::user(&server, "two", &["readWrite@d"]);
    let begin = format!(
        r#"{{insert: "c", documents: [{{_id: 10}}], lsid: {{id: {LSID}}}, txnNumber: {{$numberLong: "1"}},
            startTransaction: true, autocommit: false, $db: "d"}}"#
    );
    let commit = format!(
        r#"{{commitTransaction: 1, lsid: {{id: {LSID}}}, txnNumber: {{$numberLong: "1"}}, autocommit: false,
            $db: "admin"}}"#
    );
    assert_eq!(one.code(&begin).0, 0);
    assert_eq!(two.code(&commit).0, 251, "another user's session of the same number is another one");
    // A session of another user requires a privilege.
    let mut spoken = Builder::new();
    spoken.append(c"count", "c").begin_document(c"lsid");
    spoken.append(c"id", Value::Binary { subtype: 4, bytes: &[1; 16] });
    let digest = crate::protocol::session_id::digest_of("one", "admin");
    spoken.append(c"uid", Value::Binary { subtype: 0, bytes: &digest }).end().append(c"$db", "d");
    let spoken = spoken.finish();
    let reply = two.run(spoken.view());
    let message = reply.view().get("errmsg").and_then(|message| message.as_str());
    assert_eq!(message, Some("Unauthorized to set user digest in LogicalSessionId"));
    assert!(one.run(spoken.view()).view().get("errmsg").is_none(), "one's own digest may be told");
    let mut system = Client::user(&server, "three", &["__system@admin"]);
    assert!(system.run(spoken.view()).view().get("errmsg").is_none());
    // The privileges are revoked while the transaction is open.
    one.log_in("one", &["read@d"]);
    let next = begin.replace("10", "11").replace("startTransaction: true, ", "");
    assert_eq!(one.code(&next).0, UNAUTHORIZED);
    assert_eq!(two.code(r#"{killSessions: [], $db: "admin"}"#).0, 0);
    assert_eq!(one.code(&commit).0, 0, "what two killed were two's own");
    assert_eq!(one.code(r#"{killAllSessions: [], $db: "admin"}"#).0, UNAUTHORIZED);
}

#[test]
fn operations_are_visible_to_their_users() {
    let server = guarded();
    fill(&server);
    let mut one = Client::user(&server, "one", &["read@d"]);
    let mut two = Client::user(&server, "two", &["readWrite@d"]);
    let mut monitor = Client::user(&server, "monitor", &["clusterMonitor@admin"]);
    let id = cursor_of(&mut two, r#"{find: "c", batchSize: 1, $db: "d"}"#);
    cursor_of(&mut one, r#"{find: "c", batchSize: 1, $db: "d"}"#);
    let own = r#"{aggregate: 1, pipeline: [{$currentOp: {idleCursors: true}}], cursor: {}, $db: "admin"}"#;
    let all = own.replace("idleCursors: true", "idleCursors: true, allUsers: true");
    let shown = |client: &mut Client, text: &str| client.ask(text).view().to_string();
    let seen = shown(&mut two, own);
    assert!(seen.contains(r#"effectiveUsers: [ { user: "two", db: "admin" } ]"#), "{seen}");
    assert!(seen.contains(&id.to_string()) && !seen.contains(r#""one""#), "{seen}");
    assert_eq!(two.code(&all).0, UNAUTHORIZED);
    let seen = shown(&mut monitor, &all);
    assert!(seen.contains(r#""one""#) && seen.contains(r#""two""#), "{seen}");
    assert_eq!(two.code(r#"{currentOp: 1, $db: "admin"}"#).0, UNAUTHORIZED);
    let seen = shown(&mut two, r#"{currentOp: 1, $ownOps: true, $all: true, $db: "admin"}"#);
    assert!(seen.contains(r#""two""#) && !seen.contains(r#""one""#), "{seen}");
}

#[test]
fn lists_contain_visible_names() {
    let server = guarded();
    fill(&server);
    system(&server, r#"{insert: "c", documents: [{_id: 1}], $db: "e"}"#);
    system(
        &server,
        r#"{createRole: "c", privileges: [{resource: {db: "d", collection: "c"}, actions: ["find"]}], roles: [],
            $db: "d"}"#,
    );
    let mut client = Client::user(&server, "one", &["c@d"]);
    let names = |client: &mut Client, text: &str, list: &str| {
        let reply = client.ask(text);
        let reply = reply.view();
        let array = match list {
            "databases" => reply.get("databases").and_then(|list| list.as_array()),
            _ => reply.get("cursor").and_then(|c| c.as_document()?.get("firstBatch")?.as_array()),
        };
        let array = array.unwrap_or_else(|| panic!("{reply}"));
        let name = |entry: Value<'_>| {
            entry.as_document().unwrap().get("name").unwrap().as_str().unwrap().to_string()
        };
        array.iter().map(name).collect::<Vec<_>>()
    };
    let list = r#"{listDatabases: 1, nameOnly: true, $db: "admin"}"#;
    assert_eq!(names(&mut client, list, "databases"), ["d"]);
    let (code, message) = client.code(r#"{listDatabases: 1, authorizedDatabases: false, $db: "admin"}"#);
    assert_eq!((code, message.as_str()), (UNAUTHORIZED, "Insufficient permissions to list all databases"));
    let mut reader = Client::user(&server, "two", &["readAnyDatabase@admin"]);
    assert_eq!(names(&mut reader, list, "databases"), ["admin", "config", "d", "e", "local"]);
    let collections = r#"{listCollections: 1, $db: "d"}"#;
    assert_eq!(client.code(collections).0, UNAUTHORIZED);
    let own = r#"{listCollections: 1, nameOnly: true, authorizedCollections: true, $db: "d"}"#;
    assert_eq!(names(&mut client, own, "collections"), ["c"]);
    assert_eq!(names(&mut reader, collections, "collections"), ["c", "secret"]);
    assert_eq!(client.code(&own.replace(r#""d""#, r#""e""#)).0, UNAUTHORIZED);
}

#[test]
fn roles_form_no_circle_and_stay_in_their_database() {
    let server = guarded();
    let mut admin = Client::user(&server, "admin", &["root@admin"]);
    let mut run = |text: &str| admin.code(text);
    assert_eq!(run(r#"{createRole: "a", privileges: [], roles: [], $db: "d"}"#).0, 0);
    assert_eq!(
        run(r#"{createRole: "a", privileges: [], roles: [], $db: "d"}"#),
        (51_002, r#"Role "a@d" already exists"#.into())
    );
    assert_eq!(run(r#"{createRole: "b", privileges: [], roles: ["a"], $db: "d"}"#).0, 0);
    assert_eq!(run(r#"{createRole: "c", privileges: [], roles: ["b"], $db: "d"}"#).0, 0);
    let (code, message) = run(r#"{grantRolesToRole: "a", roles: ["c"], $db: "d"}"#);
    assert_eq!(
        (code, message.as_str()),
        (49, "Granting roles to a@d would introduce a cycle in the role graph")
    );
    assert_eq!(run(r#"{updateRole: "a", roles: ["a"], $db: "d"}"#).1, "Cannot grant role a@d to itself.");
    assert_eq!(
        run(r#"{grantRolesToRole: "a", roles: [{role: "read", db: "e"}], $db: "d"}"#).1,
        "Roles on the 'd' database cannot be granted roles from other databases"
    );
    assert_eq!(run(r#"{grantRolesToRole: "a", roles: ["none"], $db: "d"}"#).0, 31);
    assert_eq!(
        run(r#"{createRole: "x", privileges: [{resource: {cluster: true}, actions: ["top"]}], roles: [], $db: "d"}"#).1,
        "Roles on the 'd' database cannot be granted privileges that target other databases or the cluster"
    );
    assert_eq!(run(r#"{dropRole: "read", $db: "d"}"#).1, "read@d is a built-in role and cannot be modified");
    assert_eq!(run(r#"{createRole: "read", privileges: [], roles: [], $db: "d"}"#).0, 2);
    assert_eq!(run(r#"{createRole: "y", privileges: [], roles: [], $db: "$external"}"#).0, 2);
    // Resolution ends even for a cycle from a dump.
    system(
        &server,
        r#"{update: "system.roles", updates: [{q: {_id: "d.a"}, u: {$set: {roles: [{role: "c", db: "d"}, {role: "read", db: "d"}]}}}],
            $db: "admin"}"#,
    );
    let mut client = Client::user(&server, "one", &["b@d"]);
    assert_eq!(client.code(r#"{find: "c", $db: "d"}"#).0, 0);
}

#[test]
fn changes_of_a_role_change_its_privileges() {
    let server = guarded();
    let mut admin = Client::user(&server, "admin", &["userAdminAnyDatabase@admin"]);
    let mut run = |text: &str| {
        let (code, message) = admin.code(text);
        assert_eq!(code, 0, "{text}: {message}");
    };
    run(r#"{createRole: "r", privileges: [], roles: [], $db: "d"}"#);
    let is_authorized = |find: bool, insert: bool| {
        let mut client = Client::user(&server, "one", &["r@d"]);
        let code = |allowed: bool| if allowed { 0 } else { UNAUTHORIZED };
        assert_eq!(client.code(r#"{find: "c", $db: "d"}"#).0, code(find));
        assert_eq!(client.code(r#"{insert: "c", documents: [{}], $db: "d"}"#).0, code(insert));
    };
    is_authorized(false, false);
    let both = r#"[{resource: {db: "d", collection: "c"}, actions: ["find", "insert"]}]"#;
    run(&format!(r#"{{grantPrivilegesToRole: "r", privileges: {both}, $db: "d"}}"#));
    is_authorized(true, true);
    run(
        r#"{revokePrivilegesFromRole: "r", privileges: [{resource: {db: "d", collection: "c"}, actions: ["insert"]}],
            $db: "d"}"#,
    );
    is_authorized(true, false);
    run(r#"{grantRolesToRole: "r", roles: ["readWrite"], $db: "d"}"#);
    is_authorized(true, true);
    run(r#"{revokeRolesFromRole: "r", roles: ["readWrite"], $db: "d"}"#);
    run(r#"{updateRole: "r", privileges: [], $db: "d"}"#);
    is_authorized(false, false);
    run(r#"{grantRolesToRole: "r", roles: ["read"], $db: "d"}"#);
    system(
        &server,
        r#"{insert: "system.users", documents: [{_id: "d.u", user: "u", db: "d", roles: [{role: "r", db: "d"}]}], $db: "admin"}"#,
    );
    is_authorized(true, false);
    run(r#"{dropRole: "r", $db: "d"}"#);
    is_authorized(false, false);
    let user = system(&server, r#"{find: "system.users", $db: "admin"}"#);
    assert!(user.view().to_string().contains("roles: []"), "{}", user.view());
}

#[test]
fn secrets_stand_in_no_refusal() {
    let server = guarded();
    let mut client = Client::user(&server, "one", &["read@d"]);
    let (code, message) = client.code(r#"{createUser: "u", pwd: "hunter2", roles: [], $db: "d"}"#);
    assert_eq!(code, UNAUTHORIZED);
    assert_eq!(
        message,
        r#"not authorized on d to execute command { createUser: "u", pwd: "xxx", roles: [], $db: "d" }"#
    );
}

#[test]
fn grants_require_the_privilege_on_the_right_database() {
    let server = guarded();
    fill(&server);
    let mut admin = Client::user(&server, "ua", &["userAdmin@d"]);
    for refused in [
        r#"{createUser: "u", pwd: "p", roles: [{role: "root", db: "admin"}], $db: "d"}"#,
        r#"{createUser: "u", pwd: "p", roles: [{role: "read", db: "e"}], $db: "d"}"#,
        r#"{createUser: "u", pwd: "p", roles: [], $db: "e"}"#,
        r#"{createUser: "u", pwd: "p", roles: [{role: "read", db: "d", db: "e"}], $db: "d"}"#,
        r#"{createRole: "r", privileges: [{resource: {cluster: true}, actions: ["top"]}], roles: [], $db: "d"}"#,
        r#"{createRole: "r", privileges: [{resource: {db: "e", collection: ""}, actions: ["find"]}], roles: [], $db: "d"}"#,
        r#"{grantRolesToUser: "ua", roles: ["root"], $db: "admin"}"#,
        r#"{updateUser: "ua", roles: ["root"], $db: "admin"}"#,
        r#"{usersInfo: {forAllDBs: true}, $db: "d"}"#,
        r#"{usersInfo: {user: "x", db: "e"}, $db: "d"}"#,
    ] {
        assert_eq!(admin.code(refused).0, UNAUTHORIZED, "{refused}");
    }
    for allowed in [
        r#"{createUser: "u", pwd: "p", roles: ["dbOwner"], $db: "d"}"#,
        r#"{createRole: "r", privileges: [{resource: {db: "d", collection: ""}, actions: ["find"]}], roles: [], $db: "d"}"#,
        r#"{usersInfo: 1, $db: "d"}"#,
        r#"{usersInfo: {user: "ua", db: "admin"}, $db: "d"}"#,
    ] {
        assert_eq!(admin.code(allowed), (0, String::new()), "{allowed}");
    }
}

#[test]
fn a_document_sequence_gives_no_privileges() {
    let server = guarded();
    fill(&server);
    let mut client = Client::user(&server, "one", &["own@admin", "readWrite@d"]);
    system(&server, r#"{createRole: "own", privileges: [], roles: [], $db: "admin"}"#);
    let all = r#"{resource: {anyResource: true}, actions: ["anyAction"]}"#;
    for (command, list, field) in [
        (r#"{grantPrivilegesToRole: "own", $db: "admin"}"#, all, "privileges"),
        (r#"{updateRole: "own", $db: "admin"}"#, all, "privileges"),
        (r#"{createRole: "new", roles: [], $db: "admin"}"#, all, "privileges"),
        (r#"{grantRolesToUser: "one", $db: "admin"}"#, r#"{role: "root", db: "admin"}"#, "roles"),
        (r#"{updateUser: "one", $db: "admin"}"#, r#"{role: "root", db: "admin"}"#, "roles"),
        (r#"{aggregate: "c", cursor: {}, $db: "d"}"#, r#"{$out: {db: "e", coll: "x"}}"#, "pipeline"),
        (r#"{update: "c", $db: "e"}"#, r#"{q: {}, u: {$set: {a: 1}}, upsert: true}"#, "updates"),
        (r#"{applyOps: 1, $db: "admin"}"#, r#"{op: "i", ns: "e.c", o: {_id: 1}}"#, "applyOps"),
    ] {
        let reply = client.ask_with(command, field, &[list]);
        assert_ne!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{command}: {reply:?}");
    }
    let roles = system(&server, r#"{rolesInfo: 1, showPrivileges: true, $db: "admin"}"#);
    assert!(!roles.view().to_string().contains("anyAction"), "{roles:?}");
    let privileges = system(&server, r#"{usersInfo: "one", showPrivileges: true, $db: "admin"}"#);
    assert!(!privileges.view().to_string().contains("anyResource"), "{privileges:?}");
    let worked = client.ask_with(r#"{insert: "c", $db: "d"}"#, "documents", &["{_id: 4}"]);
    assert_eq!(worked.view().get("n").and_then(|n| n.as_i64()), Some(1), "{worked:?}");
}

#[test]
fn a_bulk_write_needs_the_privileges_of_the_collections_that_it_writes_to() {
    let server = guarded();
    fill(&server);
    let mut client = Client::user(&server, "one", &["readWrite@d"]);
    // The handler rounds the number of a collection.
    for (index, code) in [("0.4", 0), ("0.5", 0), ("0.7", UNAUTHORIZED), ("1.4", UNAUTHORIZED), ("1.5", 2)] {
        for kind in ["$numberDecimal", "$numberDouble"] {
            let command = format!(
                r#"{{bulkWrite: 1, ops: [{{update: {{{kind}: "{index}"}}, filter: {{_id: "admin.one"}},
                     updateMods: {{$set: {{roles: [{{role: "root", db: "admin"}}]}}}}}}],
                     nsInfo: [{{ns: "d.c"}}, {{ns: "admin.system.users"}}], $db: "admin"}}"#
            );
            let (found, message) = client.code(&command);
            let is_double = kind == "$numberDouble";
            let expected = match index {
                // A double is truncated.
                "0.7" if is_double => 0,
                "1.5" if is_double => UNAUTHORIZED,
                _ => code,
            };
            assert_eq!(found, expected, "{command}: {message}");
        }
    }
    let user = system(&server, r#"{usersInfo: "one", $db: "admin"}"#);
    assert!(!user.view().to_string().contains("root"), "{user:?}");
}

#[test]
fn a_pipeline_writes_to_no_internal_database() {
    let server = guarded();
    let mut any = Client::user(&server, "any", &["readWriteAnyDatabase@admin"]);
    let mut root = Client::user(&server, "root", &["__system@admin"]);
    for database in ["admin", "config", "local"] {
        for (stage, code) in [
            (r#"{$merge: {into: {db: "", coll: "x"}}}"#, 31_320),
            (r#"{$merge: {into: {db: null, coll: "x"}}}"#, 31_320),
            (r#"{$merge: "x"}"#, 31_320),
            (r#"{$out: "x"}"#, 31_321),
        ] {
            let command = format!(
                r#"{{aggregate: 1, pipeline: [{{$documents: [{{_id: 1}}]}}, {stage}], cursor: {{}}, $db: "{database}"}}"#
            );
            assert_eq!(root.code(&command).0, code, "{command}");
            let (found, message) = any.code(&command);
            assert!(found == UNAUTHORIZED || (database == "admin" && found == code), "{command}: {message}");
        }
    }
}

#[test]
fn users_change_their_password_by_a_separate_privilege() {
    let server = guarded();
    system(
        &server,
        r#"{createRole: "own", privileges: [{resource: {db: "admin", collection: ""}, actions: ["changeOwnPassword"]}],
            roles: [], $db: "admin"}"#,
    );
    let mut two = Client::user(&server, "two", &[]);
    let mut one = Client::user(&server, "one", &["own@admin"]);
    assert_eq!(one.code(r#"{updateUser: "one", pwd: "new", $db: "admin"}"#), (0, String::new()));
    assert_eq!(one.code(r#"{updateUser: "one", customData: {}, $db: "admin"}"#).0, UNAUTHORIZED);
    assert_eq!(one.code(r#"{updateUser: "two", pwd: "new", $db: "admin"}"#).0, UNAUTHORIZED);
    assert_eq!(two.code(r#"{updateUser: "two", pwd: "new", $db: "admin"}"#).0, UNAUTHORIZED);
}

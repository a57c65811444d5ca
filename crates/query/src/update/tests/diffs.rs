//! The oplog's diffs of updates, which record writes, not differences.

use super::case;

#[test]
fn operators_log_their_writes() {
    case("{$set: {a: {x: 1, y: 2}}}").logs("{a: {x: 1, y: 1}}", "{u: {a: {x: 1, y: 2}}}");
    case("{$set: {'a.y': 2}}").logs("{a: {x: 1, y: 1}}", "{sa: {u: {y: 2}}}");
    case("{$set: {'a.b.c': 2}}").logs("{}", "{i: {a: {b: {c: 2}}}}");
    case("{$set: {'a.b.c': 2}}").logs("{a: {}}", "{sa: {i: {b: {c: 2}}}}");
    case("{$inc: {n: 1}, $set: {b: 5, a: 5}}").logs("{n: 1, a: 5}", "{u: {n: 2}, i: {b: 5}}");
    case("{$unset: {a: 1, 'd.e': 1}}")
        .logs("{a: 1, d: {e: 1, f: 1}}", "{d: {a: false}, sd: {d: {e: false}}}");
    case("{$rename: {a: 'b'}}").logs("{a: 1}", "{d: {a: false}, i: {b: 1}}");
    case("{$rename: {a: 'b'}}").logs("{b: 2, a: 1}", "{d: {a: false}, u: {b: 1}}");
    // Unchanged values are not logged, nor are fields that only an insert sets.
    case("{$set: {a: 1, b: 2}, $setOnInsert: {c: 1}}").logs("{a: 1, b: 1}", "{u: {b: 2}}");
}

#[test]
fn arrays_are_logged_by_position_or_whole() {
    case("{$set: {'a.1': 5}}").logs("{a: [1, 2]}", "{sa: {a: true, u1: 5}}");
    case("{$set: {'a.3': 5}}").logs("{a: [1]}", "{sa: {a: true, u3: 5}}");
    case("{$unset: {'a.0': 1}}").logs("{a: [1]}", "{sa: {a: true, u0: null}}");
    case("{$set: {'a.0.b': 5}}").logs("{a: [{b: 1}]}", "{sa: {a: true, s0: {u: {b: 5}}}}");
    case("{$set: {'a.$.b': 5}}").at(1).logs("{a: [{}, {b: 1}]}", "{sa: {a: true, s1: {u: {b: 5}}}}");
    case("{$inc: {'a.$[]': 1}}").logs("{a: [1, 2]}", "{sa: {a: true, u0: 2, u1: 3}}");
    case("{$set: {'a.$[e].b': 1}}")
        .filter("{'e.c': 1}")
        .logs("{a: [{}, {c: 1}]}", "{sa: {a: true, s1: {i: {b: 1}}}}");
    case("{$pull: {a: 1}}").logs("{a: [1, 2]}", "{u: {a: [2]}}");
    case("{$pop: {a: 1}}").logs("{a: [1, 2]}", "{u: {a: [1]}}");
    case("{$addToSet: {a: 3}}").logs("{a: [1]}", "{u: {a: [1, 3]}}");
}

#[test]
fn pushing_logs_the_new_elements() {
    case("{$push: {a: 3}}").logs("{a: [1]}", "{sa: {a: true, u1: 3}}");
    case("{$push: {a: {$each: [3, 4], $slice: 9}}}").logs("{a: [1]}", "{sa: {a: true, u1: 3, u2: 4}}");
    case("{$push: {a: {$each: [3], $position: 9}}}").logs("{a: [1]}", "{sa: {a: true, u1: 3}}");
    for clause in ["$position: 0", "$position: 1", "$sort: 1", "$slice: -1"] {
        let update = format!("{{$push: {{a: {{$each: [3], {clause}}}}}}}");
        let after = match clause {
            "$position: 0" => "{u: {a: [3, 1]}}",
            "$slice: -1" => "{u: {a: [3]}}",
            _ => "{u: {a: [1, 3]}}",
        };
        case(&update).logs("{a: [1]}", after);
    }
    case("{$push: {a: 3}}").logs("{a: []}", "{u: {a: [3]}}");
    case("{$push: {a: 3}}").logs("{}", "{i: {a: [3]}}");
    // MongoDB counts this as modified although the bytes are equal.
    case("{$push: {a: {$each: [3], $slice: 1}}}").logs("{a: [1], b: 1}", "{u: {a: [1]}}");
}

#[test]
fn replacements_and_large_changes_log_the_document() {
    case("{a: 1}").logs("{_id: 1, b: 1}", "");
    case("[{$set: {a: 1}}]").logs("{_id: 1, b: 1}", "");
    case("[{$set: {a: 1}}]").logs("{_id: 1, b: 'so long that a diff is shorter'}", "{i: {a: 1}}");
}

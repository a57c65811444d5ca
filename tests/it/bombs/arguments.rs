//! Arguments of operators with a form of their own: one row for each, so a new operator needs a row.

use super::generate::Maker;
use query::expression::Operator;

/// Main operand type of an operator.
pub(super) enum Kind {
    Any,
    Array,
    Date,
    Document,
    Number,
    String,
}

/// Returns the main operand type of an operator by its name.
pub(super) fn kind(name: &str) -> Kind {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    match name {
        "$first" | "$last" | "$in" | "$size" | "$slice" | "$sum" | "$avg" | "$max" | "$min" => Kind::Array,
        "$mergeObjects" | "$objectToArray" | "$bsonSize" => Kind::Document,
        "$arrayElemAt" | "$sortArray" | "$isArray" => Kind::Array,
        "$add" | "$subtract" | "$pow" | "$multiply" | "$divide" | "$mod" => Kind::Number,
        _ if has(&[
            "Array",
            "set",
            "ElementTrue",
            "ElementsTrue",
            "FirstN",
            "firstN",
            "lastN",
            "maxN",
            "minN",
        ]) =>
        {
            Kind::Array
        }
        _ if has(&[
            "concat", "str", "trim", "split", "regex", "replace", "Lower", "Upper", "Bytes", "CP",
        ]) =>
        {
            Kind::String
        }
        _ if has(&["date", "Date", "ts"]) => Kind::Date,
        "$median" | "$percentile" | "$stdDevPop" | "$stdDevSamp" => Kind::Array,
        "$cmp" | "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte" | "$and" | "$or" | "$not" | "$type" => {
            Kind::Any
        }
        "$toString" | "$toHashedIndexKey" | "$isNumber" => Kind::Any,
        _ => Kind::Number,
    }
}

/// Returns the operand at a position.
pub(super) fn positional(maker: &mut Maker, operator: &Operator, at: usize, depth: usize) -> String {
    match (operator.name, at) {
        ("$range", 0) => "0".to_string(),
        ("$range", 2) => "1".to_string(),
        ("$in" | "$indexOfArray", 1) if operator.name == "$in" => maker.array(depth),
        ("$in", 0) => maker.value(depth),
        ("$indexOfArray", 1) => maker.value(depth),
        ("$split", 1) => "'a'".to_string(),
        (
            "$range" | "$slice" | "$substr" | "$substrBytes" | "$substrCP" | "$arrayElemAt" | "$round"
            | "$trunc",
            1..,
        )
        | ("$indexOfArray" | "$indexOfBytes" | "$indexOfCP", 2..) => {
            maker.pick(&["0", "1", "2147483647", "100000", "'$_id'"]).to_string()
        }
        _ => maker.operand(operator, depth),
    }
}

/// Returns an argument by its name.
pub(super) fn named(maker: &mut Maker, operator: &Operator, parameter: &str, depth: usize) -> String {
    let fixed = match parameter {
        "n" => maker.pick(&["1", "1000", "2147483647"]),
        "unit" => maker.pick(&["'millisecond'", "'day'", "'year'"]),
        "amount" => maker.pick(&["1", "1000000", "2147483647"]),
        "method" => "'approximate'",
        "p" => "[0.5, 0.9, 0.99]",
        "binSize" => "3",
        "timezone" => "'Europe/Berlin'",
        "startOfWeek" => "'monday'",
        "iso8601" => "true",
        "date" | "startDate" | "endDate" => "'$d'",
        "dateString" => "'$s'",
        "format" if operator.name == "$convert" => "'base64'",
        "format" => {
            "'%Y-%m-%dT%H:%M:%S.%LZ %j %U %u %V %G aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
        }
        "regex" => maker.pick(&["'a'", "'a*a*a*a*[xyz]'", "'(a|b|ab)*c'", "''"]),
        "options" => maker.pick(&["'i'", "'s'", "''"]),
        "find" => maker.pick(&["'a'", "''", "'$s'"]),
        "chars" => "'$s'",
        "byteOrder" => "'little'",
        "to" => maker.pick(&["'string'", "'binData'", "'objectId'", "'decimal'"]),
        "replacement" => return maker.string(depth),
        _ => return maker.operand(operator, depth),
    };
    fixed.to_string()
}

/// Returns a call of an operator with its own form.
pub(super) fn own(maker: &mut Maker, name: &str, depth: usize) -> String {
    let inner = depth.saturating_sub(1);
    let mut value = || maker.value(inner);
    match name {
        "$cond" => format!("{{$cond: [{{$eq: [{}, 1]}}, {}, {}]}}", value(), value(), value()),
        "$const" | "$literal" => format!("{{{name}: [{}]}}", vec!["[[['$x', 'abcdefgh']]]"; 2000].join(", ")),
        "$dateFromParts" => "{$dateFromParts: {year: 2000, month: 2147483647, day: '$_id'}}".to_string(),
        "$expr" => format!("{{$expr: {}}}", value()),
        "$filter" => format!(
            "{{$filter: {{input: {}, cond: {{$gt: [{}, '$$this']}}}}}}",
            maker.array(depth),
            maker.value(inner)
        ),
        "$function" => "{$function: {body: 'x', args: [], lang: 'js'}}".to_string(),
        "$getField" => format!("{{$getField: {{field: 'a', input: {}}}}}", maker.document(depth)),
        "$ifNull" => format!("{{$ifNull: [{}, {}, {}]}}", value(), value(), value()),
        "$let" => {
            let (vars, mut body) = (value(), "['$$v', '$$v']".to_string());
            for _ in 0..10 {
                body = format!("{{$let: {{vars: {{v: ['$$v', '$$v']}}, in: {body}}}}}");
            }
            format!("{{$let: {{vars: {{v: {vars}}}, in: {body}}}}}")
        }
        "$map" => {
            let mut call = value();
            for _ in 0..1 + maker.below(6) {
                call = format!("{{$map: {{input: {}, in: {call}}}}}", maker.array(inner));
            }
            call
        }
        "$meta" => "{$meta: 'textScore'}".to_string(),
        "$createObjectId" | "$createUUID" | "$currentDate" | "$rand" => format!("{{{name}: {{}}}}"),
        "$reduce" => format!(
            "{{$reduce: {{input: {}, initialValue: {}, in: {}}}}}",
            maker.array(depth),
            maker.value(inner),
            maker.pick(&[
                "['$$value', '$$value']",
                "{a: '$$value', b: '$$this'}",
                "{$concatArrays: [{$ifNull: ['$$value', []]}, ['$$this']]}",
                "{$concat: ['$$value', '$s']}",
                "{$setUnion: ['$$value', ['$$this']]}",
                "{$mergeObjects: ['$$value', {$arrayToObject: [[{k: {$toString: '$$this'}, v: '$s'}]]}]}",
            ])
        ),
        "$setEquals" => format!("{{$setEquals: [{}, {}]}}", maker.array(depth), maker.array(depth)),
        "$setField" => format!(
            "{{$setField: {{field: 'a', input: {}, value: {}}}}}",
            maker.document(depth),
            maker.value(inner)
        ),
        "$unsetField" => format!("{{$unsetField: {{field: 'a', input: {}}}}}", maker.document(depth)),
        "$sigmoid" => format!("{{$sigmoid: {}}}", maker.number(depth)),
        "$sortArray" => format!(
            "{{$sortArray: {{input: {}, sortBy: {}}}}}",
            maker.array(depth),
            maker.pick(&["1", "-1", "{a: 1, b: -1}"])
        ),
        "$switch" => {
            let branches: Vec<String> = (0..50)
                .map(|_| format!("{{case: {{$eq: ['$none', {}]}}, then: 1}}", maker.value(0)))
                .collect();
            format!("{{$switch: {{branches: [{}], default: {}}}}}", branches.join(", "), maker.value(inner))
        }
        "$zip" => format!(
            "{{$zip: {{inputs: [{}, {}, {}], useLongestLength: true, defaults: ['$s', '$s', '$x']}}}}",
            maker.array(depth),
            maker.array(depth),
            maker.array(inner)
        ),
        _ if name.starts_with("$day") || name.starts_with("$iso") => format!("{{{name}: '$d'}}"),
        "$hour" | "$millisecond" | "$minute" | "$month" | "$second" | "$week" | "$year" => {
            format!("{{{name}: {{date: '$d', timezone: {}}}}}", maker.string(inner))
        }
        other => panic!("{other} has a form of its own and no row here"),
    }
}

/// Returns the argument of an accumulator.
pub(super) fn accumulator(maker: &mut Maker, name: &str) -> String {
    let mut value = maker.value(2);
    if matches!(name, "$concatArrays" | "$setUnion") {
        value = maker.array(2);
    }
    match name {
        "$accumulator" => "{}".to_string(),
        "$count" => "{}".to_string(),
        "$top" | "$bottom" => format!("{{sortBy: {{s: 1, x: -1}}, output: {value}}}"),
        "$topN" | "$bottomN" => format!("{{n: 2147483647, sortBy: {{s: 1, x: -1}}, output: {value}}}"),
        "$firstN" | "$lastN" | "$maxN" | "$minN" => format!("{{n: 2147483647, input: {value}}}"),
        "$median" => format!("{{input: {}, method: 'approximate'}}", maker.number(1)),
        "$percentile" => format!("{{input: {}, p: [0.1, 0.5], method: 'approximate'}}", maker.number(1)),
        "$mergeObjects" => maker.document(2),
        _ => value,
    }
}

/// Returns the document of a window function, and the sort of its stage.
pub(super) fn window(maker: &mut Maker, name: &str) -> (String, &'static str) {
    let accumulators: Vec<_> = query::accumulator::accumulators().collect();
    let bounds = maker.pick(&[
        "['unbounded', 'unbounded']",
        "['unbounded', 'current']",
        "[-1000, 1000]",
        "[-2147483647, 2147483647]",
    ]);
    let sort = "sortBy: {_id: 1}, ";
    let function = match name {
        "$covariancePop" | "$covarianceSamp" => {
            format!("{{{name}: ['$_id', '$k'], window: {{documents: {bounds}}}}}")
        }
        "$denseRank" | "$documentNumber" | "$rank" => format!("{{{name}: {{}}}}"),
        "$derivative" | "$integral" => {
            format!("{{{name}: {{input: '$k'}}, window: {{documents: {bounds}}}}}")
        }
        "$expMovingAvg" => "{$expMovingAvg: {input: '$k', N: 2147483647}}".to_string(),
        "$linearFill" => "{$linearFill: '$none'}".to_string(),
        "$locf" => format!("{{$locf: {}}}", maker.value(2)),
        "$minMaxScaler" => format!("{{$minMaxScaler: {{input: '$k'}}, window: {{documents: {bounds}}}}}"),
        "$shift" => format!("{{$shift: {{output: {}, by: -2147483647, default: 'aaaa'}}}}", maker.value(2)),
        _ => {
            assert!(accumulators.contains(&name), "{name} has no row here");
            format!("{{{name}: {}, window: {{documents: {bounds}}}}}", accumulator(maker, name))
        }
    };
    (function, sort)
}

/// Returns a stage; the prefix "FIRST " marks a stage that must come first.
pub(super) fn stage(maker: &mut Maker, name: &str) -> String {
    let value = maker.value(2);
    let argument = match name {
        "$_internalInhibitOptimization" | "$_internalSplitPipeline" => "{}".to_string(),
        "$addFields" | "$set" => format!("{{x: {value}, y: {value}, 'o.p.q': {value}}}"),
        "$bucket" => format!("{{groupBy: '$_id', boundaries: [0, 5, 1e9], default: {{$literal: 'other'}}, output: {{x: {{$push: {value}}}}}}}"),
        "$bucketAuto" => format!("{{groupBy: {value}, buckets: 2147483647, output: {{x: {{$push: {value}}}}}}}"),
        "$changeStream" => return "FIRST {$changeStream: {}}".to_string(),
        "$changeStreamSplitLargeEvent" => "{}".to_string(),
        "$collStats" => return "FIRST {$collStats: {storageStats: {}}}, {$set: {x: {$range: [0, 2147483647]}}}".to_string(),
        "$count" => "'n'".to_string(),
        "$currentOp" => return "FIRST {$currentOp: {}}".to_string(),
        "$densify" => maker
            .pick(&[
                "{field: '_id', range: {step: 1e-9, bounds: 'full'}}",
                "{field: '_id', partitionByFields: ['k', 's'], range: {step: 0.001, bounds: [0, 2000000000]}}",
                "{field: 'd', range: {step: 1, unit: 'millisecond', bounds: 'full'}}",
            ])
            .to_string(),
        "$documents" => return format!("FIRST {{$documents: {}}}", maker.array(2)),
        "$facet" => format!(
            "{{a: [{{$unwind: '$l'}}], b: [{{$set: {{x: {value}}}}}], c: [{{$group: {{_id: null, x: {{$push: '$$ROOT'}}}}}}]}}"
        ),
        "$fill" => format!("{{sortBy: {{_id: 1}}, output: {{none: {{value: {value}}}, x: {{method: 'locf'}}}}}}"),
        "$geoNear" => {
            return "FIRST {$geoNear: {near: {type: 'Point', coordinates: [0, 0]}, distanceField: 'x', key: 'g'}}".to_string();
        }
        "$graphLookup" => format!(
            "{{from: 'c', startWith: {}, connectFromField: '{}', connectToField: '{}', as: 'x'}}",
            maker.pick(&["'$_id'", "'$l'", "{$range: [0, 100000]}"]),
            maker.pick(&["k", "l", "next"]),
            maker.pick(&["_id", "l", "k"])
        ),
        "$group" => format!("{{_id: {value}, x: {{$push: {value}}}, y: {{$addToSet: '$$ROOT'}}}}"),
        "$indexStats" => return "FIRST {$indexStats: {}}, {$set: {x: {$range: [0, 2147483647]}}}".to_string(),
        "$limit" => "9223372036854775807".to_string(),
        "$listLocalSessions" => return "FIRST {$listLocalSessions: {}}".to_string(),
        "$lookup" => maker
            .pick(&[
                "{from: 'c', pipeline: [], as: 'x'}",
                "{from: 'c', localField: 'l', foreignField: 'l', as: 'x'}",
                "{from: 'c', let: {r: '$$ROOT'}, pipeline: [{$set: {x: ['$$r', '$$r']}}], as: 'x'}",
                "{from: 'c', pipeline: [{$lookup: {from: 'c', pipeline: [{$lookup: {from: 'c', pipeline: [], as: 'x'}}], as: 'x'}}], as: 'x'}",
            ])
            .to_string(),
        "$match" => return format!("{{$match: {}}}", filter(maker, "$or")),
        "$merge" => return format!("{{$set: {{x: {value}}}}}, {{$merge: {{into: 'merged'}}}}"),
        "$out" => return format!("{{$set: {{x: {value}}}}}, {{$out: 'out'}}"),
        "$planCacheStats" => return "FIRST {$planCacheStats: {}}".to_string(),
        "$project" => format!("{{x: {value}, y: {value}, z: {{$slice: ['$l', 2147483647]}}}}"),
        "$redact" => format!("{{$cond: [{{$eq: [{value}, 1]}}, '$$PRUNE', '$$DESCEND']}}"),
        "$replaceRoot" => format!("{{newRoot: {}}}", maker.document(2)),
        "$replaceWith" => maker.document(2),
        "$sample" => "{size: 2147483647}".to_string(),
        "$setWindowFields" => format!(
            "{{sortBy: {{_id: 1}}, output: {{x: {{$push: {value}, window: {{documents: [-2147483647, 2147483647]}}}}}}}}"
        ),
        "$skip" => "1".to_string(),
        "$sort" => return format!("{{$set: {{x: {value}}}}}, {{$sort: {{x: 1, s: -1, l: 1}}}}"),
        "$sortByCount" => value,
        "$unionWith" => {
            let mut union = "{coll: 'c', pipeline: []}".to_string();
            for _ in 0..maker.pick(&[1, 5, 60]) {
                union = format!("{{coll: 'c', pipeline: [{{$unionWith: {union}}}]}}");
            }
            union
        }
        "$unset" => format!("[{}]", (0..3000).map(|n| format!("'f{n}.g.h'")).collect::<Vec<_>>().join(", ")),
        "$unwind" => return "{$set: {m: '$l'}}, {$unwind: '$l'}, {$unwind: '$m'}".to_string(),
        // A name that is refused is refused with any argument.
        _ => return format!("FIRST {{{name}: {{}}}}"),
    };
    format!("{{{name}: {argument}}}")
}

/// Returns a filter.
pub(super) fn filter(maker: &mut Maker, name: &str) -> String {
    let many = |count: usize, each: &dyn Fn(usize) -> String| {
        (0..count).map(each).collect::<Vec<String>>().join(", ")
    };
    let numbers = |count| many(count, &|n| n.to_string());
    let nested = |levels: usize, open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
    };
    match name {
        "$and" | "$or" | "$nor" => match maker.below(3) {
            0 => nested(45, &format!("{{{name}: ["), "{x: 1}", ", {l: 1}, {s: /a/}]}"),
            1 => format!("{{{name}: [{}]}}", many(5000, &|n| format!("{{x: {n}, l: {n}}}"))),
            _ => format!("{{{name}: [{}]}}", many(300, &|n| format!("{{s: /a*a*{n}[xyz]/i}}"))),
        },
        "$in" | "$nin" | "$all" => match maker.below(3) {
            0 => format!("{{s: {{{name}: [{}]}}}}", many(3000, &|n| format!("/a{n}.*[xyz]/"))),
            1 => format!("{{l: {{{name}: [{}]}}}}", numbers(50_000)),
            _ => format!("{{l: {{{name}: [{}]}}}}", many(2000, &|n| format!("[[{n}, [{n}]]]"))),
        },
        "$elemMatch" => {
            let inner = nested(40, "{$elemMatch: ", "{$gt: 5}", "}");
            format!("{{deep: {inner}}}")
        }
        "$not" => format!("{{s: {{$not: {{$regex: '{}'}}}}}}", "a?".repeat(200)),
        "$regex" | "$options" => {
            let pattern =
                maker.pick(&["(a+)+$", "a*a*a*a*a*[xyz]", "(((a{1,50}){1,50}){1,20})b", "(?=.*b)a{1,1000}"]);
            format!("{{s: {{$regex: '{pattern}', $options: 'is'}}}}")
        }
        "$expr" => format!("{{$expr: {{$eq: [{}, '$x']}}}}", maker.value(3)),
        "$jsonSchema" => {
            let inner = nested(40, "{properties: {a: ", "{bsonType: 'int'}", "}}");
            let pattern = "{pattern: '(a+)+$', maxLength: 5}";
            format!(
                "{{$jsonSchema: {{anyOf: [{inner}, {{properties: {{s: {pattern}, l: {{uniqueItems: true}}}}}}]}}}}"
            )
        }
        "$_internalSchemaMaxProperties" | "$_internalSchemaMinProperties" => format!("{{{name}: 3}}"),
        "$alwaysFalse" | "$alwaysTrue" => format!("{{{name}: 1}}"),
        "$bitsAllClear" | "$bitsAllSet" | "$bitsAnyClear" | "$bitsAnySet" => {
            format!("{{l: {{{name}: [{}]}}}}", numbers(2000))
        }
        "$comment" => format!("{{$comment: '{}'}}", "a".repeat(100_000)),
        "$geoIntersects" | "$geoWithin" | "$within" => {
            let ring = many(2000, &|n| {
                let angle = n as f64 * std::f64::consts::TAU / 2000.0;
                format!("[{:.6}, {:.6}]", 50.0 * angle.cos(), 50.0 * angle.sin())
            });
            let first = "[50.000000, 0.000000]";
            format!("{{g: {{{name}: {{$geometry: {{type: 'Polygon', coordinates: [[{ring}, {first}]]}}}}}}}}")
        }
        "$near" | "$nearSphere" | "$geoNear" => format!("{{g: {{{name}: [0, 0]}}}}"),
        "$mod" => "{l: {$mod: [7, 2147483647]}}".to_string(),
        "$size" => "{l: {$size: 2147483647}}".to_string(),
        "$type" => "{l: {$type: ['int', 'array', 'object', 'string']}}".to_string(),
        "$exists" => format!("{{'{}': {{$exists: true}}}}", vec!["l"; 190].join(".")),
        "$sampleRate" => "{$sampleRate: 0.5}".to_string(),
        "$text" => format!("{{$text: {{$search: '{}'}}}}", "a b c d ".repeat(5000)),
        "$where" => "{$where: 'x'}".to_string(),
        "$ref" | "$id" | "$db" => format!("{{{name}: 1}}"),
        _ => {
            let deep = nested(maker.pick(&[50, 150]), "[", &numbers(1000), "]");
            format!("{{x: {{{name}: {deep}}}}}")
        }
    }
}

/// Returns an update.
pub(super) fn update(maker: &mut Maker, name: &str) -> String {
    let long = "x".repeat(maker.pick(&[10, 1000, 300_000]));
    let changed = match name {
        "$addToSet" => format!(
            "{{l: {{$each: [{}]}}}}",
            (0..20_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
        ),
        "$push" => match maker.below(3) {
            0 => format!("{{'m.$[].v.$[].w': '{long}'}}"),
            1 => format!(
                "{{l: {{$each: [{}], $sort: -1, $slice: 2147483647}}}}",
                vec!["'$s'"; 20_000].join(", ")
            ),
            _ => format!("{{l: {{$each: [{}], $position: 0}}}}", vec![format!("'{long}'"); 40].join(", ")),
        },
        "$set" | "$setOnInsert" => match maker.below(3) {
            0 => format!("{{'m.$[].v.$[].w': '{long}'}}"),
            1 => format!("{{'{}': '{long}'}}", vec!["a"; 170].join(".")),
            _ => "{'l.1400000': 1, 'm.1499999': 2}".to_string(),
        },
        "$max" | "$min" => format!("{{'m.$[].v.$[]': '{long}'}}"),
        "$inc" | "$mul" => "{'l.$[]': NumberDecimal('9.99E+6000'), 'm.$[].v.$[].w': 1e308}".to_string(),
        "$bit" => "{'l.$[]': {xor: 5}}".to_string(),
        "$currentDate" => "{'m.$[].v.$[].w': true, 'l.$[]': {$type: 'timestamp'}}".to_string(),
        "$pop" => "{'m.$[].v': 1}".to_string(),
        "$pull" => {
            format!("{{l: {{$in: [{}]}}}}", (0..5000).map(|n| n.to_string()).collect::<Vec<_>>().join(", "))
        }
        "$pullAll" => {
            format!("{{l: [{}]}}", (0..20_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", "))
        }
        "$rename" => format!("{{s: '{}'}}", vec!["a"; 170].join(".")),
        "$unset" => "{'m.$[].v.$[].w': 1, 'l.$[]': 1}".to_string(),
        other => panic!("{other} has no row here"),
    };
    let upsert = maker.pick(&["", ", upsert: true"]);
    let one = format!("{{q: {{}}, u: {{{name}: {changed}}}, multi: true{upsert}}}");
    let times = if one.len() > 100_000 { 2 } else { maker.pick(&[1, 20]) };
    format!("{{update: 'c', updates: [{}]}}", vec![one; times].join(", "))
}

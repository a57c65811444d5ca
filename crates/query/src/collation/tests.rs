//! Tests of collations against MongoDB's results, and of keys against comparisons.

use super::*;
use base::bson::extended_json;
use base::key_string;
use proptest::prelude::*;

fn collation(document: &str) -> Collation {
    Collation::parse(extended_json::parse(document).unwrap().view(), "collation").unwrap()
}

fn error(document: &str) -> (i32, String) {
    let error = Collation::parse(extended_json::parse(document).unwrap().view(), "collation").unwrap_err();
    (error.code().number(), error.message().to_string())
}

/// Checks that the strings are in ascending order. `=` in front means equal to the previous string.
fn sorts(document: &str, strings: &[&str]) {
    let collation = collation(document);
    for pair in strings.windows(2) {
        let (equal, a, b) =
            (pair[1].starts_with('='), pair[0].trim_start_matches('='), pair[1].trim_start_matches('='));
        let expected = if equal { Ordering::Equal } else { Ordering::Less };
        assert_eq!(collation.compare(Value::String(a), Value::String(b)), expected, "{document}: {a} {b}");
        assert_eq!(collation.compare(Value::String(b), Value::String(a)), expected.reverse());
        assert_eq!(key(&collation, a).cmp(&key(&collation, b)), expected, "keys of {document}: {a} {b}");
    }
}

fn key(collation: &Collation, text: &str) -> Vec<u8> {
    let mut key = Vec::new();
    collation.append_key(Value::String(text), true, &mut key);
    key
}

#[test]
fn defaults_are_filled_in_as_mongodb_shows_them() {
    let shown = |document: &str| collation(document).document().unwrap().to_string();
    assert_eq!(
        shown("{locale: 'en', strength: 2}"),
        "{ locale: \"en\", caseLevel: false, caseFirst: \"off\", strength: 2, numericOrdering: false, \
         alternate: \"non-ignorable\", maxVariable: \"punct\", normalization: false, backwards: false, \
         version: \"57.1\" }"
    );
    assert!(shown("{locale: 'fr_CA'}").contains("backwards: true"));
    assert!(shown("{locale: 'da'}").contains("caseFirst: \"upper\""));
    assert!(shown("{locale: 'th'}").contains("alternate: \"shifted\""));
    assert!(shown("{locale: 'th'}").contains("normalization: true"));
    assert!(collation("{locale: 'simple'}").is_simple());
}

#[test]
fn bad_documents_are_refused() {
    let invalid = "Field 'locale' is invalid in: { locale: \"xx_invalid\" }";
    assert_eq!(error("{locale: 'xx_invalid'}"), (2, invalid.to_string()));
    assert!(error("{locale: 'en-US'}").1.ends_with(". Did you mean 'en_US'?"));
    assert_eq!(error("{locale: 'dz'}").0, 238);
    assert_eq!(error("{locale: 'de@collation=search'}").0, 238);
    assert_eq!(error("{}"), (40414, "BSON field 'collation.locale' is missing but a required field".into()));
    assert_eq!(error("{bad: 1}"), (40415, "BSON field 'collation.bad' is an unknown field.".into()));
    assert_eq!(error("{locale: 1}").0, 14);
    assert_eq!(error("{locale: ''}").0, 2);
    assert!(collation("{locale: 'simple', strength: 1}").is_simple());
    assert_eq!(error("{locale: 'en', strength: 6}").0, 2);
    assert_eq!(error("{locale: 'en', strength: 'x'}").0, 14);
    assert_eq!(error("{locale: 'en', caseLevel: 1}").0, 14);
    assert_eq!(error("{locale: 'en', caseFirst: 'x'}").0, 2);
    assert_eq!(error("{locale: 'en', alternate: 'x'}").0, 2);
    assert_eq!(error("{locale: 'en', maxVariable: 'x'}").0, 2);
    assert_eq!(error("{locale: 'en', version: '58'}").0, 161);
    assert_eq!(error("{locale: 'en', backwards: true, strength: 1}").0, 2);
    assert_eq!(error("{locale: 'en', caseFirst: 'upper', strength: 2}").0, 2);
}

#[test]
fn every_locale_and_variant_is_there() {
    for locale in locales::all() {
        collation(&format!("{{locale: '{locale}'}}"));
    }
    sorts("{locale: 'de@collation=phonebook', strength: 1}", &["ad", "ä", "=ae", "af"]);
    sorts("{locale: 'es@collation=traditional'}", &["cz", "ch", "d"]);
    sorts("{locale: 'zh@collation=stroke'}", &["一", "二", "三"]);
}

#[test]
fn strengths_and_case() {
    sorts("{locale: 'en', strength: 1}", &["cafe", "=café", "=CAFE", "cafz"]);
    sorts("{locale: 'en', strength: 2}", &["cafe", "=CAFE", "café", "=CAFÉ", "cafz"]);
    sorts("{locale: 'en'}", &["a", "A", "á", "b", "B"]);
    sorts("{locale: 'en', caseFirst: 'upper'}", &["A", "a", "B", "b"]);
    sorts("{locale: 'en', strength: 1, caseLevel: true}", &["a", "=á", "A", "=Á", "b"]);
    sorts("{locale: 'da'}", &["A", "a", "B", "z", "æ", "ø", "å"]);
    sorts("{locale: 'sv'}", &["a", "o", "z", "å", "ä", "ö"]);
    sorts("{locale: 'de'}", &["a", "ä", "o", "ö", "z"]);
    sorts("{locale: 'cs'}", &["c", "h", "ch", "i"]);
}

#[test]
fn numbers_punctuation_and_accents_from_the_end() {
    sorts("{locale: 'en', numericOrdering: true}", &["a2", "a10", "a100b", "b1"]);
    sorts("{locale: 'en'}", &["a10", "a2"]);
    sorts("{locale: 'en', alternate: 'shifted'}", &["ab", "=a-b", "=a b", "ac"]);
    sorts("{locale: 'en', alternate: 'shifted', maxVariable: 'space'}", &["a-b", "ab", "=a b", "ac"]);
    sorts("{locale: 'en', alternate: 'shifted', strength: 4}", &["a b", "a-b", "ab"]);
    let forwards = ["cote", "coté", "côte", "côté"];
    let backwards = ["cote", "côte", "coté", "côté"];
    sorts("{locale: 'fr'}", &forwards);
    sorts("{locale: 'fr_CA'}", &backwards);
    sorts("{locale: 'fr', backwards: true}", &backwards);
    sorts("{locale: 'es', backwards: true}", &backwards);
    sorts("{locale: 'fr_CA', backwards: false}", &forwards);
    sorts("{locale: 'en', strength: 5}", &["\u{e9}", "=e\u{301}", "f"]);
}

#[test]
fn nested_strings_are_compared_alike() {
    let collation = collation("{locale: 'en', strength: 2}");
    let a = extended_json::parse("{v: {a: ['X', {b: 'y'}]}}").unwrap();
    let b = extended_json::parse("{v: {a: ['x', {b: 'Y'}]}}").unwrap();
    let (a, b) = (a.view().get("v").unwrap(), b.view().get("v").unwrap());
    assert!(collation.equal(a, b) && !Collation::SIMPLE.equal(a, b));
    assert!(depends_on_collation(a) && !depends_on_collation(Value::Int32(1)));
    let (mut x, mut y) = (Vec::new(), Vec::new());
    collation.append_key(a, false, &mut x);
    collation.append_key(b, false, &mut y);
    assert_eq!(x, y);
    assert_eq!(collation.compare_optional(None, Some(Value::Null)), Ordering::Less);
}

#[test]
fn collations_are_equal_in_their_normal_form() {
    assert_eq!(collation("{locale: 'en'}"), collation("{strength: 3, locale: 'en', version: '57.1'}"));
    assert_ne!(collation("{locale: 'en'}"), collation("{locale: 'en_US'}"));
    assert_ne!(collation("{locale: 'en'}"), Collation::SIMPLE);
}

const DOCUMENTS: &[&str] = &[
    "{locale: 'en'}",
    "{locale: 'en', strength: 1}",
    "{locale: 'en', strength: 2}",
    "{locale: 'en', strength: 4, alternate: 'shifted'}",
    "{locale: 'en', strength: 5}",
    "{locale: 'en', strength: 1, caseLevel: true}",
    "{locale: 'en', caseFirst: 'upper'}",
    "{locale: 'en', caseFirst: 'lower', strength: 2, caseLevel: true}",
    "{locale: 'en', numericOrdering: true}",
    "{locale: 'fr_CA'}",
    "{locale: 'sv', backwards: true}",
    "{locale: 'ja', strength: 4}",
    "{locale: 'zh'}",
    "{locale: 'ru'}",
    "{locale: 'th'}",
    "{locale: 'ar'}",
    "{locale: 'ko'}",
    "{locale: 'hi'}",
    "{locale: 'vi'}",
    "{locale: 'lt'}",
];

/// Short strings of several scripts, many with late differences or none.
fn text() -> impl Strategy<Value = String> {
    let alphabets = prop_oneof![
        Just("[ -~]{0,6}"),
        Just("[aAbBcChH019 _-]{0,5}"),
        Just("[aáàâäåAÁÅeéêoôößøœçñ\u{301}\u{308}]{0,5}"),
        Just("[абвгдеёжАБВ]{0,5}"),
        Just("[あいうアイウｱかがカガー]{0,5}"),
        Just("[一二三中文国한국어각]{0,4}"),
        Just("[ابتثجكกขคเแ०१क्ख]{0,5}"),
        Just("\\PC{0,5}"),
        Just("[\\x00-\\x20a]{0,5}"),
    ];
    alphabets.prop_flat_map(|pattern| proptest::string::string_regex(pattern).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn keys_order_as_strings_compare(which in 0..DOCUMENTS.len(), a in text(), b in text()) {
        let collation = collation(DOCUMENTS[which]);
        let order = collation.compare(Value::String(&a), Value::String(&b));
        prop_assert_eq!(key(&collation, &a).cmp(&key(&collation, &b)), order, "{:?} {:?}", a, b);
        let (mut x, mut y) = (Vec::new(), Vec::new());
        collation.append_key(Value::String(&a), false, &mut x);
        collation.append_key(Value::String(&b), false, &mut y);
        prop_assert_eq!(x.cmp(&y), order.reverse());
    }

    #[test]
    fn ascii_compares_as_by_the_rules(which in 0..DOCUMENTS.len(), a in text(), b in text()) {
        let collation = collation(DOCUMENTS[which]);
        let collator = collation.collator().unwrap();
        prop_assert_eq!(collator.compare(&a, &b), collator.compare_by_rules(&a, &b), "{:?} {:?}", a, b);
    }

    #[test]
    fn index_keys_order_as_sort_keys(which in 0..DOCUMENTS.len(), a in text(), b in text()) {
        let collation = collation(DOCUMENTS[which]);
        let mut builder = key_string::KeyBuilder::new();
        let mut build = |text: &str| {
            builder.clear();
            collation.push_key(&mut builder, Value::String(text), true);
            builder.key().to_vec()
        };
        prop_assert_eq!(build(&a).cmp(&build(&b)), key(&collation, &a).cmp(&key(&collation, &b)));
    }
}

#[test]
fn plain_locales_take_the_shortcut() {
    let has = |document: &str| collation(document).collator().unwrap().has_ascii_order();
    assert!(has("{locale: 'en'}") && has("{locale: 'fr_CA'}") && has("{locale: 'de', strength: 1}"));
    assert!(!has("{locale: 'cs'}") && !has("{locale: 'en', numericOrdering: true}"));
    assert!(!has("{locale: 'en', alternate: 'shifted'}"));
}

mod used {
    //! Tests that all comparisons of values use the collation.

    use super::collation;
    use crate::expression::Expression;
    use crate::{Arena, Context, Matcher, SortPattern, Update};
    use base::bson::extended_json::parse;

    fn context() -> Context {
        Context::for_tests().with_collation(collation("{locale: 'en', strength: 2}"))
    }

    fn matches(filter: &str, document: &str) -> bool {
        let context = context();
        let matcher = Matcher::parse(parse(filter).unwrap().view(), &context).unwrap();
        // The collation of the context at evaluation has no effect.
        matcher.matches(parse(document).unwrap().view(), &Context::for_tests()).unwrap()
    }

    #[test]
    fn filters() {
        assert!(matches("{a: 'X'}", "{a: 'x'}") && matches("{a: {$ne: 'y'}}", "{a: 'x'}"));
        assert!(matches("{a: {$gt: 'A'}}", "{a: 'b'}") && !matches("{a: {$lt: 'B'}}", "{a: 'b'}"));
        assert!(matches("{a: {$in: ['Q', 'B', 'x', 'X']}}", "{a: 'b'}"));
        assert!(matches("{$or: [{a: 'Q'}, {a: 'B'}]}", "{a: 'b'}"));
        assert!(!matches("{a: {$nin: ['Q', 'B']}}", "{a: ['b']}"));
        assert!(matches("{a: {$all: ['B', 'C']}}", "{a: ['b', 'c']}"));
        assert!(matches("{a: {$elemMatch: {b: 'X'}}}", "{a: [{b: 'x'}]}"));
        assert!(matches("{a: {b: ['X']}}", "{a: {b: ['x']}}"));
        assert!(!matches("{a: /X/}", "{a: 'x'}"));
        assert!(matches("{$expr: {$eq: ['$a', 'X']}}", "{a: 'x'}"));
        assert!(!matches("{$jsonSchema: {properties: {a: {enum: ['X']}}}}", "{a: 'x'}"));
    }

    fn computes(expression: &str, document: &str, expected: &str) {
        let context = context();
        let holder = parse(&format!("{{v: {expression}}}")).unwrap();
        let expression = Expression::parse(holder.view().get("v").unwrap(), &context).unwrap();
        let (document, arena) = (parse(document).unwrap(), Arena::new());
        let value = expression.evaluate(document.view(), &context, &arena).unwrap().unwrap();
        let expected = parse(&format!("{{v: {expected}}}")).unwrap();
        assert_eq!(value.to_string(), expected.view().get("v").unwrap().to_string());
    }

    #[test]
    fn expressions() {
        computes("{$eq: ['$a', 'X']}", "{a: 'x'}", "true");
        computes("{$eq: ['a', 'A']}", "{}", "true");
        computes("{$cmp: ['$a', 'B']}", "{a: 'a'}", "-1");
        computes("{$in: ['$a', ['X']]}", "{a: 'x'}", "true");
        computes("{$indexOfArray: [['q', 'X'], '$a']}", "{a: 'x'}", "1");
        computes("{$indexOfCP: ['X', '$a']}", "{a: 'x'}", "-1");
        computes("{$setUnion: [['a', 'B'], '$a']}", "{a: ['A', 'b']}", "['a', 'B']");
        computes("{$setDifference: ['$a', ['B']]}", "{a: ['A', 'b']}", "['A']");
        computes("{$setEquals: [['a', 'B'], '$a']}", "{a: ['A', 'b']}", "true");
        computes("{$min: '$a'}", "{a: ['b', 'A', 'B']}", "'A'");
        computes("{$maxN: {n: 1, input: '$a'}}", "{a: ['b', 'C', 'c']}", "['C']");
        computes("{$sortArray: {input: '$a', sortBy: 1}}", "{a: ['b', 'C', 'A']}", "['A', 'b', 'C']");
        computes(
            "{$sortArray: {input: '$a', sortBy: {x: 1}}}",
            "{a: [{x: 'b'}, {x: 'C'}, {x: 'A'}]}",
            "[{x: 'A'}, {x: 'b'}, {x: 'C'}]",
        );
    }

    fn updates(update: &str, document: &str, expected: &str) {
        let context = context();
        let update = parse(update).unwrap();
        let update = Update::parse(base::bson::Value::Document(update.view()), &[], &context).unwrap();
        let before = parse(document).unwrap();
        let after = update.apply(before.view(), None, false, &context).unwrap();
        let after = after.unwrap_or(before);
        assert_eq!(after.view().to_string(), parse(expected).unwrap().view().to_string());
    }

    #[test]
    fn updates_and_sorts() {
        updates("{$pull: {a: 'X'}}", "{a: ['x', 'y']}", "{a: ['y']}");
        updates("{$pull: {a: {$in: ['X']}}}", "{a: ['x', 'y']}", "{a: ['y']}");
        updates("{$pullAll: {a: ['X', 'Y']}}", "{a: ['x', 'y']}", "{a: []}");
        updates("{$addToSet: {a: {$each: ['X', 'b', 'B']}}}", "{a: ['x']}", "{a: ['x', 'b']}");
        updates("{$min: {a: 'B'}}", "{a: 'a'}", "{a: 'a'}");
        updates("{$max: {a: 'B'}}", "{a: 'b'}", "{a: 'b'}");
        updates("{$push: {a: {$each: ['B'], $sort: 1}}}", "{a: ['c', 'a']}", "{a: ['a', 'B', 'c']}");
        let key = |document: &str| {
            let pattern = SortPattern::parse(parse("{a: 1}").unwrap().view()).unwrap();
            let mut key = Vec::new();
            pattern.collated(&context().collation).key(parse(document).unwrap().view(), &mut key).unwrap();
            key
        };
        assert!(key("{a: 'a'}") == key("{a: 'A'}") && key("{a: 'A'}") < key("{a: 'b'}"));
    }
}

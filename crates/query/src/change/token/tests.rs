//! Tests of tokens of a real MongoDB, their order, and invalid tokens.

use super::*;
use base::bson::extended_json;
use proptest::prelude::*;

fn parse(hex: &str) -> Result<ResumeToken> {
    let mut out = Builder::new();
    out.append(c"_data", hex);
    ResumeToken::parse(out.finish().view())
}

fn identifier(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap()
}

const UUID: [u8; 16] =
    [0xFE, 0xA7, 0xA1, 0xFF, 0xE2, 0x3C, 0x4F, 0xD8, 0x80, 0x70, 0xBF, 0xA4, 0x3C, 0x9C, 0x99, 0x5C];

/// From issue trackers of MongoDB 7 and 8.
const INSERT: &str = "82687E82DE000000012B042C0100296E5A1004FEA7A1FFE23C4FD88070BFA43C9C995C463C6F7065726174\
    696F6E54797065003C696E736572740046646F63756D656E744B65790046645F69640064687E82DC122A414A3ECD77F8000004";

#[test]
fn tokens_equal_mongodbs() {
    let identifier =
        identifier("{operationType: 'insert', documentKey: {_id: ObjectId('687e82dc122a414a3ecd77f8')}}");
    let time = 0x687E_82DE_0000_0001;
    let event = EventToken { time, index: 0, uuid: Some(&UUID), identifier: identifier.view() };
    let token = ResumeToken::of(event);
    assert_eq!(token.hex(), INSERT);
    assert_eq!(parse(INSERT).unwrap(), token);
    assert_eq!(parse(&INSERT.to_lowercase()).unwrap(), token);
    let parts = token.parts().unwrap();
    assert_eq!((parts.time, parts.uuid, parts.is_event), (time, Some(UUID), true));
    assert_eq!(ResumeToken::before(0x64BE_B9F3_0000_0001).hex(), "8264BEB9F3000000012B0429296E1404");
    assert!(!parse("8264BEB9F3000000012B0229296E04").unwrap().parts().unwrap().is_event, "version 1");
}

#[test]
fn invalidations_and_fragments_follow_their_event() {
    let event = parse(INSERT).unwrap();
    let invalidation = event.invalidation();
    assert!(invalidation.parts().unwrap().from_invalidate && invalidation > event);
    let fragments: Vec<_> = [0, 1, 127, 128, 300].map(|number| event.fragment(number)).into();
    assert!(fragments.is_sorted() && fragments[0] > event && fragments[4] < invalidation);
    for (fragment, number) in fragments.iter().zip([0, 1, 127, 128, 300]) {
        assert_eq!(parse(&fragment.hex()).unwrap().parts().unwrap().fragment, Some(number));
        assert!(fragment.is_fragment_of(&event) && !event.is_fragment_of(fragment));
        assert!(!fragment.is_fragment_of(&invalidation));
    }
    assert!(ResumeToken::before(event.parts().unwrap().time) < event);
}

#[test]
fn invalid_tokens_are_refused() {
    let refused = |token: &str, code: i32| {
        let error = ResumeToken::parse(extended_json::parse(token).unwrap().view()).unwrap_err();
        assert_eq!(error.code().number(), code, "{token}: {error}");
    };
    refused("{}", 40647);
    refused("{_data: 1}", 40647);
    refused("{_data: '82', _typeBits: 1}", 40648);
    let refused = |hex: &str, code: i32| assert_eq!(parse(hex).unwrap_err().code().number(), code, "{hex}");
    refused("", 40649);
    refused("xyz0", 9);
    refused("8", 9);
    refused("FF", 50811);
    refused("82", 50811);
    let time = "820000000100000001";
    refused(time, 50796);
    refused(&format!("{time}6E"), 50854);
    refused(&format!("{time}2B0604"), 50795);
    refused(&format!("{time}2B0404"), 51055);
    refused(&format!("{time}2B046E04"), 51056);
    refused(&format!("{time}2B042B0204"), 51057);
    refused(&format!("{time}2B042904"), 50793);
    refused(&format!("{time}2B04296E04"), 50855);
    refused(&format!("{time}2B042927FD04"), 50794);
    refused(&format!("{time}2B04292904"), 50872);
    refused(&format!("{time}2B0429292904"), 50870);
    refused(&format!("{time}2B0429296E04"), 6189500);
    refused(&format!("{time}2B0429296E2904"), 207);
    refused(&format!("{time}2B0429296E14460004"), 6189504);
    refused(&format!("{time}2B042C0100296E1404"), 6189501);
    refused(&format!("{time}2B042C0100296E142904"), 6189503);
    refused(&format!("{time}2B042C0100296E1446"), 50811);
    refused(&format!("{time}2B042C0100296E1446006E04"), 7182501);
    refused(&format!("{time}2B042C0100296E144600292904"), 40646);
    let deep = "461E00".repeat(5000);
    refused(&format!("{time}2B042C0100296E14{deep}"), 50811);
}

fn id() -> impl Strategy<Value = DocumentBuf> {
    let texts = [
        "1",
        "-1",
        "0",
        "127",
        "128",
        "-129",
        "NumberLong('9223372036854775807')",
        "1.5",
        "-0.25",
        "1e300",
        "NumberLong('-9223372036854775808')",
        "Infinity",
        "-Infinity",
        "NaN",
        "NumberDecimal('1.1')",
        "NumberDecimal('-0.1')",
        "''",
        "'a'",
        "'a\\u0000b'",
        "null",
        "true",
        "{}",
        "{a: 1, b: [1, {c: 2}]}",
        "ISODate('2020-01-01T00:00:00Z')",
        "UUID('00112233-4455-6677-8899-aabbccddeeff')",
        "MinKey",
        "MaxKey",
        "Timestamp(1, 2)",
        "{x: /a/i}",
    ];
    prop::sample::select(texts.to_vec()).prop_map(|text| identifier(&format!("{{_id: {text}}}")))
}

proptest! {
    #[test]
    fn tokens_with_any_id_are_read(
        id in id(), other in id(), time in any::<u64>(), index in 0usize..100_000, later in 1usize..9,
    ) {
        let token = |identifier: &DocumentBuf, index| {
            let event = EventToken { time, index, uuid: Some(&UUID), identifier: identifier.view() };
            ResumeToken::of(event)
        };
        let first = token(&id, index);
        let parts = parse(&first.hex()).unwrap().parts().unwrap();
        prop_assert_eq!((parts.time, parts.uuid, parts.fragment), (time, Some(UUID), None));
        prop_assert_eq!(parse(&first.fragment(7).hex()).unwrap().parts().unwrap().fragment, Some(7));
        prop_assert!(first < token(&other, index + later));
        prop_assert_eq!(id == other, first == token(&other, index));
        prop_assert!(ResumeToken::before(time) < first && first < ResumeToken::before(time.saturating_add(1)) || time == u64::MAX);
        let order = base::bson::compare_documents(id.view(), other.view());
        if order.is_ne() {
            prop_assert_eq!(order, first.cmp(&token(&other, index)), "{:?} {:?}", id, other);
        }
    }
}

//! Updates as clients write them, and a property against a naive model.

use super::*;
use base::bson::Builder;

fn document(build: impl Fn(&mut Builder)) -> DocumentBuf {
    let mut builder = Builder::new();
    build(&mut builder);
    builder.finish()
}

#[test]
fn fields_are_set_created_and_removed_in_one_walk() {
    let context = Context::for_tests();
    let before = document(|b| {
        b.append("_id", 1i32).append("a", 1i32);
        b.begin_document("d").append("x", 1i32).end();
    });
    let update = document(|b| {
        b.begin_document("$set").append("z.y", 1i32).append("d.x", 2i32).append("b", 7i32).end();
        b.begin_document("$unset").append("a", "").end();
        b.begin_document("$push").append("p", 3i32).end();
    });
    let update = Update::parse(Value::Document(update.view()), &[], &context).unwrap();
    let after = update.apply(before.view(), None, false, &context).unwrap().unwrap();
    assert_eq!(after.to_string(), "{ _id: 1, d: { x: 2 }, b: 7, p: [ 3 ], z: { y: 1 } }");
    validate_again(&update, after.view(), &context);
}

fn validate_again(update: &Update, document: Document<'_>, context: &Context) {
    base::bson::validate(document.bytes()).unwrap();
    let again = update.apply(document, None, false, context).unwrap().unwrap();
    base::bson::validate(again.bytes()).unwrap();
}

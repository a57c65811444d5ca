//! Conversions between types: `$convert`, its shorthands `$toInt` and the like, `$type`.

mod text;

pub(super) use text::to_text;

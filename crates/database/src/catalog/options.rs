//! Parsing and checks of the create command's options.
//!
//! A new option is a field of `CreateFields`. `CreateFields::field` checks its type, and
//! `CreateFields::finish` checks its combination with other options. Options that other commands
//! share have a function of their own (`images`).

use crate::catalog::collection::{Capped, Options, View, checked_age, parse_clustered};
use crate::index::IndexSpec;
use crate::option_field::{
    CAPPED_SIZE_MAX, capped_max, capped_size, check_storage_engine, count, flag, object, text, wrong_type,
};
use crate::validator::{Validator, unknown_level};
use base::bson::{Builder, Document, FieldName, Value, ValueBuf};
use base::{CompatibleWith, Error, Namespace, Result, bail, check_bounds, err};
use query::{Collation, Context};
use std::sync::Arc;

/// Options with a single type, for which null means absent.
const OPTIONS: [&str; 19] = [
    "autoIndexId",
    "capped",
    "changeStreamPreAndPostImages",
    "collation",
    "encryptedFields",
    "expireAfterSeconds",
    "idIndex",
    "indexOptionDefaults",
    "max",
    "pipeline",
    "prepareConstraintValidationLevel",
    "size",
    "storageEngine",
    "temp",
    "timeseries",
    "validationAction",
    "validationLevel",
    "validator",
    "viewOn",
];

/// Parses the options of create, and the options of a catalog entry.
///
/// Errors: InvalidOptions, TypeMismatch, BadValue, NotImplemented for unsupported options, 40415
/// for an unknown field.
pub(crate) fn parse(options: Document<'_>, namespace: &Namespace, context: &Context) -> Result<Options> {
    let mut fields = CreateFields::default();
    for element in options {
        fields.field(element.name(), element.value())?;
    }
    fields.finish(namespace, context)
}

/// Returns the options of a capped collection of this size in bytes.
///
/// Errors: as [`parse`].
pub(crate) fn capped_of_size(size: i64, namespace: &Namespace, context: &Context) -> Result<Options> {
    let mut options = Builder::new();
    options.append(c"capped", true).append(c"size", size);
    parse(options.finish().view(), namespace, context)
}

/// Checks options of a new collection that stored ones need not follow: options of a storage engine, which earlier
/// versions did not check, and options of newer versions.
///
/// Errors: as [`check_capped`]; InvalidOptions, BadValue and FailedToParse as in MongoDB;
/// 40415 for an unknown field.
pub(crate) fn check_new(options: Document<'_>, context: &Context) -> Result<()> {
    if context.compatible_with < CompatibleWith::V9_0 {
        if options.get("validationLevel").is_some_and(|level| level.as_str() == Some("constraint")) {
            return Err(unknown_level("constraint"));
        }
        if options.get("prepareConstraintValidationLevel").is_some() {
            return Err(unknown_option("prepareConstraintValidationLevel"));
        }
    }
    let number = |name| Some(options.get(name)?.as_number()?.to_i64_coerced());
    check_capped(["size", "max"], number("size"), number("max"))?;
    let defaults = options.get("indexOptionDefaults").and_then(|defaults| defaults.as_document());
    let engines = [Some(options), defaults].into_iter().flatten().filter_map(|all| all.get("storageEngine"));
    engines.filter_map(|engines| engines.as_document()).try_for_each(check_storage_engine)
}

/// Checks the limits of a capped collection that a command gives: a size in bytes and a number of documents.
///
/// Errors: BadValue, with the names of the fields.
pub fn check_capped(names: [&str; 2], size: Option<i64>, max: Option<i64>) -> Result<()> {
    size.map(|size| check_bounds(names[0], size, 1..=CAPPED_SIZE_MAX)).transpose()?;
    match max {
        Some(max) if max > i64::from(i32::MAX) => Err(err!(
            BadValue,
            "BSON field '{}' value must be < {}, actual value '{max}'",
            names[1],
            1u32 << 31
        )),
        _ => Ok(()),
    }
}

fn unknown_option(name: &str) -> Error {
    Error::unknown_field(format_args!("create.{name}"))
}

/// The fields of a create command.
#[derive(Default)]
struct CreateFields<'a> {
    /// True if the option is given, also as `false`.
    has_clustered: bool,
    clustered: Option<String>,
    expire_after_seconds: Option<i64>,
    id_index: Option<Document<'a>>,
    no_id_index: bool,
    pre_images: Option<bool>,
    capped: bool,
    size: Option<i64>,
    max: Option<i64>,
    validator: Option<Document<'a>>,
    level: Option<&'a str>,
    action: Option<&'a str>,
    prepares: bool,
    view_on: Option<&'a str>,
    pipeline: Option<ValueBuf>,
    collation: Collation,
    id_collation: Option<Collation>,
    without_effect: Builder,
}

impl<'a> CreateFields<'a> {
    fn field(&mut self, name: &str, value: Value<'a>) -> Result<()> {
        match name {
            // As in all commands, null means absent, except for options with several types.
            _ if value.is_nullish() && OPTIONS.contains(&name) => {}
            "clusteredIndex" => {
                self.has_clustered = true;
                self.clustered = parse_clustered(value)?;
            }
            "expireAfterSeconds" => {
                self.expire_after_seconds = Some(checked_age(count(name, value)?)?);
            }
            "capped" => self.capped = flag(name, value)?,
            "size" => self.size = Some(capped_size(count(name, value)?)?),
            "max" => self.max = Some(capped_max(count(name, value)?)?),
            "validator" => self.validator = Some(object(name, value)?),
            "validationLevel" => self.level = Some(text(name, value)?),
            "validationAction" => self.action = Some(text(name, value)?),
            "prepareConstraintValidationLevel" => self.prepares = flag(name, value)?,
            "viewOn" => self.view_on = Some(text(name, value)?),
            "pipeline" => {
                let pipeline = value.as_array().ok_or_else(|| wrong_type(name, value, "array"))?;
                // Null is no stage.
                let mut stages = Builder::new();
                stages.begin_array(c"pipeline");
                pipeline.iter().filter(|stage| !stage.is_nullish()).for_each(|stage| _ = stages.push(stage));
                stages.end();
                self.pipeline = stages.finish().view().get(name).map(|stages| stages.to_owned());
            }
            "storageEngine" => {
                let document = object(name, value)?;
                self.keep(name, document)?;
            }
            "indexOptionDefaults" => {
                let defaults = object(name, value)?;
                if let Some(unknown) = defaults.iter().find(|option| option.name() != "storageEngine") {
                    let option = unknown.name();
                    return Err(Error::unknown_field(format_args!("create.{name}.{option}")));
                }
                self.keep(name, defaults)?;
            }
            "collation" => self.collation = Collation::parse(object(name, value)?, "create.collation")?,
            "idIndex" => {
                let id = object(name, value)?;
                self.id_index = Some(id);
                if let Some(collation) = id.get("collation").and_then(|value| value.as_document()) {
                    self.id_collation = Some(Collation::parse(collation, "create.idIndex.collation")?);
                }
            }
            // Sent by old clients.
            "autoIndexId" if value.is_truthy() => _ = self.without_effect.append(FieldName::new(name)?, true),
            "autoIndexId" => {
                self.no_id_index = true;
                self.without_effect.append(FieldName::new(name)?, false);
            }
            "temp" | "flags" if !value.is_truthy() => {}
            "changeStreamPreAndPostImages" => self.pre_images = Some(images(object(name, value)?, "create")?),
            "timeseries" | "encryptedFields" | "temp" | "flags" => {
                bail!(NotImplemented, "create option '{name}' is not supported");
            }
            _ => return Err(unknown_option(name)),
        }
        Ok(())
    }

    /// Stores an option that only listCollections uses; an empty one means absent.
    fn keep(&mut self, name: &str, option: Document<'_>) -> Result<()> {
        if !option.is_empty() {
            self.without_effect.append(FieldName::new(name)?, option);
        }
        Ok(())
    }

    fn finish(self, namespace: &Namespace, context: &Context) -> Result<Options> {
        self.check_clustered()?;
        if self.no_id_index && namespace.database() != "local" {
            bail!(
                50001,
                "autoIndexId:false is not allowed for collection {namespace} because it can be replicated"
            );
        }
        if self.no_id_index && self.has_clustered {
            bail!(6026501, "The 'clusteredIndex' option does not support {{autoIndexId: false}}");
        }
        let capped = self.capped()?;
        if self.pre_images == Some(true) {
            check_images(namespace, self.view_on.is_some())?;
        }
        if let Some(id) = self.id_index {
            if self.view_on.is_some() {
                bail!(InvalidOptions, "'idIndex' is not allowed with 'viewOn'");
            }
            let spec = IndexSpec::parse(id, namespace, context)?;
            if !spec.is_id_pattern() {
                bail!(BadValue, "The field 'key' for an _id index must be {{_id: 1}}, but got {}", spec.key);
            }
        }
        if let Some(id) = &self.id_collation {
            check_id_collation(id, &self.collation)?;
        }
        let view = match (self.view_on, self.pipeline) {
            (Some(on), pipeline) => {
                let pipeline = pipeline.unwrap_or_else(|| Value::Array(base::bson::Array::EMPTY).to_owned());
                Some(View { on: on.to_string(), pipeline })
            }
            (None, Some(_)) => {
                bail!(InvalidOptions, "'pipeline' requires 'viewOn' to also be specified");
            }
            (None, None) => None,
        };
        // MongoDB checks these options of a view too, and creates the view without them.
        let capped = capped.filter(|_| view.is_none());
        let has_validator =
            self.validator.is_some() || self.level.is_some() || self.action.is_some() || self.prepares;
        let validator = match has_validator {
            true => {
                let filter = self.validator.unwrap_or(Document::EMPTY);
                if !filter.is_empty() && namespace.is_internal() {
                    bail!(
                        InvalidOptions,
                        "Document validators are not allowed on {namespace}, a collection of the server's own"
                    );
                }
                // Validation uses the collection's collation, independent of the writing command.
                let context = context.with_collation(self.collation.clone());
                let validator =
                    Validator::parse(filter, self.level, self.action, &context)?.preparing(self.prepares);
                view.is_none().then(|| Arc::new(validator))
            }
            false => None,
        };
        Ok(Options {
            capped,
            clustered: self.clustered,
            expire_after_seconds: self.expire_after_seconds,
            no_id_index: self.no_id_index,
            validator,
            view,
            collation: self.collation,
            pre_images: self.pre_images.unwrap_or(false),
            without_effect: self.without_effect.finish(),
        })
    }

    /// Checks the combinations of options with `clusteredIndex`.
    fn check_clustered(&self) -> Result<()> {
        if !self.has_clustered {
            return match self.expire_after_seconds {
                None => Ok(()),
                Some(_) => Err(err!(
                    InvalidOptions,
                    "'expireAfterSeconds' is only supported on time-series collections or when the \
                     'clusteredIndex' option is specified"
                )),
            };
        }
        Err(match self {
            _ if self.view_on.is_some() => {
                err!(6026500, "The 'clusteredIndex' option is not supported with views")
            }
            _ if self.id_index.is_some() => {
                err!(InvalidOptions, "The 'clusteredIndex' option is not supported with the 'idIndex' option")
            }
            _ if self.size.is_some() => {
                err!(
                    6049200,
                    "'size' field for capped collections is not allowed on clustered collections. Did you mean \
                     'capped: true' with 'expireAfterSeconds'?"
                )
            }
            _ if self.max.is_some() => {
                err!(
                    6049204,
                    "'max' field for capped collections is not allowed on clustered collections. Did you mean \
                     'capped: true' with 'expireAfterSeconds'?"
                )
            }
            _ if self.capped => {
                err!(
                    6127800,
                    "Clustered capped collection only available with 'enableTestCommands' server parameter"
                )
            }
            _ if self.clustered.is_none() && self.expire_after_seconds.is_some() => {
                err!(InvalidOptions, "'expireAfterSeconds' requires clustering to be enabled")
            }
            _ => return Ok(()),
        })
    }

    fn capped(&self) -> Result<Option<Capped>> {
        match (self.capped, self.size) {
            (false, None) if self.max.is_none() => Ok(None),
            (false, _) => Err(err!(
                InvalidOptions,
                "the 'capped' field needs to be true when either the 'size' or 'max' fields are present"
            )),
            (true, None) => Err(err!(InvalidOptions, "the 'size' field is required when 'capped' is true")),
            (true, Some(size)) => Ok(Some(Capped { size, max: self.max.unwrap_or(0) })),
        }
    }
}

/// Parses `changeStreamPreAndPostImages`. Returns true if images are kept.
///
/// Errors: 40414 without `enabled`, 40415 for unknown fields, TypeMismatch.
pub(crate) fn images(option: Document<'_>, command: &str) -> Result<bool> {
    const OPTION: &str = "changeStreamPreAndPostImages";
    let mut enabled = None;
    for field in option {
        match (field.name(), field.value()) {
            ("enabled", Value::Boolean(flag)) => enabled = Some(flag),
            ("enabled", value) if value.is_nullish() => {}
            ("enabled", value) => {
                return Err(Error::wrong_type(
                    format_args!("{command}.{OPTION}.enabled"),
                    value.kind(),
                    "bool",
                ));
            }
            (other, _) => {
                return Err(Error::unknown_field(format_args!("{command}.{OPTION}.{other}")));
            }
        }
    }
    enabled.ok_or_else(|| Error::missing_field(format_args!("{command}.{OPTION}.enabled")))
}

/// Checks that a collection can keep pre-images.
///
/// Errors: InvalidOptions for views and in internal databases.
pub(crate) fn check_images(namespace: &Namespace, is_view: bool) -> Result<()> {
    if is_view {
        bail!(InvalidOptions, "option not supported on a view: changeStreamPreAndPostImages");
    }
    match namespace.database() {
        "admin" | "config" | "local" => Err(err!(
            InvalidOptions,
            "Change stream pre- and post-images are not supported on collections in '{}' database",
            namespace.database()
        )),
        _ => Ok(()),
    }
}

/// Checks that the `_id` index has its collection's collation.
pub(crate) fn check_id_collation(index: &Collation, collection: &Collation) -> Result<()> {
    if index == collection {
        return Ok(());
    }
    Err(err!(
        BadValue,
        "The _id index must have the same collation as the collection. Index collation: {}, collection \
         collation: {}",
        index.describe(),
        collection.describe()
    ))
}

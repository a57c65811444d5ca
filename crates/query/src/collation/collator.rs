//! String comparison of one language, and its sort keys.
//!
//! The rules are ICU4X's compiled rules, with one bit set by the collation document. `backwards` is an option of
//! MongoDB's collations. ICU4X takes it only from the locale's data (Canadian French has it). The data are therefore
//! passed to ICU4X with this bit changed.

use super::ascii::AsciiOrder;
use super::locales;
use super::parse::{self, VERSION};
use base::bson::{Builder, Document, DocumentBuf};
use base::{Result, err};
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::provider::*;
use icu_collator::{Collator as IcuCollator, CollatorPreferences};
use icu_locale_core::Locale;
use icu_normalizer::provider::{NormalizerNfdDataV1, NormalizerNfdTablesV1};
use icu_provider::{DataError, DataPayload, DataProvider, DataRequest, DataResponse};
use std::cmp::Ordering;
use std::fmt;

/// Names of an option's values.
pub(super) trait Named: Sized + 'static {
    /// All values with their names.
    const ALL: &'static [(&'static str, Self)];
}

impl Named for CollationCaseFirst {
    const ALL: &'static [(&'static str, Self)] = &[
        ("off", CollationCaseFirst::False),
        ("lower", CollationCaseFirst::Lower),
        ("upper", CollationCaseFirst::Upper),
    ];
}

impl Named for AlternateHandling {
    const ALL: &'static [(&'static str, Self)] =
        &[("non-ignorable", AlternateHandling::NonIgnorable), ("shifted", AlternateHandling::Shifted)];
}

impl Named for MaxVariable {
    const ALL: &'static [(&'static str, Self)] =
        &[("punct", MaxVariable::Punctuation), ("space", MaxVariable::Space)];
}

fn name_of<T: Named + PartialEq>(value: T) -> &'static str {
    T::ALL.iter().find(|(_, other)| *other == value).map_or("", |(name, _)| name)
}

/// The options of a collation document. The locale determines absent options.
#[derive(Default)]
pub(super) struct Requested {
    pub(super) case_level: Option<bool>,
    pub(super) case_first: Option<CollationCaseFirst>,
    /// From 1, primary, to 5, identical.
    pub(super) strength: Option<u8>,
    pub(super) numeric_ordering: Option<bool>,
    pub(super) alternate: Option<AlternateHandling>,
    pub(super) max_variable: Option<MaxVariable>,
    pub(super) normalization: Option<bool>,
    pub(super) backwards: Option<bool>,
}

/// Compares strings by a language's rules, with the requested strength and options.
pub struct Collator {
    icu: IcuCollator,
    /// All options, normalised; the identity of the collation.
    document: DocumentBuf,
    /// The order of ASCII strings, if only their characters decide.
    ascii: Option<AsciiOrder>,
}

impl Collator {
    /// Builds a collator for a locale, given by MongoDB's name and by its BCP 47 tag.
    pub(super) fn new(locale: &str, tag: &str, requested: &Requested) -> Result<Collator> {
        let backwards = requested.backwards.unwrap_or(locale == "fr_CA");
        let unavailable = || err!(NotImplemented, "collation locale '{locale}' is not supported");
        let parsed: Locale = tag.parse().map_err(|_| unavailable())?;
        let mut preferences = CollatorPreferences::from(&parsed);
        preferences.case_first = requested.case_first;
        preferences.numeric_ordering = requested.numeric_ordering.map(|numeric| match numeric {
            true => CollationNumericOrdering::True,
            false => CollationNumericOrdering::False,
        });
        let mut options = CollatorOptions::default();
        options.strength = requested.strength.map(strength);
        options.alternate_handling = requested.alternate;
        options.max_variable = requested.max_variable;
        options.case_level = requested.case_level.map(|on| if on { CaseLevel::On } else { CaseLevel::Off });
        let icu = IcuCollator::try_new_unstable(&Rules { backwards }, preferences, options)
            .map_err(|_| unavailable())?;
        let normalization = requested.normalization.unwrap_or(locales::normalizes(locale));
        let mut collator =
            Collator { document: normalised(locale, &icu, normalization, backwards), icu, ascii: None };
        collator.check(backwards)?;
        collator.ascii = AsciiOrder::of(locale, &collator.icu.as_borrowed());
        Ok(collator)
    }

    fn check(&self, backwards: bool) -> Result<()> {
        let options = self.icu.as_borrowed().resolved_options();
        let has_case =
            options.case_first != CollationCaseFirst::False && options.case_level == CaseLevel::Off;
        parse::check(self, backwards, number(options.strength), has_case)
    }

    /// All options, including defaults.
    pub fn document(&self) -> Document<'_> {
        self.document.view()
    }

    /// Compares two strings.
    #[inline]
    pub fn compare(&self, a: &str, b: &str) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        if let Some(order) = self.ascii.as_ref().and_then(|ascii| ascii.compare(a.as_bytes(), b.as_bytes())) {
            return order;
        }
        self.icu.as_borrowed().compare(a, b)
    }

    /// Appends the collation key of a text: bytes that compare as the strings do. Equal strings have equal keys. Keys
    /// contain no zero byte and are valid for one version of the rules.
    pub fn append_key(&self, text: &str, key: &mut Vec<u8>) {
        let Ok(()) = self.icu.as_borrowed().write_sort_key_to(text, key);
    }

    /// Compares two strings by the rules alone, to test the shortcut for ASCII.
    #[cfg(test)]
    pub(super) fn compare_by_rules(&self, a: &str, b: &str) -> Ordering {
        self.icu.as_borrowed().compare(a, b)
    }

    /// Whether ASCII strings use the shortcut.
    #[cfg(test)]
    pub(super) fn has_ascii_order(&self) -> bool {
        self.ascii.is_some()
    }
}

impl PartialEq for Collator {
    fn eq(&self, other: &Collator) -> bool {
        self.document == other.document
    }
}

impl Eq for Collator {}

impl fmt::Debug for Collator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collator({})", self.document())
    }
}

/// Returns the collation document with all defaults.
fn normalised(locale: &str, icu: &IcuCollator, normalization: bool, backwards: bool) -> DocumentBuf {
    let options = icu.as_borrowed().resolved_options();
    let mut out = Builder::new();
    out.append(c"locale", locale);
    out.append(c"caseLevel", options.case_level == CaseLevel::On);
    out.append(c"caseFirst", name_of(options.case_first));
    out.append(c"strength", i32::from(number(options.strength)));
    out.append(c"numericOrdering", options.numeric == CollationNumericOrdering::True);
    out.append(c"alternate", name_of(options.alternate_handling));
    out.append(c"maxVariable", name_of(options.max_variable));
    out.append(c"normalization", normalization);
    out.append(c"backwards", backwards);
    out.append(c"version", VERSION);
    out.finish()
}

fn strength(number: u8) -> Strength {
    match number {
        1 => Strength::Primary,
        2 => Strength::Secondary,
        4 => Strength::Quaternary,
        5 => Strength::Identical,
        _ => Strength::Tertiary,
    }
}

fn number(strength: Strength) -> u8 {
    match strength {
        Strength::Primary => 1,
        Strength::Secondary => 2,
        Strength::Quaternary => 4,
        Strength::Identical => 5,
        _ => 3,
    }
}

/// The bit of [`CollationMetadata`] for comparing the secondary level backwards.
const BACKWARDS: u32 = 1 << 7;

/// The compiled rules.
pub(super) struct Rules {
    /// Whether accents compare from the end of the string.
    pub(super) backwards: bool,
}

impl DataProvider<CollationMetadataV1> for Rules {
    fn load(
        &self,
        request: DataRequest<'_>,
    ) -> std::result::Result<DataResponse<CollationMetadataV1>, DataError> {
        let mut response: DataResponse<CollationMetadataV1> = Baked.load(request)?;
        let others = response.payload.get().bits & !BACKWARDS;
        let bits = if self.backwards { others | BACKWARDS } else { others };
        response.payload = DataPayload::from_owned(CollationMetadata { bits });
        Ok(response)
    }
}

macro_rules! as_compiled {
    ($($baked:path => $($marker:ty),+;)+) => {$($(
        impl DataProvider<$marker> for Rules {
            fn load(&self, request: DataRequest<'_>) -> std::result::Result<DataResponse<$marker>, DataError> {
                $baked.load(request)
            }
        }
    )+)+};
}

as_compiled! {
    Baked => CollationSpecialPrimariesV1, CollationRootV1, CollationTailoringV1, CollationDiacriticsV1,
        CollationJamoV1, CollationReorderingV1;
    icu_normalizer::provider::Baked => NormalizerNfdDataV1, NormalizerNfdTablesV1;
}

//! Letters without case and without diacritics, and what stands between words.
//!
//! As MongoDB's third version of text indexes has it: simple case folding, so that no letter becomes
//! two; a letter's canonical decomposition without what Unicode calls diacritics, where what is left
//! is one letter again; words end at white space, dashes, quotation marks and punctuation.

use icu_casemap::CaseMapper;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::CodePointSetData;
use icu_properties::props::{
    Dash, Diacritic, Hyphen, PatternSyntax, QuotationMark, SentenceTerminal, TerminalPunctuation, WhiteSpace,
};

/// Whether a letter ends a word. In English an apostrophe belongs to the word that it stands in.
#[inline]
pub(super) fn is_delimiter(letter: char, english: bool) -> bool {
    if letter.is_ascii() {
        let within = letter == '_' || (english && letter == '\'');
        return !within && (letter.is_ascii_punctuation() || matches!(letter, '\t'..='\r' | ' '));
    }
    CodePointSetData::new::<WhiteSpace>().contains(letter)
        || CodePointSetData::new::<TerminalPunctuation>().contains(letter)
        || CodePointSetData::new::<PatternSyntax>().contains(letter)
        || CodePointSetData::new::<Dash>().contains(letter)
        || CodePointSetData::new::<Hyphen>().contains(letter)
        || CodePointSetData::new::<QuotationMark>().contains(letter)
        || CodePointSetData::new::<SentenceTerminal>().contains(letter)
}

/// A letter without its case.
#[inline]
pub(super) fn lower(letter: char, turkish: bool) -> char {
    match letter {
        'I' if turkish => 'ı',
        _ if letter.is_ascii() => letter.to_ascii_lowercase(),
        _ if turkish => CaseMapper::new().simple_fold_turkic(letter),
        _ => CaseMapper::new().simple_fold(letter),
    }
}

/// A letter without its diacritics; `None` for what is nothing but one.
#[inline]
pub(super) fn strip(letter: char) -> Option<char> {
    match letter {
        '^' | '`' => None,
        _ if letter.is_ascii() => Some(letter),
        _ => strip_beyond_ascii(letter),
    }
}

fn strip_beyond_ascii(letter: char) -> Option<char> {
    let diacritics = CodePointSetData::new::<Diacritic>();
    if diacritics.contains(letter) {
        return None;
    }
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize_iter(std::iter::once(letter));
    let bare = decomposed.filter(|part| !diacritics.contains(*part));
    let mut composed = ComposingNormalizerBorrowed::new_nfc().normalize_iter(bare);
    match (composed.next(), composed.next()) {
        (Some(one), None) => Some(one),
        _ => Some(letter),
    }
}

/// Appends a text, folded as wanted.
pub(super) fn append(text: &str, folds_case: bool, strips: bool, turkish: bool, out: &mut String) {
    let lowered = text.chars().map(|letter| if folds_case { lower(letter, turkish) } else { letter });
    match strips {
        true => out.extend(lowered.filter_map(strip)),
        false => out.extend(lowered),
    }
}

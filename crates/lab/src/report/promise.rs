//! What acknowledged writes survive, in words; and the warning where targets differ in it.

use super::figures;
use crate::result::{Promise, TargetInfo};

/// What a target promises, as the end of "it is a server: …".
pub(crate) fn words(promise: Promise) -> &'static str {
    match promise {
        Promise::Unknown => "what acknowledged writes survive isn't known",
        Promise::Nothing => "only answers, stores nothing",
        Promise::Memory => "acknowledged writes are gone with the process",
        Promise::Delayed => "acknowledged writes survive the end of the process only after a while",
        Promise::Process => "acknowledged writes survive the process, not the machine",
        Promise::Interval => "acknowledged writes survive the process, and the machine's end after a while",
        Promise::Journaled => "acknowledged writes survive the machine's end",
    }
}

/// For people who have nothing to do with databases.
pub(crate) fn plain(promise: Promise) -> &'static str {
    match promise {
        Promise::Unknown => "nobody knows what survives",
        Promise::Nothing => "stores nothing",
        Promise::Memory => "all is lost when the program ends",
        Promise::Delayed => "a crash loses the last moment",
        Promise::Process => "a power cut may lose much",
        Promise::Interval => "a power cut loses the last moment",
        Promise::Journaled => "survives a power cut",
    }
}

/// In two or three words, for a label.
pub(crate) fn short(promise: Promise) -> &'static str {
    match promise {
        Promise::Unknown => "promise unknown",
        Promise::Nothing => "stores nothing",
        Promise::Memory => "in memory",
        Promise::Delayed => "journaled later",
        Promise::Process => "survives the process",
        Promise::Interval => "survives, after a while",
        Promise::Journaled => "survives the machine",
    }
}

/// One sentence if the targets that store something don't all promise the same.
pub(crate) fn warning(targets: &[TargetInfo]) -> Option<String> {
    let storing = targets.iter().filter(|target| target.fingerprint.promise != Promise::Nothing);
    let mut kinds: Vec<(Promise, Vec<String>)> = Vec::new();
    for target in storing {
        let promise = target.fingerprint.promise;
        match kinds.iter_mut().find(|(known, _)| *known == promise) {
            Some((_, names)) => names.push(target.name.clone()),
            None => kinds.push((promise, vec![target.name.clone()])),
        }
    }
    if kinds.len() < 2 {
        return None;
    }
    kinds.sort_by_key(|(promise, _)| *promise);
    let parts: Vec<String> = kinds
        .iter()
        .map(|(promise, names)| format!("{} ({})", figures::list(names), short(*promise)))
        .collect();
    Some(format!(
        "The targets promise different things, so that a faster one may only be promising less: {}.",
        parts.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn different_promises_are_told_but_not_the_floors() {
        let mut targets = testing::report().targets;
        let text = warning(&targets).unwrap();
        assert!(
            text.contains("memory (in memory)") && text.contains("journaled (survives the machine)"),
            "{text}"
        );
        assert!(!text.contains("floor"), "{text}");
        targets.retain(|target| matches!(target.name.as_str(), "none" | "floor"));
        assert_eq!(warning(&targets), None);
    }
}

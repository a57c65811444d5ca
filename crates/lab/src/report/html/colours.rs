//! One colour for each target, the same in every picture; the floor is grey.

use crate::report::groups;
use crate::result::Report;

/// Classes of the style sheet, in the order they are given out; then again, dashed.
const CLASSES: [&str; 12] =
    ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c0 dashed", "c1 dashed", "c2 dashed", "c3 dashed"];

/// Which target has which class.
pub(crate) struct Colours(Vec<(String, &'static str)>);

impl Colours {
    /// Colours for all targets of the report.
    pub(crate) fn new(report: &Report) -> Colours {
        let floor = groups::floor(report);
        let rows = report.sections.iter().flat_map(|section| &section.rows).map(|row| &row.target);
        let mut classes = CLASSES.iter().cycle();
        let mut given: Vec<(String, &'static str)> = Vec::new();
        for name in report.targets.iter().map(|target| &target.name).chain(rows) {
            if given.iter().any(|(known, _)| known == name) {
                continue;
            }
            let class =
                if Some(name.as_str()) == floor { "cf" } else { classes.next().copied().unwrap_or("c0") };
            given.push((name.clone(), class));
        }
        Colours(given)
    }

    /// Colours for these names, none of which is a floor.
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Colours {
        Colours(names.map(str::to_string).zip(CLASSES.into_iter().cycle()).collect())
    }

    /// The class of a target.
    pub(crate) fn class(&self, target: &str) -> &'static str {
        self.0.iter().find(|(name, _)| name == target).map_or("c0", |(_, class)| class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn each_target_has_its_own_and_the_floor_is_grey() {
        let report = testing::report();
        let colours = Colours::new(&report);
        let mut classes: Vec<_> = report.targets.iter().map(|target| colours.class(&target.name)).collect();
        assert_eq!(colours.class("floor"), "cf");
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(classes.len(), report.targets.len());
    }
}

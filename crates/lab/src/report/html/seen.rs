//! Each picture once: what a page has drawn, so that a group which is another one under a further name (the only shape of a
//! command, say) isn't drawn again.

use super::charts::Panel;
use std::collections::BTreeSet;

/// The pictures that a page has so far, without their titles.
#[derive(Default)]
pub(super) struct Seen(BTreeSet<String>);

impl Seen {
    /// The panels that have a picture which isn't there yet, and the labels of the others.
    pub(super) fn new_ones(&mut self, panels: Vec<Panel>) -> (Vec<Panel>, Vec<String>) {
        let mut known = Vec::new();
        let mut fresh = Vec::new();
        for panel in panels {
            let pictures: Vec<String> = panel.figures.iter().map(|figure| bare(&figure.svg)).collect();
            // One alone may look alike by chance, where all is zero.
            if pictures.len() > 1 && pictures.iter().all(|picture| self.0.contains(picture)) {
                known.push(panel.label);
                continue;
            }
            self.0.extend(pictures);
            fresh.push(panel);
        }
        (fresh, known)
    }
}

/// A picture without what says in words what it is.
fn bare(svg: &str) -> String {
    let mut rest = svg
        .split_once("aria-label=\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or(svg, |(_, rest)| rest);
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once("<title>") {
        text += before;
        rest = after.split_once("</title>").map_or("", |(_, rest)| rest);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::{charts, colours::Colours};
    use crate::report::testing;

    #[test]
    fn a_group_under_a_second_name_is_drawn_once() {
        let report = testing::report();
        let colours = Colours::new(&report);
        let mut again = report.sections[0].clone();
        again.rows.iter_mut().for_each(|row| row.case = "insert shop.orders {}".to_string());
        let mut seen = Seen::default();
        let (first, known) = seen.new_ones(charts::panels(&report.sections[0], &colours));
        assert_eq!((first.len(), known.len()), (2, 0));
        let (second, known) = seen.new_ones(charts::panels(&again, &colours));
        assert!(second.is_empty() && known[0].starts_with("insert shop.orders {}"), "{known:?}");
    }
}

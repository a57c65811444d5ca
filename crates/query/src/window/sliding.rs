//! Folds of sliding frames: each document is folded once or twice, however long the frames.
//!
//! A frame has two halves. The later half is one state, to which documents are appended. The earlier half is a stack
//! with one state per document, folded from that document to the middle. Removing the first document pops a state. When
//! the stack is empty, the later half is folded once more, backwards, and becomes the earlier half:
//!
//! ```text
//! frame        [ 3 4 5 | 6 7 ]
//! front stack  fold(5), fold(4 5), fold(3 4 5)      back  fold(6 7)
//! ```
//!
//! No value is ever subtracted, so an infinity or a rounding error leaves with its document.

use crate::interrupt_check::InterruptCheck;
use base::Result;
use std::ops::Range;

/// Shorter frames are folded from scratch, which is as fast and folds in order.
const LENGTH_MIN: usize = 8;

/// A fold over documents.
pub(super) trait Fold {
    /// The fold of a run of documents.
    type State: Clone;

    /// Returns the state of one document.
    fn single(&self, at: usize) -> Result<Self::State>;

    /// Merges the states of two adjacent runs.
    fn merge(&self, earlier: &Self::State, later: &Self::State) -> Result<Self::State>;
}

/// The two halves of a frame.
pub(super) struct Sliding<F: Fold> {
    fold: F,
    frame: Range<usize>,
    front: Vec<F::State>,
    back: Option<F::State>,
}

impl<F: Fold> Sliding<F> {
    /// Starts with an empty frame.
    pub(super) fn new(fold: F) -> Sliding<F> {
        Sliding { fold, frame: 0..0, front: Vec::new(), back: None }
    }

    /// Slides to the next frame and returns its state; `None` for an empty frame.
    pub(super) fn slide(
        &mut self,
        to: &Range<usize>,
        interrupts: &mut InterruptCheck,
    ) -> Result<Option<F::State>> {
        let backwards = to.start < self.frame.start || to.end < self.frame.end;
        if backwards || to.start >= self.frame.end {
            self.front.clear();
            self.back = None;
            self.frame = to.start..to.start;
        }
        while self.frame.end < to.end {
            interrupts.check()?;
            let one = self.fold.single(self.frame.end)?;
            self.back = Some(match &self.back {
                Some(back) => self.fold.merge(back, &one)?,
                None => one,
            });
            self.frame.end += 1;
        }
        let leaving = to.start - self.frame.start;
        if leaving > self.front.len() {
            self.move_to_front(to, interrupts)?;
        } else {
            self.front.truncate(self.front.len() - leaving);
        }
        self.frame.start = to.start;
        match (self.front.last(), &self.back) {
            (Some(front), Some(back)) => self.fold.merge(front, back).map(Some),
            (Some(one), None) | (None, Some(one)) => Ok(Some(one.clone())),
            (None, None) => Ok(None),
        }
    }

    /// Moves the whole frame into the earlier half.
    fn move_to_front(&mut self, frame: &Range<usize>, interrupts: &mut InterruptCheck) -> Result<()> {
        self.front.clear();
        self.back = None;
        for at in frame.clone().rev() {
            interrupts.check()?;
            let one = self.fold.single(at)?;
            let state = match self.front.last() {
                Some(later) => self.fold.merge(&one, later)?,
                None => one,
            };
            self.front.push(state);
        }
        Ok(())
    }
}

/// Whether sliding is worthwhile: the start of the frames moves, and they are longer than a few documents.
pub(super) fn is_worthwhile(frames: &[Range<usize>]) -> bool {
    let moves = frames.windows(2).any(|pair| matches!(pair, [a, b] if a.start != b.start));
    moves && frames.iter().any(|frame| frame.len() > LENGTH_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use std::cell::Cell;

    /// Joins runs of positions, which must be adjacent, and counts the joins.
    struct Runs<'c>(&'c Cell<usize>);

    impl Fold for Runs<'_> {
        type State = Range<usize>;

        fn single(&self, at: usize) -> Result<Range<usize>> {
            Ok(at..at + 1)
        }

        fn merge(&self, earlier: &Range<usize>, later: &Range<usize>) -> Result<Range<usize>> {
            self.0.set(self.0.get() + 1);
            assert_eq!(earlier.end, later.start);
            Ok(earlier.start..later.end)
        }
    }

    #[test]
    fn every_frame_is_joined_of_adjacent_runs_in_linear_work() {
        let mut interrupts = InterruptCheck::new(&Context::for_tests());
        for (before, after) in [(0, 0), (10, 0), (0, 10), (300, 200), (2000, 2000), (5, 700)] {
            let joins = Cell::new(0);
            let mut sliding = Sliding::new(Runs(&joins));
            for at in 0..1000usize {
                let frame = at.saturating_sub(before)..(at + after + 1).min(1000);
                assert_eq!(sliding.slide(&frame, &mut interrupts).unwrap(), Some(frame));
            }
            assert!(joins.get() <= 4000, "{} joins", joins.get());
        }
    }

    #[test]
    fn frames_may_be_empty_jump_and_go_back() {
        let mut interrupts = InterruptCheck::new(&Context::for_tests());
        let joins = Cell::new(0);
        let mut sliding = Sliding::new(Runs(&joins));
        for frame in [0..0, 0..4, 2..4, 4..4, 7..9, 8..12, 1..3, 3..3, 3..20, 19..20, 20..20] {
            let expected = (!frame.is_empty()).then(|| frame.clone());
            assert_eq!(sliding.slide(&frame, &mut interrupts).unwrap(), expected);
        }
    }
}

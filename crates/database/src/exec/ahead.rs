//! The first record of a stream read ahead: whoever begins a read of a store that is far away is told whether its
//! plan is good, which the first answer tells.

use super::{Explainer, Record, RecordStream};
use base::{ErrorCode, Result};

/// A stream whose first record is there already.
pub(crate) struct Ahead {
    /// With what went wrong with it, which whoever reads on is told.
    first: Option<Result<Record>>,
    /// `None` where it has ended.
    rest: Option<Box<dyn RecordStream>>,
}

impl Ahead {
    /// Reads the first record of a stream.
    ///
    /// Errors: StaleConfig where the plan is none.
    pub(crate) fn begin(mut stream: Box<dyn RecordStream>) -> Result<Box<dyn RecordStream>> {
        let first = match stream.next() {
            Err(error) if error.code() == ErrorCode::StaleConfig => return Err(error),
            first => first.transpose(),
        };
        let rest = first.is_some().then_some(stream);
        Ok(Box::new(Ahead { first, rest }))
    }
}

impl RecordStream for Ahead {
    fn next(&mut self) -> Result<Option<Record>> {
        match (self.first.take(), &mut self.rest) {
            (Some(first), _) => first.map(Some),
            (None, Some(rest)) => rest.next(),
            (None, None) => Ok(None),
        }
    }

    fn count(&mut self) -> Result<u64> {
        let first = u64::from(self.first.take().transpose()?.is_some());
        let rest = self.rest.as_mut().map_or(Ok(0), |rest| rest.count());
        Ok(first + rest?)
    }

    fn explain(&self, out: &mut Explainer) {
        if let Some(rest) = &self.rest {
            rest.explain(out);
        }
    }
}

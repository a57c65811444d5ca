//! What every stage counts, and how explain prints a tree of stages.

use base::bson::{Builder, DocumentBuf};
use std::ffi::CStr;

/// What a stage has done so far, in MongoDB's terms: each call for one more result or step is a
/// work, which advances or needs time.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stats {
    /// Steps taken.
    pub(crate) works: u64,
    /// Results yielded.
    pub(crate) advanced: u64,
    /// Whether it has come to its end.
    pub(crate) ended: bool,
}

impl Stats {
    /// A step that yielded a result.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.works += 1;
        self.advanced += 1;
    }

    /// A step that didn't.
    #[inline]
    pub(crate) fn need_time(&mut self) {
        self.works += 1;
    }

    /// The step that found the end.
    pub(crate) fn end(&mut self) {
        if !self.ended {
            self.works += 1;
            self.ended = true;
        }
    }
}

/// Prints stages: the plan alone, or with what each of them did.
pub(crate) struct Explainer {
    out: Builder,
    executed: bool,
    /// The projection that a covered plan does, as the client wrote it.
    pub(crate) projection: Option<DocumentBuf>,
    /// Keys examined, in all stages together.
    pub(crate) keys_examined: u64,
    /// Documents examined, in all stages together.
    pub(crate) docs_examined: u64,
}

impl Explainer {
    /// Prints with counts where the plan has been `executed`.
    pub(crate) fn new(executed: bool) -> Explainer {
        Explainer { out: Builder::new(), executed, projection: None, keys_examined: 0, docs_examined: 0 }
    }

    /// Prints a stage's name, its filter, and what it did.
    pub(crate) fn stage(&mut self, name: &str, filter: Option<&DocumentBuf>, stats: &Stats) -> &mut Builder {
        self.out.append(c"stage", name);
        self.out.append_optional(c"filter", filter);
        if self.executed {
            let number = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
            self.out
                .append(c"nReturned", number(stats.advanced))
                .append(c"executionTimeMillisEstimate", 0i32)
                .append(c"works", number(stats.works))
                .append(c"advanced", number(stats.advanced))
                .append(
                    c"needTime",
                    number(stats.works.saturating_sub(stats.advanced + u64::from(stats.ended))),
                )
                .append(c"needYield", 0i32)
                .append(c"saveState", 0i32)
                .append(c"restoreState", 0i32)
                .append(c"isEOF", i32::from(stats.ended));
        }
        &mut self.out
    }

    /// Whether the plan has been executed.
    pub(crate) fn executed(&self) -> bool {
        self.executed
    }

    /// What the stage prints into.
    pub(crate) fn out(&mut self) -> &mut Builder {
        &mut self.out
    }

    /// Prints a count, if the plan has been executed.
    pub(crate) fn count(&mut self, name: &'static CStr, count: u64) {
        if self.executed {
            self.out.append(name, i32::try_from(count).unwrap_or(i32::MAX));
        }
    }

    /// Counts and prints the documents a stage examined.
    pub(crate) fn docs(&mut self, examined: u64) {
        self.docs_examined += examined;
        self.count(c"docsExamined", examined);
    }

    /// Counts and prints the keys a stage examined.
    pub(crate) fn keys(&mut self, examined: u64) {
        self.keys_examined += examined;
        self.count(c"keysExamined", examined);
    }

    /// Prints the stage that this one reads.
    pub(crate) fn input(&mut self, print: impl FnOnce(&mut Explainer)) {
        self.out.begin_document(c"inputStage");
        print(self);
        self.out.end();
    }

    /// Prints the stages that this one reads.
    pub(crate) fn inputs(&mut self, prints: impl IntoIterator<Item = impl FnOnce(&mut Explainer)>) {
        self.out.begin_array(c"inputStages");
        for print in prints {
            self.out.push_document();
            print(self);
            self.out.end();
        }
        self.out.end();
    }

    /// What was printed.
    pub(crate) fn finish(self) -> DocumentBuf {
        self.out.finish()
    }
}

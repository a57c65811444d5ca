//! Recovery: replays the journal after the base, and truncates an incomplete end.
//!
//! The end of the journal may have been under way when the machine stopped. Unsynced frames may exist in part, or in
//! any order. An invalid frame therefore ends the journal, and later bytes are truncated. Recovery fails with file and
//! offset if the frame was valid before, since stored bytes have then changed. Two cases prove this:
//!
//! - A later frame says that the frame was durable.
//! - Valid frames follow, without a block of zeros between. A lost write leaves a whole block of zeros, or zeros at the
//!   end of the block in which the frame begins.
//!
//! Recovery also fails if the journal ends before the synced mark (`mark.rs`).
//!
//! A value can contain the bytes of frames. They have a wrong checksum, because frames have the seed of their segment.
//! Segments of the first version have no seed. There, frames within the length of an incomplete frame do not count.

use super::files::during;
use super::journal::{Appender, SEGMENT_HEADER_BYTES, Segments};
use super::mark;
use super::reader::Reader;
use crate::record::{HEADER_BYTES, Header, NO_SEED};
use crate::{Batch, Error, Result, mark};

const HEADER: u64 = SEGMENT_HEADER_BYTES as u64;

/// A position in the journal: the index of a segment and an offset.
#[derive(Clone, Copy)]
struct FrameOffset {
    segment: usize,
    offset: u64,
}

/// Replays the journal: calls `replay` with each batch after `base`, the position of the base. Returns the segment to
/// continue, with everything in it durable, and the position after which the journal has each commit.
pub(super) fn recover(
    segments: &Segments,
    base: u64,
    replay: impl FnMut(u64, Batch) -> Result<()>,
) -> Result<(Appender, u64)> {
    let readers = open_segments(segments)?;
    if readers.is_empty() {
        let directory = segments.directory.display();
        return Err(Error::Corrupted(format!(
            "no journal found in {directory}; if the journal is in another directory, name it with --journal-dir"
        )));
    }
    let mut replayer = Replayer::new(segments, readers, base, replay);
    let end = replayer.run()?;
    debug_assert!(replayer.last >= base, "the journal ends before the base");
    mark::check(segments, replayer.last)?;
    let appender = match end {
        Some(end) => truncate(segments, &mut replayer.readers, end, replayer.last),
        None => {
            let len = replayer.readers.last().map_or(0, Reader::len);
            resume_appending(segments, &replayer.readers, len, replayer.last)
        }
    };
    Ok((appender?, replayer.complete_after()))
}

/// Replays the journal as [`recover`] does, and changes no file. Returns the position after which it has each commit.
pub(super) fn read(
    segments: &Segments,
    base: u64,
    replay: impl FnMut(u64, Batch) -> Result<()>,
) -> Result<u64> {
    let readers = open_segments(segments)?;
    if readers.is_empty() {
        let directory = segments.directory.display();
        return Err(Error::Corrupted(format!(
            "no journal found in {directory}; if the journal is in another directory, name it with --journal-dir"
        )));
    }
    let mut replayer = Replayer::new(segments, readers, base, replay);
    replayer.run()?;
    mark::check(segments, replayer.last)?;
    Ok(replayer.complete_after())
}

/// Result of a salvage of the journal.
pub(super) struct SalvagedJournal {
    /// Position of the last replayed batch.
    pub(super) last: u64,
    /// Reason why the replay stopped before the end of the journal.
    pub(super) damage: Option<String>,
}

/// Replays valid frames up to the first damage, then calls `lost` with each valid batch after it. Changes no file.
/// `base` is the position of the base, if known.
pub(super) fn salvage(
    segments: &Segments,
    base: Option<u64>,
    replay: impl FnMut(u64, Batch) -> Result<()>,
    lost: impl FnMut(u64, Batch),
) -> Result<SalvagedJournal> {
    let mut readers = Vec::new();
    for mut reader in open_segments(segments)? {
        // A segment of another directory is skipped. Frames behind a damaged header are used.
        if segments.check_header(reader.number, reader.bytes(0, SEGMENT_HEADER_BYTES)?).is_ok() {
            readers.push(reader);
        }
    }
    let mut replayer =
        Replayer { lenient: true, ..Replayer::new(segments, readers, base.unwrap_or_default(), replay) };
    if base.is_none() {
        let first = replayer.later_frames(FrameOffset { segment: 0, offset: 0 })?;
        replayer.last = first.map_or(0, |later_frames| later_frames.next.1.saturating_sub(1));
    }
    let damage = match replayer.run().and_then(|_| mark::check(segments, replayer.last)) {
        Ok(()) => None,
        Err(Error::Corrupted(message)) => Some(message),
        Err(error) => return Err(error),
    };
    let last = replayer.last;
    if damage.is_some() {
        replayer.each_later_frame(FrameOffset { segment: 0, offset: 0 }, lost)?;
    }
    Ok(SalvagedJournal { last, damage })
}

/// Opens the segments, and logs other files that resemble one.
fn open_segments(segments: &Segments) -> Result<Vec<Reader>> {
    for name in segments.unknown_names()? {
        log::warn!("{} is not part of the journal and is ignored", segments.directory.join(name).display());
    }
    let mut readers = Vec::new();
    for number in segments.list()? {
        match Reader::open_segment(segments, number)? {
            Some(segment) => readers.push(segment),
            None => {
                let path = segments.path(number);
                log::warn!("{} is not a journal segment and is ignored", path.display());
            }
        }
    }
    debug_assert!(readers.is_sorted_by(|a, b| a.number < b.number), "segments are out of order");
    Ok(readers)
}

/// A pass over all frames of the journal.
struct Replayer<'a, R> {
    segments: &'a Segments,
    readers: Vec<Reader>,
    /// The position reached: of the base, or of the last replayed frame.
    last: u64,
    /// True once a frame was replayed.
    has_replayed: bool,
    /// Position of the valid frame passed last.
    passed: Option<u64>,
    /// Position of the latest commit that the base has and the journal lacks.
    lost: u64,
    /// True to ignore a damaged segment header.
    lenient: bool,
    replay: R,
}

/// The valid frames after a place without one.
struct LaterFrames {
    /// Place and position of the first valid frame that has not been replayed.
    next: (FrameOffset, u64),
    /// Greatest durable position in any of these frames.
    durable: u64,
}

/// The frame at a place.
struct NextFrame {
    position: u64,
    len: u64,
    /// Its batch, if it is next in order.
    batch: Option<Batch>,
}

impl<'a, R: FnMut(u64, Batch) -> Result<()>> Replayer<'a, R> {
    fn new(segments: &'a Segments, readers: Vec<Reader>, base: u64, replay: R) -> Self {
        Replayer {
            segments,
            readers,
            last: base,
            has_replayed: false,
            passed: None,
            lost: 0,
            lenient: false,
            replay,
        }
    }

    /// Returns the position after which the journal has each commit. A checkpoint makes commits durable without a sync
    /// of the journal, so a crash before the removal of the segments may lose their frames.
    fn complete_after(&self) -> u64 {
        match self.passed {
            Some(passed) if passed < self.last => self.last,
            // Without a frame, the segments show where they begin.
            _ => self.lost,
        }
    }

    /// Replays to the end. Returns the offset to truncate at if the end is incomplete.
    fn run(&mut self) -> Result<Option<FrameOffset>> {
        let mut segment = 0;
        while let Some(current) = self.readers.get_mut(segment) {
            let (number, len) = (current.number, current.len());
            let header = current.bytes(0, SEGMENT_HEADER_BYTES)?;
            let is_header_valid =
                self.segments.check_header(number, header)? || self.lenient && len >= HEADER;
            let mut at = FrameOffset { segment, offset: if is_header_valid { HEADER } else { 0 } };
            loop {
                if is_header_valid && let Some(end) = self.replay_from(&mut at)? {
                    return Ok(Some(end));
                }
                if at.offset == len && is_header_valid {
                    break;
                }
                match self.later_frames(at)? {
                    // Only frames that are in the base are missing.
                    Some(LaterFrames { next: (next, position), .. })
                        if position == self.last + 1 && is_header_valid && self.is_obsolete(at, next)? =>
                    {
                        mark!("recovery skips damaged frames that the base has");
                        if next.segment != segment {
                            break;
                        }
                        at = next;
                    }
                    later_frames => return self.truncation_point(at, later_frames).map(Some),
                }
            }
            if let Some(done) = self.readers.get_mut(segment) {
                done.rest();
            }
            segment += 1;
        }
        Ok(None)
    }

    /// Replays frames and moves `at`, until it finds no valid frame. Returns the offset to truncate at if a segment
    /// begins with a gap that lost unsynced frames explain.
    fn replay_from(&mut self, at: &mut FrameOffset) -> Result<Option<FrameOffset>> {
        while let Some(frame) = self.read_frame(*at)? {
            if frame.position > self.last + 1 {
                let first = at.offset == HEADER;
                let durable = self.later_frames(*at)?.map_or(0, |later_frames| later_frames.durable);
                match first && durable <= self.last {
                    true => {
                        mark!("recovery cuts a segment that begins with a gap");
                        return Ok(Some(*at));
                    }
                    false => return Err(self.damaged(*at)),
                }
            }
            if let Some(batch) = frame.batch {
                debug_assert_eq!(frame.position, self.last + 1, "a batch is replayed out of order");
                (self.replay)(frame.position, batch).map_err(|error| self.replay_error(*at, error))?;
                (self.last, self.has_replayed) = (frame.position, true);
            }
            if self.passed.is_some_and(|passed| passed + 1 < frame.position) {
                self.lost = frame.position - 1;
            }
            self.passed = self.passed.max(Some(frame.position));
            at.offset += frame.len;
            debug_assert!(
                self.readers.get(at.segment).is_some_and(|segment| at.offset <= segment.len()),
                "a frame ends behind its segment"
            );
        }
        Ok(None)
    }

    /// Returns true if the bytes from an invalid frame to the next frame in order contain only commits that the base
    /// has. Within a segment, a lost block or a later commit in the invalid frame proves the opposite.
    fn is_obsolete(&mut self, at: FrameOffset, next: FrameOffset) -> Result<bool> {
        let Some(segment) = self.readers.get_mut(at.segment).filter(|_| next.segment == at.segment) else {
            return Ok(true);
        };
        let invalid = Header::read(segment.bytes(at.offset, HEADER_BYTES)?);
        Ok(!self.has_replayed
            && invalid.is_none_or(|header| header.position <= self.last)
            && !segment.has_zero_block(at.offset, next.offset)?)
    }

    /// Reads the frame at an offset. Decodes its batch only if it is the next one.
    fn read_frame(&mut self, at: FrameOffset) -> Result<Option<NextFrame>> {
        let Some(segment) = self.readers.get_mut(at.segment) else { return Ok(None) };
        let Some(frame) = segment.frame(at.offset)? else { return Ok(None) };
        let (position, len) = (frame.position, frame.len() as u64);
        if position != self.last + 1 {
            return Ok(Some(NextFrame { position, len, batch: None }));
        }
        match frame.decode() {
            Some(batch) => Ok(Some(NextFrame { position, len, batch: Some(batch) })),
            None => Err(self.damaged(at)),
        }
    }

    /// Finds the valid frames after a place that have not been replayed.
    fn later_frames(&mut self, at: FrameOffset) -> Result<Option<LaterFrames>> {
        let mut later_frames: Option<LaterFrames> = None;
        for (segment, reader) in self.readers.iter_mut().enumerate().skip(at.segment) {
            let mut from = if segment == at.segment { at.offset.max(HEADER) } else { HEADER };
            while let Some(frame) = reader.find(from)? {
                debug_assert!(frame.offset >= from, "a search goes back");
                from = frame.offset + frame.len;
                if frame.position > self.last {
                    let next = (FrameOffset { segment, offset: frame.offset }, frame.position);
                    let later_frames = later_frames.get_or_insert(LaterFrames { next, durable: 0 });
                    later_frames.durable = later_frames.durable.max(frame.durable);
                }
            }
        }
        Ok(later_frames)
    }

    /// Calls a function with each valid batch after a place that has not been replayed.
    fn each_later_frame(&mut self, at: FrameOffset, mut call: impl FnMut(u64, Batch)) -> Result<()> {
        for (segment, reader) in self.readers.iter_mut().enumerate().skip(at.segment) {
            let mut from = if segment == at.segment { at.offset.max(HEADER) } else { HEADER };
            while let Some(frame) = reader.find(from)? {
                from = frame.offset + frame.len;
                if frame.position > self.last
                    && let Some(batch) = reader.frame(frame.offset)?.and_then(|frame| frame.decode())
                {
                    call(frame.position, batch);
                }
            }
        }
        Ok(())
    }

    /// Returns the offset to truncate at, or an error if it is damaged.
    fn truncation_point(
        &mut self,
        at: FrameOffset,
        later_frames: Option<LaterFrames>,
    ) -> Result<FrameOffset> {
        let Some(later_frames) = later_frames else { return Ok(at) };
        let next = later_frames.next.0;
        // A lost write leaves zeros, or a short file.
        let never_written = match (next.segment == at.segment, self.readers.get_mut(at.segment)) {
            (true, Some(segment)) => segment.has_zero_block(at.offset, next.offset)?,
            _ => at.offset > 0,
        };
        match later_frames.durable > self.last || !never_written {
            true => Err(self.damaged(at)),
            false => {
                mark!("recovery cuts valid frames behind a lost one");
                Ok(at)
            }
        }
    }

    /// Returns an error about damage at a place.
    fn damaged(&self, at: FrameOffset) -> Error {
        let message =
            format!("{} is damaged at offset {}, commit {}", self.path(at), at.offset, self.last + 1);
        Error::Corrupted(message)
    }

    /// Returns an error of the replay with its place. Errors of the operating system stay unchanged.
    fn replay_error(&self, at: FrameOffset, error: Error) -> Error {
        match error {
            Error::Io { .. } | Error::Full(_) | Error::Closed => error,
            error => Error::Corrupted(format!("{} at offset {}: {error}", self.path(at), at.offset)),
        }
    }

    fn path(&self, at: FrameOffset) -> String {
        let number = self.readers.get(at.segment).map_or(0, |segment| segment.number);
        self.segments.path(number).display().to_string()
    }
}

/// Syncs segments.
fn sync(segments: &Segments, readers: &[Reader]) -> Result<()> {
    for segment in readers {
        let path = segments.path(segment.number);
        let sync = segments.files.open(&path, false).and_then(|file| file.sync());
        sync.map_err(|error| during("syncing", &path, error))?;
    }
    Ok(())
}

/// Syncs the segments and continues the last one at an offset. A segment without a seed is not continued: a new one
/// follows.
fn resume_appending(segments: &Segments, readers: &[Reader], len: u64, position: u64) -> Result<Appender> {
    sync(segments, readers)?;
    match readers.last() {
        Some(last) if last.seed != NO_SEED => appender(segments, last.number, len, position),
        last => {
            mark!("recovery begins a segment with a seed");
            let number = segments.next(last.map_or(0, |last| last.number))?;
            segments.create(number)?;
            appender(segments, number, HEADER, position)
        }
    }
}

/// Truncates everything after an incomplete frame, durably, and continues there.
fn truncate(
    segments: &Segments,
    readers: &mut [Reader],
    end: FrameOffset,
    position: u64,
) -> Result<Appender> {
    debug_assert!(end.segment < readers.len(), "no segment ends the journal");
    debug_assert!(
        readers.get(end.segment).is_none_or(|last| end.offset <= last.len()),
        "a cut behind the end"
    );
    let lost = readers.iter().skip(end.segment).map(Reader::len).sum::<u64>() - end.offset;
    let is_preallocated = match readers.get_mut(end.segment..) {
        Some([last]) => end.offset > 0 && last.is_zero_from(end.offset)?,
        _ => false,
    };
    if is_preallocated {
        mark!("recovery cuts preallocated zeros");
    } else {
        mark!("recovery cuts a torn write");
        let synced = match mark::read(segments) {
            Some(synced) => format!("and commits up to {synced} were synced"),
            None => "and the last synced commit is unknown".to_string(),
        };
        log::warn!(
            "torn write at the journal's end: the last valid commit is {position}, {synced}; {lost} bytes \
             after it are truncated"
        );
    }
    // The last segments first, so that an interruption leaves no gap.
    for segment in readers.iter().skip(end.segment + 1).rev() {
        mark!("recovery removes a later segment");
        segments.remove(segment.number)?;
        segments.files.sync_directory(&segments.directory)?;
    }
    let remaining = readers.get(..=end.segment).unwrap_or_default();
    let Some(last) = remaining.last() else { return Err(Error::Closed) };
    if end.offset == 0 {
        mark!("recovery writes the header of a segment again");
        segments.create(last.number)?;
        let earlier = remaining.split_last().map_or(&[][..], |(_, earlier)| earlier);
        sync(segments, earlier)?;
        return appender(segments, last.number, HEADER, position);
    }
    let path = segments.path(last.number);
    let truncate = segments.files.open(&path, false).and_then(|file| file.set_len(end.offset));
    truncate.map_err(|error| during("cutting", &path, error))?;
    resume_appending(segments, remaining, end.offset, position)
}

/// Opens a segment for appending at an offset.
fn appender(segments: &Segments, number: u64, len: u64, position: u64) -> Result<Appender> {
    let path = segments.path(number);
    let file = segments.files.open(&path, false).map_err(|error| during("opening", &path, error))?;
    Ok(Appender::new(segments, number, file, len, position))
}

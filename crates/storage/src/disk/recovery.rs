//! Opening the journal: what it holds beyond the base is replayed, and a torn end is cut off.
//!
//! The end of the journal was perhaps being written when the machine stopped: frames that were never synced
//! may be there in part, or in any order. So a frame that isn't sound is where the journal ends, and what
//! follows is cut off, unless something shows that the frame was sound once: a later frame that says that
//! it was durable by then, or sound frames behind it and no block of zeros between, as a write that never
//! reached the disk leaves. Then stored bytes have changed, and opening fails with file and offset.

use std::sync::Arc;

use super::journal::{Appender, SEGMENT_HEADER_BYTES, Segments, during};
use super::record::{self, Frame, MARK};
use crate::{Batch, Error, Result};

/// What a file system leaves where a write was lost comes in multiples of this.
const BLOCK_BYTES: usize = 512;

/// A segment read whole.
struct Segment {
    number: u64,
    bytes: Vec<u8>,
}

/// A place in the journal: the index of a segment, and an offset in it.
#[derive(Clone, Copy)]
struct Place {
    segment: usize,
    offset: usize,
}

/// Replays the journal: calls `replay` with each batch after `base`, the position that the base holds, and
/// returns the segment to go on in, everything in it durable.
pub(super) fn recover(
    segments: &Segments,
    base: u64,
    replay: impl FnMut(u64, Batch) -> Result<()>,
) -> Result<Appender> {
    let mut read = Vec::new();
    for number in segments.list()? {
        read.push(read_segment(segments, number)?);
    }
    if read.is_empty() {
        let directory = segments.directory.display();
        return Err(Error::Corrupted(format!(
            "there is no journal in {directory}; was it elsewhere before?"
        )));
    }
    let mut walk = Walk { segments, read: &read, last: base, replay };
    match walk.run()? {
        Some(end) => cut(segments, &read, end, walk.last),
        None => go_on(segments, &read, walk.last),
    }
}

fn read_segment(segments: &Segments, number: u64) -> Result<Segment> {
    let path = segments.path(number);
    let read = || {
        let file = segments.files.open(&path, false)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| during("reading", &path, error))?;
    Ok(Segment { number, bytes })
}

/// A walk along all frames.
struct Walk<'a, R> {
    segments: &'a Segments,
    read: &'a [Segment],
    /// The position that has been reached: the base's, or that of the last frame replayed.
    last: u64,
    replay: R,
}

/// What lies behind a place where there is no sound frame.
struct Beyond {
    /// The first sound frame with a position that has not been reached, and where it is.
    next: (Place, u64),
    /// The greatest position that a frame says was durable.
    durable: u64,
}

impl<R: FnMut(u64, Batch) -> Result<()>> Walk<'_, R> {
    /// Replays up to the end; if that is a torn one, returns where to cut.
    fn run(&mut self) -> Result<Option<Place>> {
        let mut segment = 0;
        while let Some(current) = self.read.get(segment) {
            let sound = self.segments.check_header(current.number, &current.bytes)?;
            let mut place = Place { segment, offset: if sound { SEGMENT_HEADER_BYTES } else { 0 } };
            loop {
                if sound && let Some(end) = self.replay_from(&mut place)? {
                    return Ok(Some(end));
                }
                if place.offset == current.bytes.len() && sound {
                    break;
                }
                match self.beyond(place) {
                    // Only what the base holds is missing.
                    Some(Beyond { next: (next, position), .. }) if position == self.last + 1 && sound => {
                        if next.segment != segment {
                            break;
                        }
                        place = next;
                    }
                    beyond => return self.torn(place, beyond).map(Some),
                }
            }
            segment += 1;
        }
        Ok(None)
    }

    /// Replays frame after frame, moving the place, until there is no sound one. Returns where to cut if a
    /// segment begins with a gap that the loss of unsynced frames explains.
    fn replay_from(&mut self, place: &mut Place) -> Result<Option<Place>> {
        let Some(segment) = self.read.get(place.segment) else { return Ok(None) };
        while let Some(frame) = segment.bytes.get(place.offset..).and_then(Frame::read) {
            if frame.position > self.last + 1 {
                let first = place.offset == SEGMENT_HEADER_BYTES;
                let durable = self.beyond(*place).map_or(0, |beyond| beyond.durable);
                match first && durable <= self.last {
                    true => return Ok(Some(*place)),
                    false => return Err(self.damaged(*place)),
                }
            }
            if frame.position == self.last + 1 {
                let batch = record::decode(frame.batch).ok_or_else(|| self.damaged(*place))?;
                (self.replay)(frame.position, batch).map_err(|error| self.unfit(*place, &error))?;
                self.last = frame.position;
            }
            place.offset += frame.len();
        }
        Ok(None)
    }

    fn beyond(&self, place: Place) -> Option<Beyond> {
        let mut beyond: Option<Beyond> = None;
        for (segment, later) in self.read.iter().enumerate().skip(place.segment) {
            let from = if segment == place.segment { place.offset } else { 0 };
            let frames = frames_from(&later.bytes, from).filter(|(_, frame)| frame.position > self.last);
            for (offset, frame) in frames {
                let next = (Place { segment, offset }, frame.position);
                let beyond = beyond.get_or_insert(Beyond { next, durable: 0 });
                beyond.durable = beyond.durable.max(frame.durable);
            }
        }
        beyond
    }

    /// The place is where to cut, or else damaged.
    fn torn(&self, place: Place, beyond: Option<Beyond>) -> Result<Place> {
        let Some(beyond) = beyond else { return Ok(place) };
        let next = beyond.next.0;
        let bytes = self.read.get(place.segment).map(|segment| segment.bytes.as_slice()).unwrap_or_default();
        let end = if next.segment == place.segment { next.offset } else { bytes.len() };
        let lost = bytes.get(place.offset..end).unwrap_or_default();
        // A write that never reached the disk leaves zeros, or the file short.
        let never_written = match next.segment == place.segment {
            true => has_zero_block(lost, place.offset),
            false => place.offset > 0,
        };
        match beyond.durable > self.last || !never_written {
            true => Err(self.damaged(place)),
            false => Ok(place),
        }
    }

    fn damaged(&self, place: Place) -> Error {
        let what =
            format!("{} is damaged at offset {}, commit {}", self.path(place), place.offset, self.last + 1);
        Error::Corrupted(what)
    }

    fn unfit(&self, place: Place, error: &Error) -> Error {
        Error::Corrupted(format!("{} at offset {}: {error}", self.path(place), place.offset))
    }

    fn path(&self, place: Place) -> String {
        let number = self.read.get(place.segment).map_or(0, |segment| segment.number);
        self.segments.path(number).display().to_string()
    }
}

/// Whether bytes that begin at an offset of their file hold a whole block of zeros.
fn has_zero_block(bytes: &[u8], offset: usize) -> bool {
    let first = offset.next_multiple_of(BLOCK_BYTES) - offset;
    let blocks = bytes.get(first..).unwrap_or_default();
    blocks.chunks_exact(BLOCK_BYTES).any(|block| block.iter().all(|byte| *byte == 0))
}

/// All sound frames from an offset on, whatever lies between them, with their offsets.
fn frames_from(bytes: &[u8], from: usize) -> impl Iterator<Item = (usize, Frame<'_>)> {
    let mut at = from;
    std::iter::from_fn(move || {
        while let Some(rest) = bytes.get(at..) {
            let ahead = rest.windows(MARK.len()).position(|window| window == MARK)?;
            let offset = at + ahead;
            match bytes.get(offset..).and_then(Frame::read) {
                Some(frame) => {
                    at = offset + frame.len();
                    return Some((offset, frame));
                }
                None => at = offset + 1,
            }
        }
        None
    })
}

/// Goes on behind the last frame.
fn go_on(segments: &Segments, read: &[Segment], position: u64) -> Result<Appender> {
    for segment in read {
        let path = segments.path(segment.number);
        let sync = segments.files.open(&path, false).and_then(|file| file.sync());
        sync.map_err(|error| during("syncing", &path, error))?;
    }
    let last = read.last().map_or((0, 0), |segment| (segment.number, segment.bytes.len()));
    appender(segments, last.0, last.1, position)
}

/// Cuts off everything from a break on, durably, and goes on there.
fn cut(segments: &Segments, read: &[Segment], end: Place, position: u64) -> Result<Appender> {
    let lost = read.iter().skip(end.segment).map(|segment| segment.bytes.len()).sum::<usize>() - end.offset;
    log::warn!("the journal's end was torn: {lost} bytes that were never synced are cut off");
    // The last ones first, so that there is no gap if this is interrupted.
    for segment in read.iter().skip(end.segment + 1).rev() {
        segments.remove(segment.number)?;
        segments.files.sync_directory(&segments.directory)?;
    }
    let kept = read.get(..=end.segment).unwrap_or_default();
    let Some(last) = kept.last() else { return Err(Error::Closed) };
    if end.offset == 0 {
        segments.create(last.number)?;
        let earlier = kept.split_last().map_or(&[][..], |(_, earlier)| earlier);
        go_on(segments, earlier, position)?;
        return appender(segments, last.number, SEGMENT_HEADER_BYTES, position);
    }
    let path = segments.path(last.number);
    let cut = segments.files.open(&path, false).and_then(|file| file.set_len(end.offset as u64));
    cut.map_err(|error| during("cutting", &path, error))?;
    go_on(segments, kept, position)?;
    appender(segments, last.number, end.offset, position)
}

fn appender(segments: &Segments, number: u64, len: usize, position: u64) -> Result<Appender> {
    let path = segments.path(number);
    let file = segments.files.open(&path, false).map_err(|error| during("opening", &path, error))?;
    Ok(Appender::new(number, Arc::clone(&file), len as u64, position))
}

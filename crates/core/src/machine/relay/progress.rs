//! Writing progress: checkpoints, the outcome of parked rows, and marks.

use std::time::Duration;

use super::Relay;
use super::words::Do;
use crate::port::Checkpoint;

/// Chunks that are finished, and go into the next checkpoint.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) checkpoint: Checkpoint,
    pub(super) parked_lanes: Vec<u64>,
    /// The last read it covers.
    pub(super) read: u64,
}

/// How far the marks of stamped keys are written.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Up to this read.
    pub(super) upto: u64,
    pub(super) at: Duration,
    pub(super) wanted: bool,
}

impl Relay {
    /// Collects the chunks that are finished, and writes a checkpoint from time to time.
    pub(super) fn write_down(&mut self, now: Duration, epoch: i64, todo: &mut Vec<Do>) {
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.rows == 0) {
            self.bytes -= chunk.bytes;
            let done = self.done.get_or_insert_default();
            done.join(Done {
                read: chunk.read,
                checkpoint: Checkpoint {
                    tracks: chunk.tracks,
                    parks: chunk.parks,
                    republished: chunk.republished,
                },
                parked_lanes: chunk.parked_lanes,
            });
        }
        let round_over = self.due.as_ref().is_some_and(|round| round.open == 0);
        if round_over && !self.asking.settle {
            self.asking.settle = true;
            let settled = self.due.as_mut().map(|round| std::mem::take(&mut round.settled));
            todo.push(Do::Settle(epoch, settled.unwrap_or_default()));
        }
        let Some(done) = &self.done else { return };
        if self.asking.checkpoint {
            return;
        }
        let every = self.plan.checkpoint_every;
        // With nothing else in flight, there is less to combine with.
        let pause = if self.chunks.is_empty() { every / 5 } else { every };
        let hurry = self.stopping
            || self.unbalanced
            || self.outage.is_some()
            || !done.checkpoint.parks.is_empty()
            || self.marks.wanted;
        if !hurry && now < self.wrote_at + pause {
            self.wake_by(self.wrote_at + pause);
            return;
        }
        if let Some(done) = self.done.take() {
            self.asking.checkpoint = true;
            todo.push(Do::Checkpoint(epoch, done.checkpoint.clone()));
            self.writing = Some(done);
        }
    }

    pub(super) fn checkpointed(&mut self, now: Duration) {
        self.asking.checkpoint = false;
        self.failures = 0;
        self.wrote_at = now;
        let Some(written) = self.writing.take() else { return };
        self.base = written.checkpoint.tracks;
        self.base_read = written.read;
        for lane in written.parked_lanes {
            if let Some(block) = self.blocked.get_mut(&lane) {
                block.not_written -= 1;
                block.seen_after = self.reads;
            }
        }
    }

    /// Brings the marks up to the last checkpoint from time to time. A relay that takes over
    /// before that computes the missing ones from the rows.
    pub(super) fn write_marks(&mut self, now: Duration, epoch: i64, todo: &mut Vec<Do>) {
        let Some(every) = self.plan.mark_every else { return };
        if self.asking.mark.is_some() || self.marks.upto == self.base_read {
            return;
        }
        if !self.marks.wanted && now < self.marks.at + every {
            return self.wake_by(self.marks.at + every);
        }
        self.asking.mark = Some(self.base_read);
        todo.push(Do::Mark(epoch, self.base.clone()));
    }

    pub(super) fn marked(&mut self, now: Duration) {
        let Some(upto) = self.asking.mark.take() else { return };
        self.marks = Marks { upto, at: now, wanted: false };
    }
}

impl Done {
    /// Appends what was finished later.
    pub(super) fn join(&mut self, later: Done) {
        self.read = later.read;
        self.parked_lanes.extend(later.parked_lanes);
        self.checkpoint.tracks = later.checkpoint.tracks;
        self.checkpoint.parks.extend(later.checkpoint.parks);
        for (request, republished) in later.checkpoint.republished {
            self.checkpoint.republished.entry(request).or_default().add(republished);
        }
    }
}

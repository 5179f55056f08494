use std::time::Duration;

/// Whether a process is certainly still in a group whose broker assigns the partitions.
///
/// The broker does not say when it last heard from a member. So the member's thread *beats*; if
/// half of the session timeout passes between two beats, the process may have been frozen and the
/// group may have gone on without it. From then on it is *doubtful* until the group accepts a
/// commit that was sent after it woke up: the broker refuses commits of an earlier generation.
#[derive(Debug)]
pub struct Pulse {
    session: Duration,
    beat_at: Duration,
    doubtful: bool,
    /// Commits that the group has not answered.
    unanswered: usize,
    /// Those among them from before the doubt: their answers say nothing about now.
    outdated: usize,
}

impl Pulse {
    /// A member whose session with the group ends after `session` without a sign of life.
    pub fn new(session: Duration, now: Duration) -> Self {
        Pulse { session, beat_at: now, doubtful: false, unanswered: 0, outdated: 0 }
    }

    /// The member's thread runs. Returns whether it did not for so long that the group may have
    /// gone on without it; everything in flight is then to be taken back.
    pub fn beat(&mut self, now: Duration) -> bool {
        let slept = !self.is_fresh(now);
        self.beat_at = now;
        if slept {
            (self.doubtful, self.outdated) = (true, self.unanswered);
        }
        slept
    }

    /// A commit was sent.
    pub fn asked(&mut self) {
        self.unanswered += 1;
    }

    /// The oldest unanswered commit was accepted. Answers come in the order of the commits.
    pub fn accepted(&mut self) {
        if self.answered_is_current() {
            self.doubtful = false;
        }
    }

    /// The oldest unanswered commit was refused, or failed.
    pub fn refused(&mut self) {
        self.answered_is_current();
    }

    /// The member owns nothing, or only what was assigned since: there is nothing to doubt.
    pub fn clear_doubt(&mut self) {
        self.doubtful = false;
    }

    /// The client was replaced: its commits will not be answered.
    pub fn reconnected(&mut self) {
        (self.unanswered, self.outdated) = (0, 0);
    }

    /// Whether the group has to be asked.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Whether the member is certainly in its group, so that it may deliver and acknowledge.
    pub fn is_certain(&self, now: Duration) -> bool {
        !self.doubtful && self.is_fresh(now)
    }

    /// Counts an answer; returns whether it is to a commit that was sent since the doubt.
    fn answered_is_current(&mut self) -> bool {
        let current = self.outdated == 0;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.outdated = self.outdated.saturating_sub(1);
        current
    }

    fn is_fresh(&self, now: Duration) -> bool {
        now.saturating_sub(self.beat_at) < self.session / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_member_that_slept_waits_for_an_answer_to_what_it_asked_since() {
        let mut pulse = Pulse::new(at(10), at(0));
        pulse.asked();
        assert!(!pulse.beat(at(4)) && pulse.is_certain(at(8)));
        assert!(!pulse.is_certain(at(9)), "uncertain before the thread notices it");
        assert!(pulse.beat(at(9)));
        pulse.asked();
        pulse.accepted();
        assert!(pulse.is_doubtful(), "this was asked before it slept");
        pulse.refused();
        assert!(pulse.is_doubtful(), "the group refused");
        pulse.asked();
        pulse.accepted();
        assert!(pulse.is_certain(at(10)));
    }
}

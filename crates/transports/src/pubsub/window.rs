//! How many messages of a feed are held at once.

/// What a feed may hold before it has acknowledged anything.
const FIRST: usize = 256;
/// What a feed may always hold.
const LEAST: usize = 16;

/// A limit that follows what can be acknowledged before a lease expires.
///
/// Everything that is held has to be extended again and again. Where consumer or service are too slow for
/// that, leases expire, and the messages are delivered again: with a fixed limit, a backlog could be
/// fetched and lost again and again. So the limit is halved by each loss, and grows with what is acknowledged.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    most: usize,
}

impl Window {
    pub(super) fn up_to(most: usize) -> Self {
        Window { size: most.min(FIRST), most }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// So many messages were acknowledged in time.
    pub(super) fn settled(&mut self, messages: usize) {
        self.size = self.size.saturating_add(messages).min(self.most);
    }

    /// Leases expired, or could hardly be extended in time.
    pub(super) fn lost(&mut self) {
        self.size = (self.size / 2).max(LEAST).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_with_what_is_acknowledged_and_is_halved_by_a_loss() {
        let mut window = Window::up_to(1000);
        assert_eq!(window.size(), 256);
        window.settled(256);
        assert_eq!(window.size(), 512);
        window.settled(10_000);
        assert_eq!(window.size(), 1000);
        window.lost();
        assert_eq!(window.size(), 500);
        (0..20).for_each(|_| window.lost());
        assert_eq!(window.size(), 16, "it never closes");
    }

    #[test]
    fn a_window_is_never_larger_than_the_subscription_allows() {
        let mut window = Window::up_to(4);
        window.lost();
        window.settled(100);
        assert_eq!(window.size(), 4);
    }
}

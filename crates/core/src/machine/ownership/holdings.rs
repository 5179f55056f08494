use std::collections::BTreeMap;

/// The partitions that a process owns, each with what the adapter keeps for it.
#[derive(Debug)]
pub struct Holdings<P: Ord, T> {
    held: BTreeMap<P, Holding<T>>,
}

/// An owned partition.
#[derive(Debug)]
pub struct Holding<T> {
    /// The epoch in which it is owned.
    pub epoch: u64,
    /// Whether messages may be delivered from it.
    pub phase: Phase,
    /// What the adapter keeps for it: above all, what is in flight.
    pub item: T,
}

/// What an owner does with a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Delivers from it.
    Delivering,
    /// Delivers nothing new. It is given back when nothing of it is in flight.
    Draining,
    /// Delivers nothing: messages may be missing. It has to be taken again in a new epoch, which
    /// reads it from the first message that is not acknowledged.
    Broken,
}

/// The process does not own the partition in this epoch, or cannot be certain that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOwner;

impl<P: Ord, T> Default for Holdings<P, T> {
    fn default() -> Self {
        Holdings { held: BTreeMap::new() }
    }
}

impl<P: Ord + Clone, T> Holdings<P, T> {
    /// The process owns a partition from now on. What it held of an earlier epoch is returned, and
    /// nothing of that can be acknowledged any more.
    pub fn begin(&mut self, partition: P, epoch: u64, item: T) -> Option<Holding<T>> {
        self.held.insert(partition, Holding { epoch, phase: Phase::Delivering, item })
    }

    /// The process does not own a partition any more.
    pub fn end(&mut self, partition: &P) -> Option<Holding<T>> {
        self.held.remove(partition)
    }

    /// Ends what does not fulfil a condition on partition and epoch, and returns it.
    pub fn retain(&mut self, keep: impl Fn(&P, u64) -> bool) -> Vec<(P, Holding<T>)> {
        self.held.extract_if(.., |partition, held| !keep(partition, held.epoch)).collect()
    }

    /// What is kept for a partition, if it is owned in this epoch.
    ///
    /// # Errors
    /// [`NotOwner`] otherwise: the delivery belongs to an earlier epoch.
    pub fn admit(&mut self, partition: &P, epoch: u64) -> Result<&mut T, NotOwner> {
        let held = self.held.get_mut(partition).filter(|held| held.epoch == epoch);
        held.map(|held| &mut held.item).ok_or(NotOwner)
    }

    /// An owned partition.
    pub fn get(&self, partition: &P) -> Option<&Holding<T>> {
        self.held.get(partition)
    }

    /// An owned partition.
    pub fn get_mut(&mut self, partition: &P) -> Option<&mut Holding<T>> {
        self.held.get_mut(partition)
    }

    /// All owned partitions.
    pub fn iter(&self) -> impl Iterator<Item = (&P, &Holding<T>)> {
        self.held.iter()
    }

    /// All owned partitions.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&P, &mut Holding<T>)> {
        self.held.iter_mut()
    }

    /// What is kept for all owned partitions.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.held.values().map(|held| &held.item)
    }

    /// What is kept for all owned partitions.
    pub fn items_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.held.values_mut().map(|held| &mut held.item)
    }

    /// The partitions to deliver from, starting with another one each `turn`, so that a busy one
    /// does not starve the rest.
    pub fn deliverable(&self, turn: usize) -> Vec<P> {
        let delivering = self.held.iter().filter(|(_, held)| held.phase == Phase::Delivering);
        let mut partitions: Vec<P> = delivering.map(|(partition, _)| partition.clone()).collect();
        let first = turn % partitions.len().max(1);
        partitions.rotate_left(first);
        partitions
    }

    /// How many partitions are owned.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is owned.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<T> Holding<T> {
    /// Stops delivering, because the partition is to move.
    pub fn drain(&mut self) {
        if self.phase == Phase::Delivering {
            self.phase = Phase::Draining;
        }
    }

    /// Delivers again, because the partition stays after all. One that is broken stays broken.
    pub fn keep(&mut self) {
        if self.phase == Phase::Draining {
            self.phase = Phase::Delivering;
        }
    }
}

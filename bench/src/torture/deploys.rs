//! Consumers that join, leave and change: a new version that reads one more topic is rolled out process by process, a
//! consumer starts that has never run, and processes come and go.

use anyhow::Result;
use fastrand::Rng;

use super::crew::Role;
use super::faults::Schedule;
use super::operators::Acts;
use super::plan::Fault;
use super::{CONSUMERS, Hiring};

/// Deploys until it is over; in the end every process runs the new version.
pub(super) async fn happen(
    schedule: &Schedule<'_>,
    hiring: &Hiring<'_>,
    acts: &Acts,
    mut dice: Rng,
) -> Result<()> {
    let mut order: Vec<usize> = (0..CONSUMERS).collect();
    dice.shuffle(&mut order);
    let deploy = |index: usize, newcomer: bool| {
        let args = hiring.consumer(index, 2, newcomer);
        schedule.crew.deploy(Role::Consumer, index, args);
    };
    // Two versions side by side for some seconds; the old one restarts meanwhile.
    for index in &order {
        schedule.pause(dice.u64(1500..4000)).await;
        if schedule.stop.is_cancelled() {
            return Ok(());
        }
        (schedule.say)(&format!("deploys: version 2 of consumer {index}"));
        deploy(*index, false);
        schedule.tolls.add(Fault::Deploys, 1, "processes of another version", 1);
        if let Some(old) = order.last().filter(|old| *old != index) {
            schedule.pause(dice.u64(500..1500)).await;
            schedule.crew.restart(Role::Consumer, *old);
        }
    }
    schedule.pause(dice.u64(500..2500)).await;
    if schedule.stop.is_cancelled() {
        return Ok(());
    }
    (schedule.say)("deploys: a consumer that has never run");
    acts.start_newcomer();
    for index in &order {
        deploy(*index, true);
        schedule.pause(dice.u64(500..1500)).await;
    }
    schedule.tolls.add(Fault::Deploys, 1, "new consumers", 1);
    // One process leaves and joins again.
    while !schedule.stop.is_cancelled() {
        let index = order[dice.usize(0..order.len())];
        schedule.pause(dice.u64(1000..4000)).await;
        schedule.crew.leave(Role::Consumer, index);
        schedule.pause(dice.u64(500..3000)).await;
        deploy(index, true);
        schedule.tolls.add(Fault::Deploys, 1, "processes that left and joined", 1);
    }
    Ok(())
}

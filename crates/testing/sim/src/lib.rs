//! Gateway, nodes and callers on a simulated network and a simulated clock: races that can be replayed.
//!
//! [`run`] takes a seed and makes everything of it: which calls are made and how they behave, when links are cut, held and
//! mended, when hosts are killed and come back, how long each message travels, who is scheduled first. What runs is the
//! code of the product: the router and its directory, the node sessions, the WebSockets, the node SDK. The same seed is
//! the same run, to the last event, which [`Report::trace`] shows and a test checks.
//!
//! What is left out: the store, which has a thread of its own, and with it all that needs it (tokens, idempotency keys,
//! the HTTP surfaces). A caller is a task beside the router, which waits, cancels or leaves as a surface would.

mod caller;
mod gateway;
mod ghost;
mod node;
mod plan;
mod rules;
mod world;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plan::{Fault, Plan};
use world::World;

/// How long after the last fault everything must be in order again: a node that hears nothing notices after half a minute,
/// tries for ten seconds to connect, and waits before it tries again.
const SETTLE: Duration = Duration::from_secs(75);
/// How long the last calls may take, after which nothing must be left of any.
const PROBES: Duration = Duration::from_secs(20);

pub const GATEWAY: &str = "gateway";
pub const GHOST: &str = "ghost";
/// Ids of the nodes, and names of their hosts.
pub const NODES: [&str; 2] = ["alpha", "beta"];

/// What one seed led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Everything that happened, in order.
    pub trace: Vec<String>,
    /// Rules that were broken.
    pub broken: Vec<String>,
}

/// One at a time in each process; see [`count_tasks_from_the_same_number`].
static TURN: Mutex<()> = Mutex::new(());

/// Runs the simulation that the seed describes.
pub fn run(seed: u64) -> Report {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    count_tasks_from_the_same_number();
    let plan = Plan::new(seed);
    let world = World::new();
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .enable_random_order()
        .tick_duration(plan.tick)
        .simulation_duration(Duration::MAX)
        .min_message_latency(plan.latency.0)
        .max_message_latency(plan.latency.1)
        .build();
    {
        let (plan, world) = (plan.clone(), world.clone());
        sim.host(GATEWAY, move || gateway::run(world.clone(), plan.clone()));
    }
    for (index, id) in NODES.into_iter().enumerate() {
        let (world, seed) = (world.clone(), plan.jitter[index]);
        sim.host(id, move || node::run(world.clone(), id, seed));
    }
    // Each host costs time in every step.
    if plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::Haunt(_))) {
        let world = world.clone();
        sim.host(GHOST, move || ghost::run(world.clone()));
    }

    let mut faults = plan.faults.into_iter().peekable();
    let healed = plan.healed;
    let (settled, over) = (healed + SETTLE, healed + SETTLE + PROBES);
    while sim.elapsed() < over && !world.state().probed {
        world.at(sim.elapsed());
        while let Some((_, fault)) = faults.next_if(|(at, _)| *at <= sim.elapsed()) {
            world.note("fault", &format!("{fault:?}"));
            apply(&mut sim, &world, fault);
        }
        if sim.elapsed() >= settled {
            world.settle();
        }
        if let Err(error) = sim.step() {
            world.broken(format!("the simulation stopped: {error}"));
            break;
        }
    }
    rules::check(&world, plan.tick);
    // Before the world is read for the last time: what is dropped with the hosts has nothing to say any more.
    let report = world.report();
    drop(sim);
    report
}

/// When a host crashes, tokio drops its tasks in an order that goes by the last bits of their numbers, and they are numbered
/// for the whole process.
fn count_tasks_from_the_same_number() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime needs nothing that can be short");
    let next = || runtime.spawn(async {}).id().to_string().parse::<u64>().expect("a task's id is a number");
    while next() % 1_024 != 0 {}
}

fn apply(sim: &mut turmoil::Sim<'_>, world: &World, fault: Fault) {
    match fault {
        Fault::Partition(node) => sim.partition(GATEWAY, node),
        Fault::Deafen(node) => sim.partition_oneway(GATEWAY, node),
        Fault::Mute(node) => sim.partition_oneway(node, GATEWAY),
        Fault::Repair(node) => sim.repair(GATEWAY, node),
        Fault::Hold(node) => sim.hold(GATEWAY, node),
        Fault::Release(node) => sim.release(GATEWAY, node),
        Fault::Latency(node, latency) => sim.set_link_max_message_latency(GATEWAY, node, latency),
        Fault::Crash(host) => {
            if host == GATEWAY {
                world.gateway_down();
            }
            sim.crash(host);
        }
        Fault::Start(host) => sim.bounce(host),
        Fault::Stop(node) => world.stop(node),
        Fault::Haunt(node) => world.haunt(node),
    }
}

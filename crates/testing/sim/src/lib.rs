//! Runs a gateway, nodes and callers on a simulated network and clock, to find races that can be
//! replayed.
//!
//! [`run`] derives everything from a seed: the calls, link faults and repairs, crashes and restarts
//! of hosts, message latencies and the scheduling order. The simulation runs the product's code:
//! the router and its directory, the node sessions, the WebSockets and the node SDK. The same seed
//! gives the same run, to the last event. [`Report::trace`] shows it and a test checks it.
//!
//! The simulation leaves out the store, which has its own thread, and everything that needs it:
//! tokens, idempotency keys and the HTTP APIs. A caller is a task next to the router, which waits,
//! cancels or leaves like an API handler.

mod caller;
mod gateway;
mod ghost;
mod node;
mod plan;
mod rules;
mod world;

use std::time::Duration;

use parking_lot::Mutex;
use plan::{Fault, Plan};
use world::World;

/// The time after the last fault within which everything must have recovered. A node without
/// messages notices after half a minute. It tries to connect for ten seconds and waits before it
/// tries again.
const SETTLE: Duration = Duration::from_secs(75);
/// The time limit for the last calls, after which no call may be left.
const PROBES: Duration = Duration::from_secs(20);

pub const GATEWAY: &str = "gateway";
pub const GHOST: &str = "ghost";
/// The ids of the nodes, and the names of their hosts.
pub const NODES: [&str; 2] = ["alpha", "beta"];

/// The result of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Everything that happened, in order.
    pub trace: Vec<String>,
    /// The rules that were broken.
    pub broken: Vec<String>,
}

/// Only one simulation runs at a time in each process; see [`count_tasks_from_the_same_number`].
static TURN: Mutex<()> = Mutex::new(());

/// Runs the simulation that the seed describes.
pub fn run(seed: u64) -> Report {
    let _turn = TURN.lock();
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
    // Each host costs time in every step, so this one is added only if needed.
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
    // Reads the report before the hosts are dropped, because events from their drop do not count.
    let report = world.report();
    drop(sim);
    report
}

/// Aligns the task ids. When a host crashes, tokio drops its tasks in an order that depends on the
/// last bits of their ids. Ids count for the whole process.
fn count_tasks_from_the_same_number() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime needs nothing that can be short");
    let next = || {
        runtime.spawn(async {}).id().to_string().parse::<u64>().expect("a task's id is a number")
    };
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

//! Agents on machines of their own, as far as the network can tell: one network namespace each, on one bridge.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use super::world::{Agent, World, meet, until};

/// Namespaces with one address each, on a bridge in one more. They are gone when it is dropped.
struct Network {
    names: Vec<String>,
    hub: String,
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.hub]) {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new("ip").args(args.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("ip {args}: {}", said.trim()))
}

impl Network {
    fn new(machines: usize) -> Result<Self, String> {
        let id = std::process::id();
        let hub = format!("peerlock-{id}-hub");
        let mut network = Self { names: Vec::new(), hub: hub.clone() };
        ip(&format!("netns add {hub}"))?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for n in 1..=machines {
            let name = format!("peerlock-{id}-{n}");
            ip(&format!("netns add {name}"))?;
            network.names.push(name.clone());
            ip(&format!("-n {hub} link add m{n} type veth peer name eth0 netns {name}"))?;
            ip(&format!("-n {hub} link set m{n} master bridge"))?;
            ip(&format!("-n {hub} link set m{n} up"))?;
            ip(&format!("-n {name} addr add 10.77.0.{n}/24 dev eth0"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(network)
    }

    /// Pulls the plug of a machine, or puts it back.
    fn plug(&self, machine: usize, state: &str) {
        ip(&format!("-n {} link set m{machine} {state}", self.hub)).unwrap();
    }
}

/// This many machines; none if this one cannot make them. CI must.
fn network(machines: usize) -> Option<Network> {
    let made = Network::new(machines);
    let can = nix::unistd::geteuid().is_root() && Command::new("ip").arg("-V").output().is_ok();
    if let Err(why) = &made {
        assert!(std::env::var("PEERLOCK_CI").is_err() || !can, "{why}");
        eprintln!("skipped, for it needs root, `ip` and network namespaces: {why}");
    }
    made.ok()
}

fn address(machine: usize) -> SocketAddr {
    format!("10.77.0.{machine}:7400").parse().unwrap()
}

/// An agent on a machine, that listens on all its addresses.
async fn agent(world: &mut World, network: &Network, machine: usize, join: &[usize]) -> Agent {
    let join: Vec<SocketAddr> = join.iter().map(|machine| address(*machine)).collect();
    let (agent, socket) = world.agent_command("0.0.0.0:7400".parse().unwrap(), &join, "ours");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &network.names[machine - 1]]).arg(agent.get_program()).args(agent.get_args());
    let output = world.output("agent", world.agents());
    command.stdout(output.try_clone().unwrap()).stderr(output);
    world.start_agent(command, socket).await
}

/// Three machines, of which the second and the third know only the first. Then the third is cut off for longer than a
/// lease, and comes back.
#[tokio::test]
async fn three_machines_one_of_which_is_cut_off_and_comes_back() {
    let Some(network) = network(3) else { return };
    let mut world = World::new(2, Duration::from_secs(3), Duration::from_millis(2));
    let mut agents = Vec::new();
    for (machine, join) in [(1, &[][..]), (2, &[1]), (3, &[1])] {
        agents.push(agent(&mut world, &network, machine, join).await);
    }
    meet(&agents, 3).await;
    for (agent, others) in agents.iter().zip([[2, 3], [1, 3], [1, 2]]) {
        let peers = agent.talk.peers().await.unwrap();
        let mut seen: Vec<_> = peers.iter().filter(|peer| !peer.is_me).map(|peer| peer.address.clone()).collect();
        seen.sort();
        assert_eq!(seen, others.map(|machine| address(machine).to_string()), "found where they are seen");
    }
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], u64::MAX, n % 2 == 0)).collect();
    world.more(50).await;

    network.plug(3, "down");
    meet(&agents[..2], 2).await;
    network.plug(3, "up");
    meet(&agents, 3).await;

    // Clients may have given up meanwhile; whoever comes now comes in.
    clients.extend(agents.iter().map(|agent| world.client(agent, u64::MAX, true)).collect::<Vec<_>>());
    for client in &clients[6..] {
        until("new clients come in", async || (world.tally().of(client.number) > 0).then_some(())).await;
    }
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, given up: {:?}", summary.all(), summary.errors);
}

//! Machines for network tests: network namespaces, connected by bridges. Needs root and `ip`.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::world::{Started, World};

/// Namespaces with one address each, connected by two bridges in another namespace. Deleted when dropped.
pub struct Network {
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("ip {args}: {}", stderr.trim()))
}

impl Network {
    fn new(machines: usize) -> Result<Self, String> {
        static NETWORKS: AtomicU64 = AtomicU64::new(0);
        let id = format!("{}-{}", std::process::id(), NETWORKS.fetch_add(1, Ordering::Relaxed));
        let hub = format!("peerlock-{id}-hub");
        let mut network = Self { names: Vec::new(), hub: hub.clone() };
        ip(&format!("netns add {hub}"))?;
        for bridge in ["here", "there"] {
            ip(&format!("-n {hub} link add {bridge} type bridge"))?;
            ip(&format!("-n {hub} link set {bridge} up"))?;
        }
        for n in 1..=machines {
            let name = format!("peerlock-{id}-{n}");
            ip(&format!("netns add {name}"))?;
            network.names.push(name.clone());
            ip(&format!("-n {hub} link add m{n} type veth peer name eth0 netns {name}"))?;
            ip(&format!("-n {hub} link set m{n} master here"))?;
            ip(&format!("-n {hub} link set m{n} up"))?;
            ip(&format!("-n {name} addr add 10.77.0.{n}/24 dev eth0"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(network)
    }

    pub fn command(&self, machine: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[machine - 1], program]);
        command
    }

    pub fn plug(&self, machine: usize, state: &str) {
        ip(&format!("-n {} link set m{machine} {state}", self.hub)).unwrap();
    }

    pub fn split(&self, there: &[usize]) {
        for machine in 1..=self.names.len() {
            let bridge = if there.contains(&machine) { "there" } else { "here" };
            ip(&format!("-n {} link set m{machine} master {bridge}", self.hub)).unwrap();
        }
    }

    pub fn deafen(&self, from: usize, to: &[usize]) {
        for machine in to {
            // A link-layer address that no interface has.
            let absent = format!("{} lladdr 02:00:00:00:00:01 nud permanent dev eth0", address(*machine).ip());
            ip(&format!("-n {} neigh replace {absent}", self.names[from - 1])).unwrap();
        }
    }

    pub fn undeafen(&self, from: usize, to: &[usize]) {
        for machine in to {
            let target = format!("{} dev eth0", address(*machine).ip());
            ip(&format!("-n {} neigh del {target}", self.names[from - 1])).unwrap();
        }
    }
}

/// Returns this many machines, or `None` if they cannot be created, which fails the test in CI.
pub fn network(machines: usize) -> Option<Network> {
    let made = Network::new(machines);
    let can = nix::unistd::geteuid().is_root() && Command::new("ip").arg("-V").output().is_ok();
    if let Err(why) = &made {
        assert!(std::env::var("PEERLOCK_CI").is_err() || !can, "{why}");
        eprintln!("skipped: this needs root, `ip` and network namespaces: {why}");
    }
    made.ok()
}

pub fn address(machine: usize) -> SocketAddr {
    format!("10.77.0.{machine}:7400").parse().unwrap()
}

pub fn launch_on(world: &mut World, network: &Network, machine: usize, join: &[usize], more: &[&str]) -> Started {
    let join: Vec<SocketAddr> = join.iter().map(|machine| address(*machine)).collect();
    let (agent, socket) = world.agent_command("0.0.0.0:7400".parse().unwrap(), &join, "ours");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &network.names[machine - 1]]).arg(agent.get_program()).args(agent.get_args());
    let output = world.output("agent", world.agents());
    command.args(more).stdout(output.try_clone().unwrap()).stderr(output);
    world.launch(command, socket)
}

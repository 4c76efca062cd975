//! Agents that advertise another address than they listen at.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::world::{World, meet};

#[tokio::test]
async fn agent_is_dialled_at_its_advertised_address() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let first = world.agent(&[]).await;
    let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let (mut command, socket) = world.agent_command(listen, &[first.address], "ours");
    command.args(["--advertise", "127.0.0.2:0"]);
    let second = world.start_agent(command, socket).await;
    let third = world.agent(&[first.address]).await;
    let agents = [first, second, third];
    meet(&agents, 3).await;
    let expected = agents[1].address.to_string();
    assert!(expected.starts_with("127.0.0.2:") && !expected.ends_with(":0"), "{expected}");
    for agent in [&agents[0], &agents[2]] {
        let peers = agent.api.peers().await.unwrap();
        assert!(peers.iter().any(|peer| peer.up && peer.address == expected), "{peers:?}");
    }
    let mut clients: Vec<_> = agents.iter().map(|agent| world.client(agent, 5, true)).collect();
    for client in &mut clients {
        assert!(client.ends().await.success());
    }
    assert_eq!(world.check().all(), 15);
}

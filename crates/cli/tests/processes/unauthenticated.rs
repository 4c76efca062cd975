//! Connections without the cluster secret, at a port of a working cluster.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpSocket;

use super::world::{ANY_PORT, ENDLESS, World, meet, metric, until, until_written};

async fn silent(port: SocketAddr, count: u32) -> Vec<tokio::net::TcpStream> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let mut all = Vec::new();
    for number in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("127.0.0.{}:0", 2 + number % 250).parse().unwrap()).unwrap();
        all.push(socket.connect(port).await.unwrap());
    }
    all
}

#[tokio::test]
async fn unauthenticated_connections_do_not_disturb_the_cluster() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::from_millis(1));
    let mut agents = world.cluster(2).await;
    let mut clients: Vec<_> = (0..4).map(|n| world.client(&agents[n % 2], ENDLESS, true)).collect();
    world.more(20).await;
    let port = agents[0].address;

    let (command, _) = world.agent_command(ANY_PORT, &[port], "theirs");
    let mut unauthenticated = world.spawn(command);
    assert_eq!(unauthenticated.ends().await.code(), Some(69));
    until_written(&world.path(&format!("agent-{:02}.log", unauthenticated.number)), "the cluster secrets differ").await;
    world.more(20).await;

    // Connections that close at once, that send random bytes, and that send nothing.
    for _ in 0..50 {
        drop(TcpStream::connect(port).unwrap());
    }
    for _ in 0..20 {
        let noise: Vec<u8> = (0..2_000).map(|_| world.rng.bits() as u8).collect();
        let _ = TcpStream::connect(port).unwrap().write_all(&noise);
    }
    let idle = silent(port, 1000).await;
    world.more(50).await;

    let late = world.agent(&[port]).await;
    clients.push(world.client(&late, ENDLESS, true));
    agents.push(late);
    meet(&agents, 3).await;
    world.more(20).await;
    drop(idle);
    world.stop();
    for client in &mut clients {
        assert!(client.ends().await.success());
    }
    let summary = world.check();
    assert_eq!((&summary.lost[..], &summary.errors[..]), (&[][..], &[][..]));
    assert!(clients.iter().all(|client| summary.of(client.number) > 0));
    until("all connections counted", async || {
        (metric(&agents[0], "unauthenticated_connections_total") >= 50 + 20 + 1000).then_some(())
    })
    .await;
    assert!(world.output_of(agents[0].process.number).contains("a connection was refused"));
}

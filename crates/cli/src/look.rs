//! `peerlock ls`, `show`, `peers` and `watch`: what an agent sees.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use peerlock::{ClientView, Event, Happening, PeerId, PeerView, ResourceDetails, ResourceView};
use serde::Serialize;
use serde_json::json;

use crate::Result;
use crate::by_hand::part;
use crate::client::{AgentArgs, print};
use crate::run::roughly;

/// How the answer is wanted, and from whom.
#[derive(Args)]
struct Asked {
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// List the resources that the agent knows of
#[derive(Args)]
#[command(after_help = "Example:\n  peerlock ls\n  peerlock ls --json | jq -r '.[].name'")]
pub struct Ls {
    #[command(flatten)]
    asked: Asked,
}

/// Show who holds the slots of a resource and who waits, in the whole cluster
#[derive(Args)]
#[command(after_help = "Example:\n  peerlock show backup\n  peerlock show --json backup | jq '.queue | length'")]
pub struct Show {
    /// The resource
    name: String,
    #[command(flatten)]
    asked: Asked,
}

/// List the peers that the agent knows, itself first
#[derive(Args)]
pub struct Peers {
    #[command(flatten)]
    asked: Asked,
}

/// Follow what happens at the agent, one line per event
#[derive(Args)]
#[command(after_help = "Example:\n  peerlock watch backup\n  peerlock watch --json | jq 'select(.event == \"lost\")'")]
pub struct Watch {
    /// Only this resource
    name: Option<String>,
    #[command(flatten)]
    asked: Asked,
}

impl Asked {
    fn answer<T: Serialize>(&self, seen: &T, table: impl Fn(&T) -> String) -> Result<ExitCode> {
        print(&if self.json { json!(seen).to_string() + "\n" } else { table(seen) })?;
        Ok(ExitCode::SUCCESS)
    }
}

pub async fn ls(options: &Ls) -> Result<ExitCode> {
    options.asked.answer(&options.asked.agent.agent().await?.resources().await?, |all| resources(all))
}

pub async fn show(options: &Show) -> Result<ExitCode> {
    options.asked.answer(&options.asked.agent.agent().await?.show(&options.name).await?, details)
}

pub async fn peers(options: &Peers) -> Result<ExitCode> {
    options.asked.answer(&options.asked.agent.agent().await?.peers().await?, |all| known(all))
}

pub async fn watch(options: &Watch) -> Result<ExitCode> {
    let mut events = options.asked.agent.agent().await?.events(options.name.as_deref()).await?;
    while let Some(happening) = events.next().await? {
        let text = if options.asked.json { json!(happening).to_string() } else { line(&happening) };
        print(&(text + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Columns as wide as what is in them, with their names above.
pub fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(heads.map(str::to_uppercase)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

fn resources(all: &[ResourceView]) -> String {
    let row = |resource: &ResourceView| {
        let slots = resource.slots.map_or_else(|| "…".into(), |slots| slots.to_string());
        [resource.name.to_string(), slots, resource.holding_here.to_string(), resource.waiting_here.to_string()]
    };
    table(["name", "slots", "held here", "waiting here"], all.iter().map(row).collect())
}

fn details(details: &ResourceDetails) -> String {
    let who = |client: &Option<ClientView>| client.as_ref().map_or_else(|| "?".into(), |client| client.label.clone());
    let age = |client: &Option<ClientView>| client.as_ref().map_or_else(String::new, |client| roughly(client.age));
    let token = |client: &Option<ClientView>| client.as_ref().and_then(|client| client.fencing);
    let host = |name: &str, peer: PeerId| if name.is_empty() { peer.to_string() } else { name.to_owned() };
    let ends = |client: &Option<ClientView>| client.as_ref()?.ends.map(roughly);
    let mut rows: Vec<[String; 6]> = Vec::new();
    for slot in &details.holders {
        let place = format!("slot {}", slot.slot);
        let (who, age) =
            if slot.free { ("free".into(), String::new()) } else { (who(&slot.client), age(&slot.client)) };
        let token = token(&slot.client).map_or_else(String::new, |token| token.to_string());
        let ends = ends(&slot.client).unwrap_or_default();
        let ends = if slot.detached { format!("{ends}, detached") } else { ends };
        rows.push([place, token, age, ends, host(&slot.host, slot.peer), who]);
    }
    for (place, waiter) in details.queue.iter().enumerate() {
        let place = format!("wait {}", place + 1);
        let (age, host) = (age(&waiter.client), host(&waiter.host, waiter.peer));
        rows.push([place, String::new(), age, String::new(), host, who(&waiter.client)]);
    }
    let of = |count: usize, what: &str| format!("{count} {what}");
    let held = details.holders.iter().filter(|slot| !slot.free).count();
    let head =
        format!("{}: {} of {} slots held, {}\n", details.name, held, details.slots, of(details.queue.len(), "waiting"));
    head + &table(["place", "token", "for", "ends in", "host", "who"], rows)
}

fn known(all: &[PeerView]) -> String {
    let row = |peer: &PeerView| {
        let state = match (peer.is_me, peer.up) {
            (true, _) => "this one",
            (false, true) => "up",
            (false, false) => "down",
        };
        let unknown = || "?".to_owned();
        let session = peer.session.map_or_else(|| "none".to_owned(), |session| session.to_string());
        [
            if peer.name.is_empty() { unknown() } else { peer.name.clone() },
            peer.address.clone(),
            state.to_owned(),
            roughly(peer.since),
            part(peer.voter).to_owned(),
            session,
            peer.version.map_or_else(unknown, |version| version.to_string()),
            peer.peer.to_string(),
        ]
    };
    table(["host", "address", "state", "for", "votes", "session", "version", "number"], all.iter().map(row).collect())
}

/// One event for a person: time, resource, what.
fn line(happening: &Happening) -> String {
    let seconds = happening.at.as_secs() % 86_400;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let what = match &happening.event {
        Event::Waiting { label, ahead: Some(ahead), .. } => format!("waits with {ahead} ahead: {label}"),
        Event::Waiting { label, ahead: None, .. } => format!("waits: {label}"),
        Event::Granted { label, slot, fencing, waited, .. } => {
            format!("has slot {slot} with token {fencing} after {}: {label}", roughly(*waited))
        }
        Event::Released { held, .. } => format!("released after {}", roughly(*held)),
        Event::Withdrawn { why, .. } => format!("waits no more: {why}"),
        Event::Lost { .. } => "lost its slot".into(),
        Event::PeerUp { peer, address } => format!("peer {peer} is up at {address}"),
        Event::PeerDown { peer, why } => format!("peer {peer} is down: {why}"),
        Event::Unreached { address, why } => format!("nobody was reached at {address}: {why}"),
        Event::Missed { count } => format!("{count} events were too fast for us"),
        other => other.kind().replace('_', " "),
    };
    let who = happening.event.client().map_or_else(String::new, |(name, ticket)| format!("{name} #{ticket} "));
    format!("{hour:02}:{minute:02}:{second:02}Z {who}{what}")
}

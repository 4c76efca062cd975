//! `peerlock ls`, `show`, `peers` and `watch`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use peerlock::{
    ClientView, Event, Happening, Listing, Name, PeerId, PeerView, ResourceDetails, ResourceView, SlotView,
};
use peerlock_types::visible;
use serde::Serialize;
use serde_json::json;

use crate::Result;
use crate::admin::{find, role};
use crate::client::{AgentArgs, print};
use crate::run::roughly;

/// The options of a command that prints an answer.
#[derive(Args)]
pub struct QueryArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// List the resources of the cluster by name
#[derive(Args)]
#[command(
    after_help = "Examples:\n  peerlock ls\n  peerlock ls backup/\n  peerlock ls --limit 100 --after backup/db7\n  \
                        peerlock ls --json | jq -r '.[].name'"
)]
pub struct Ls {
    /// Only names with this prefix
    prefix: Option<String>,
    /// Only names after this one, for the next page
    #[arg(long, value_name = "NAME")]
    after: Option<Name>,
    /// At most this many [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    #[command(flatten)]
    query: QueryArgs,
}

/// Show the holders and the queue of a resource, in the whole cluster
#[derive(Args)]
#[command(after_help = "Examples:\n  peerlock show backup\n  peerlock show --json backup | jq '.queue | length'")]
pub struct Show {
    /// Name of the resource
    name: String,
    #[command(flatten)]
    query: QueryArgs,
}

/// List the peers that the agent knows, itself first
#[derive(Args)]
pub struct Peers {
    /// Remove a member that will not return, by name, number or address
    ///
    /// Refused while it has a session, votes, or has given a detached grant that is valid. If it returns, it joins like
    /// a new host.
    #[arg(long, value_name = "HOST")]
    forget: Option<String>,
    #[command(flatten)]
    query: QueryArgs,
}

/// Print the events of the agent, one line each
#[derive(Args)]
#[command(after_help = "Examples:\n  peerlock watch backup\n  peerlock watch --json | jq 'select(.event == \"lost\")'")]
pub struct Watch {
    /// Only events of this resource
    name: Option<String>,
    #[command(flatten)]
    query: QueryArgs,
}

impl QueryArgs {
    pub fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) -> Result<ExitCode> {
        print(&if self.json { json!(answer).to_string() + "\n" } else { text(answer) })?;
        Ok(ExitCode::SUCCESS)
    }
}

pub async fn ls(options: &Ls) -> Result<ExitCode> {
    let Ls { prefix, after, limit, query } = options;
    let listing = Listing { prefix: prefix.clone().unwrap_or_default(), after: after.clone(), limit: *limit };
    query.print(&query.agent.agent().await?.list(&listing).await?, |all| resource_table(all))
}

pub async fn show(options: &Show) -> Result<ExitCode> {
    options.query.print(&options.query.agent.agent().await?.show(&options.name).await?, details)
}

pub async fn peers(options: &Peers) -> Result<ExitCode> {
    let client = options.query.agent.agent().await?;
    if let Some(name) = &options.forget {
        let host = find(&client.cluster().await?.peers, name)?;
        client.forget(host).await?;
        return options.query.print(&json!({}), |_| format!("{name} is no longer a member\n"));
    }
    options.query.print(&client.peers().await?, |all| peer_table(all))
}

pub async fn watch(options: &Watch) -> Result<ExitCode> {
    let client = options.query.agent.agent().await?;
    let mut events = client.events(options.name.as_deref()).await?;
    let mut hosts = BTreeMap::new();
    while let Some(happening) = events.next().await? {
        if let Event::PeerUp { peer, .. } | Event::PeerDown { peer, .. } = &happening.event
            && !options.query.json
            && !hosts.contains_key(peer)
        {
            let known = client.peers().await.unwrap_or_default();
            hosts.extend(known.into_iter().filter(|peer| !peer.name.is_empty()).map(|peer| (peer.peer, peer.name)));
        }
        let text = if options.query.json { json!(happening).to_string() } else { line(&happening, &hosts) };
        print(&(text + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Escapes control characters, since labels come from other members.
pub fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> String {
    let rows = rows.into_iter().map(|row| row.map(|cell| visible(&cell).into_owned()));
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

fn resource_table(all: &[ResourceView]) -> String {
    let row = |resource: &ResourceView| {
        let slots = resource.slots.map_or_else(|| "…".into(), |slots| slots.to_string());
        [resource.name.to_string(), slots, resource.holding_here.to_string(), resource.waiting_here.to_string()]
    };
    table(["name", "slots", "held here", "waiting here"], all.iter().map(row).collect())
}

const PLACES: [&str; 7] = ["place", "fencing", "for", "ends in", "host", "pid", "client"];

fn details(details: &ResourceDetails) -> String {
    let ResourceDetails { name, slots, queue, generation, .. } = details;
    let waiting = queue.iter().enumerate().map(|(place, waiter)| {
        let client = Cells::of(waiter.client.as_ref());
        let [place, host] = [format!("wait {}", place + 1), host_name(&waiter.host, waiter.peer)];
        [place, String::new(), client.age, String::new(), host, client.pid, client.label]
    });
    let rows: Vec<_> = details.holders.iter().map(holder).chain(waiting).collect();
    let held = details.holders.iter().filter(|slot| !slot.free).count();
    let head =
        format!("{name}: {held} of {slots} slots held, {} waiting; generation {generation}\n", details.queue.len());
    let period = details.period.as_ref().map(|period| crate::run::describe_period(name.as_str(), period) + "\n");
    head + &period.unwrap_or_default() + &table(PLACES, rows)
}

pub fn holders(details: &ResourceDetails) -> String {
    table(PLACES, details.holders.iter().filter(|slot| !slot.free).map(holder).collect())
}

fn holder(slot: &SlotView) -> [String; PLACES.len()] {
    let (place, host) = (format!("slot {}", slot.slot), host_name(&slot.host, slot.peer));
    if slot.free {
        return [place, String::new(), String::new(), String::new(), host, String::new(), "free".into()];
    }
    let client = Cells::of(slot.client.as_ref());
    let ends = [client.ends.as_str(), if slot.detached { "detached" } else { "" }];
    let ends = ends.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    [place, client.fencing, client.age, ends, host, client.pid, client.label]
}

/// The label is `?` if the host has not reported it.
struct Cells {
    label: String,
    pid: String,
    age: String,
    fencing: String,
    ends: String,
}

impl Cells {
    fn of(client: Option<&ClientView>) -> Self {
        let cell = |of: &dyn Fn(&ClientView) -> Option<String>| client.and_then(of).unwrap_or_default();
        Self {
            label: client.map_or_else(|| "?".to_owned(), |client| client.label.clone()),
            pid: cell(&|client| client.pid.map(|pid| pid.to_string())),
            age: cell(&|client| Some(roughly(client.age))),
            fencing: cell(&|client| client.fencing.map(|fencing| fencing.to_string())),
            ends: cell(&|client| client.ends.map(roughly)),
        }
    }
}

pub fn host_name(name: &str, peer: PeerId) -> String {
    if name.is_empty() { peer.to_string() } else { name.to_owned() }
}

fn peer_table(all: &[PeerView]) -> String {
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
            role(peer.voter).to_owned(),
            session,
            peer.version.map_or_else(unknown, |version| version.to_string()),
            peer.peer.to_string(),
        ]
    };
    table(["host", "address", "state", "for", "votes", "session", "version", "number"], all.iter().map(row).collect())
}

fn line(happening: &Happening, hosts: &BTreeMap<PeerId, String>) -> String {
    let host = |peer: &PeerId| host_name(hosts.get(peer).map_or("", String::as_str), *peer);
    let seconds = happening.at.as_secs() % 86_400;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let what = match &happening.event {
        Event::Waiting { label, ahead: Some(ahead), .. } => format!("waits, {ahead} ahead: {label}"),
        Event::Waiting { label, ahead: None, .. } => format!("waits: {label}"),
        Event::Granted { label, slot, fencing, waited, .. } => {
            format!("acquired slot {slot}, fencing number {fencing}, after {}: {label}", roughly(*waited))
        }
        Event::Released { held, .. } => format!("released after {}", roughly(*held)),
        Event::Withdrawn { why, .. } => format!("withdrawn: {why}"),
        Event::Lost { why, .. } => format!("lost: {why}"),
        Event::PeerUp { peer, address } => format!("{} is up at {address}", host(peer)),
        Event::PeerDown { peer, why } => format!("{} is down: {why}", host(peer)),
        Event::Unreached { address, why } => format!("cannot connect to {address}: {why}"),
        Event::Missed { count } => format!("{count} events were dropped: output too slow"),
        other => other.kind().replace('_', " "),
    };
    let host = happening.event.client().map_or_else(String::new, |(name, ticket)| format!("{name} #{ticket} "));
    format!("{hour:02}:{minute:02}:{second:02}Z {}", visible(&format!("{host}{what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_members_are_escaped() {
        let rows = vec![["slot 0".to_owned(), "\u{1b}]0;owned\u{7}\u{1b}[2Jred\n".to_owned()]];
        let shown = table(["place", "client"], rows);
        assert_eq!(shown.lines().count(), 2, "{shown:?}");
        assert!(shown.contains(r"\u{1b}]0;owned\u{7}\u{1b}[2Jred\u{a}"), "{shown:?}");
        let event = Event::PeerDown { peer: PeerId::new(7), why: "\u{1b}[2J".to_owned() };
        let happening = Happening { at: std::time::Duration::ZERO, event };
        assert!(!line(&happening, &BTreeMap::new()).contains('\u{1b}'));
        let hosts = BTreeMap::from([(PeerId::new(7), "db\u{1b}7".to_owned())]);
        assert!(line(&happening, &hosts).contains(r"db\u{1b}7 is down: "), "{}", line(&happening, &hosts));
    }
}

//! The cases with a delay between all processes: a hand-over takes as many delays as it has sequential messages.

use std::time::Duration;

use crate::floor::ping;
use crate::plan::{Pace, clients, peers};
use crate::relay::Network;
use crate::report::{Case, Message};
use crate::server::Server;
use crate::setting::{PEERS, Setting};
use crate::statistics::Times;
use crate::worker::{Launcher, first};
use crate::{Error, Options, Progress};

const CLIENTS: usize = PEERS;
const HOLDS: [u32; 2] = [0, 2];

#[derive(Default)]
pub struct Far {
    pub messages: Vec<Message>,
    pub cases: Vec<Case>,
}

pub fn steps(options: &Options, pace: &Pace) -> usize {
    let cases = options.delays.len() * (1 + options.against.len()) * HOLDS.len();
    if cases == 0 { 0 } else { 1 + pace.far_rounds * cases }
}

pub async fn measure(
    options: &Options,
    pace: &Pace,
    launcher: &Launcher<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Far, Error> {
    if options.delays.is_empty() {
        return Ok(Far::default());
    }
    progress(Progress::Step("starting peers with a relay".to_owned()));
    let mut network = Network::relayed(launcher).await?;
    let (_echo, address) = launcher.start(&["echo"]).await?;
    let address = first(&address).parse().map_err(std::io::Error::other)?;
    let mut probe = launcher.start(&["ping", &network.to(address).await?.to_string()]).await?.0;
    let mut groups = vec![peers(launcher, PEERS, &mut network).await?];
    let mut system = vec![("peerlock", "a lock between peers")];
    let mut servers: Vec<Server> = Vec::new();
    for &against in &options.against {
        let server = against.start(launcher, &mut network).await?;
        system.push((against.name(), server.what));
        groups.push(clients(launcher, against, &server).await?);
        servers.push(server);
    }

    let mut all: Vec<(Duration, Vec<u64>, Vec<Setting>)> =
        options.delays.iter().map(|&delay| (delay, Vec::new(), settings(&system, delay))).collect();
    for _ in 0..pace.far_rounds {
        for (delay, pings, settings) in &mut all {
            network.delay(*delay).await?;
            for setting in settings {
                progress(Progress::Step(format!("{}, delay {} ms", setting.system, delay.as_secs_f64() * 1e3)));
                pings.extend(ping(&mut probe, pace.far_pings, Duration::ZERO).await?);
                setting.contend(&mut groups[setting.group], *delay * pace.far_turn).await?;
            }
        }
    }
    let mut far = Far::default();
    for (delay, pings, settings) in all {
        let times = Times::of(pings);
        far.messages.push(Message { delay_ms: delay.as_secs_f64() * 1e3, times });
        far.cases.extend(settings.into_iter().map(|setting| setting.case((times, times))));
    }
    Ok(far)
}

fn settings(system: &[(&'static str, &'static str)], delay: Duration) -> Vec<Setting> {
    let mut settings = Vec::new();
    for hold in HOLDS {
        for (group, (system, what)) in system.iter().enumerate() {
            let setting = Setting::handover(group, system, what, CLIENTS).oversubscribed().hold(delay * hold);
            settings.push(Setting { delay, ..setting });
        }
    }
    settings
}

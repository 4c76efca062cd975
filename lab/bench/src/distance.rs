//! The cases with a delay between all processes: peers, a server's nodes, and a server and its clients. A hand-over
//! then takes as many delays as it has sequential messages; everything else is negligible.

use std::time::Duration;

use crate::crew::{Crew, said};
use crate::floor::ping;
use crate::plan::{Pace, clients, peers};
use crate::relay::Way;
use crate::report::{Case, Message};
use crate::server::Server;
use crate::setting::{PEERS, Setting};
use crate::statistics::Times;
use crate::{Error, Options, Progress};

/// One client per process.
const CLIENTS: usize = PEERS;
/// Hold times in message delays: none, and a round trip.
const HOLDS: [u32; 2] = [0, 2];

/// The results.
#[derive(Default)]
pub struct Far {
    pub messages: Vec<Message>,
    pub cases: Vec<Case>,
}

/// Returns the number of steps of [`measure`].
pub fn steps(options: &Options, pace: &Pace) -> usize {
    let cases = options.delays.len() * (1 + options.against.len()) * HOLDS.len();
    if cases == 0 { 0 } else { 1 + pace.far_rounds * cases }
}

/// Measures each delay in turn, with its own servers and peers.
pub async fn measure(
    options: &Options,
    pace: &Pace,
    crew: &Crew<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Far, Error> {
    if options.delays.is_empty() {
        return Ok(Far::default());
    }
    progress(Progress::Step("starting peers behind a relay".to_owned()));
    let mut way = Way::relayed(crew).await?;
    let (_echo, address) = crew.start(&["echo"]).await?;
    let address = said(&address).parse().map_err(std::io::Error::other)?;
    let mut probe = crew.start(&["ping", &way.to(address).await?.to_string()]).await?.0;
    let mut crews = vec![peers(crew, PEERS, &mut way).await?];
    let mut system = vec![("peerlock", "a lock between peers")];
    let mut servers: Vec<Server> = Vec::new();
    for &against in &options.against {
        let server = against.start(crew, &mut way).await?;
        system.push((against.name(), server.what));
        crews.push(clients(crew, against, &server).await?);
        servers.push(server);
    }

    let mut all: Vec<(Duration, Vec<u64>, Vec<Setting>)> =
        options.delays.iter().map(|&delay| (delay, Vec::new(), settings(&system, delay))).collect();
    for _ in 0..pace.far_rounds {
        for (delay, pings, settings) in &mut all {
            way.delay(*delay).await?;
            for setting in settings {
                progress(Progress::Step(format!("{}, {} ms apart", setting.system, delay.as_secs_f64() * 1e3)));
                pings.extend(ping(&mut probe, pace.far_pings, Duration::ZERO).await?);
                setting.contend(&mut crews[setting.crew], *delay * pace.far_turn).await?;
            }
        }
    }
    let mut far = Far::default();
    for (delay, pings, settings) in all {
        // Processes that wait for a delayed message rest.
        let times = Times::of(pings);
        far.messages.push(Message { delay_ms: delay.as_secs_f64() * 1e3, times });
        far.cases.extend(settings.into_iter().map(|setting| setting.case((times, times))));
    }
    Ok(far)
}

fn settings(system: &[(&'static str, &'static str)], delay: Duration) -> Vec<Setting> {
    let mut settings = Vec::new();
    for hold in HOLDS {
        for (crew, (system, what)) in system.iter().enumerate() {
            let setting = Setting::handover(crew, system, what, CLIENTS).crowded().hold(delay * hold);
            settings.push(Setting { delay, ..setting });
        }
    }
    settings
}

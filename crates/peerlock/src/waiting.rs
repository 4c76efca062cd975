//! Waiting for a slot at an agent, across restarts of agents.

use std::time::Duration;

use peerlock_http::Line;
use peerlock_http::client::{Agent, Hold as Lines};
use peerlock_service::{Error, Granted, Moment, Progress, Request};

const ABSENT: Duration = Duration::from_secs(30);

/// Waits for a slot. If the agent ends, repeats the request at the next one with the remaining wait, and calls `absent`
/// before each attempt. Fails if no agent runs at the start.
pub async fn hold<F: Future<Output = ()>>(
    agent: &Agent,
    request: &Request,
    mut progress: impl FnMut(Progress),
    mut absent: impl FnMut() -> F,
) -> Result<(Granted, Lines), Error> {
    let since = Moment::now();
    let waits = !request.try_only && request.wait != Some(Duration::ZERO);
    let left = || request.wait.map(|wait| wait.saturating_sub(Moment::now().since(since)));
    let mut ended = None;
    loop {
        let request = left().map_or_else(|| request.clone(), |left| request.clone().wait(left));
        let error = match agent.in_time(&request, once(agent, &request, &mut progress)).await {
            Ok(granted) => return Ok(granted),
            Err(error) => error,
        };
        match error {
            Error::Broken { .. } if waits => ended = Some(Moment::now()),
            Error::NoAgent { .. } if ended.is_some_and(|ended| Moment::now().since(ended) < ABSENT) => {}
            error => return Err(error),
        }
        if left() == Some(Duration::ZERO) {
            return Err(Error::NotAcquired { name: request.name.parse()?, place: None });
        }
        absent().await;
    }
}

async fn once(
    agent: &Agent,
    request: &Request,
    progress: &mut impl FnMut(Progress),
) -> Result<(Granted, Lines), Error> {
    let mut lines = agent.hold(request).await?;
    loop {
        match lines.next().await? {
            Line::Waiting(place) => progress(place),
            Line::Granted(granted) => return Ok((granted, lines)),
            Line::Lost { why } => return Err(why.map_or(Error::Lost, |why| why.0)),
            Line::Failed(failure) => return Err(failure.0),
            Line::Alive { .. } => {}
        }
    }
}

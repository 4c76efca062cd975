//! Read-only observation of an agent's own peer, or of all peers of a demo.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use peerlock_service::{Event, Happening, Health, Inspection, Listing, Name, PeerView, ResourceView, Service};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::DemoState;
use crate::view::{Looked, View, ViewResource};
use crate::waits::Waits;

/// Time limit for other peers, less than the page's own.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for a peer of this process. A frozen one does not answer.
const SOON: Duration = Duration::from_millis(500);
const MOST_RESOURCES: usize = 1000;
/// How long the list of all resources is reused: it takes a query of the registry, and many pages may be open.
const LISTED: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Watch {
    /// Whether the members are all peers of the cluster.
    whole: bool,
    members: Mutex<Vec<Member>>,
    started: Instant,
    waits: Arc<Mutex<BTreeMap<Name, Waits>>>,
    listed: tokio::sync::Mutex<Option<(Instant, Vec<ResourceView>)>>,
}

#[derive(Clone, Debug)]
struct Member {
    service: Service,
    state: DemoState,
}

#[derive(Clone, Debug)]
pub struct Found {
    pub inspection: Inspection,
    pub health: Health,
}

impl Watch {
    pub fn of_agent(service: Service) -> Self {
        let watch = Self { whole: false, ..Self::of_demo() };
        watch.enter(1, service);
        watch
    }

    pub fn of_demo() -> Self {
        let (started, listed) = (Instant::now(), tokio::sync::Mutex::new(None));
        Self { whole: true, members: Mutex::default(), started, waits: Arc::default(), listed }
    }

    /// Adds a peer, or replaces one that was restarted.
    pub fn enter(&self, number: usize, service: Service) {
        tokio::spawn(collect(service.events(), self.started, Arc::clone(&self.waits)));
        let member = Member { service, state: DemoState::Runs };
        let mut members = lock(&self.members);
        match members.get_mut(number - 1) {
            Some(place) => *place = member,
            None => members.push(member),
        }
    }

    pub fn set_state(&self, number: usize, state: DemoState) {
        if let Some(member) = lock(&self.members).get_mut(number - 1) {
            member.state = state;
        }
    }

    /// Returns a snapshot, with the details of this resource or of the first one.
    pub async fn view(&self, name: Option<&Name>) -> View {
        let members = lock(&self.members).clone();
        let looks = members.iter().filter(|member| matches!(member.state, DemoState::Runs | DemoState::CutOff));
        let observed =
            join_all(looks.map(|member| look(&member.service))).await.into_iter().flatten().collect::<Vec<_>>();
        let first = members.iter().find(|member| member.state == DemoState::Runs).map(|member| member.service.clone());
        let (known, listed) = match &first {
            Some(service) => join(known(service), self.listed(service)).await,
            None => (Vec::new(), Vec::new()),
        };
        let members: Vec<_> = members.iter().map(|member| (member.service.me(), member.state)).collect();
        let (whole, now_s) = (self.whole, self.started.elapsed().as_secs());
        let looked = Looked { whole, members: &members, observed: &observed, known: &known, listed: &listed, now_s };
        let mut view = looked.view(&lock(&self.waits), name);
        if let (false, Some(service), Some(chosen)) = (self.whole, first, &mut view.chosen) {
            ask(&service, chosen).await;
        }
        view
    }

    /// Returns all resources of an agent's cluster; none for a demo, whose peers know them.
    async fn listed(&self, service: &Service) -> Vec<ResourceView> {
        if self.whole {
            return Vec::new();
        }
        let mut listed = self.listed.lock().await;
        if listed.as_ref().is_none_or(|(at, _)| at.elapsed() > LISTED) {
            let before = || listed.as_ref().map(|(_, before)| before.clone()).unwrap_or_default();
            let all = timeout(PATIENCE, service.list(Listing::default()))
                .await
                .ok()
                .and_then(Result::ok)
                .unwrap_or_else(before);
            *listed = Some((Instant::now(), all));
        }
        listed.as_ref().map(|(_, all)| all.clone()).unwrap_or_default()
    }
}

async fn look(service: &Service) -> Option<Found> {
    let both = join(service.inspect(), service.health());
    let (inspection, health) = timeout(SOON, both).await.ok()?;
    Some(Found { inspection: inspection.ok()?, health: health.ok()? })
}

async fn known(service: &Service) -> Vec<PeerView> {
    match timeout(SOON, service.cluster()).await {
        Ok(Ok(cluster)) => cluster.peers,
        Ok(Err(_)) | Err(_) => timeout(SOON, service.peers()).await.ok().and_then(Result::ok).unwrap_or_default(),
    }
}

async fn ask(service: &Service, chosen: &mut ViewResource) {
    match timeout(PATIENCE, service.show(chosen.name.as_str())).await {
        Ok(Ok(details)) => chosen.join(details),
        Ok(Err(error)) => chosen.problem = Some(error.to_string()),
        Err(_) => chosen.problem = Some("The other peers do not answer; retrying.".to_owned()),
    }
}

async fn collect(
    mut events: broadcast::Receiver<Happening>,
    started: Instant,
    waits: Arc<Mutex<BTreeMap<Name, Waits>>>,
) {
    loop {
        let (name, waited) = match events.recv().await {
            Ok(Happening { event: Event::Granted { name, waited, .. }, .. }) => (name, waited),
            Ok(_) | Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let mut waits = lock(&waits);
        if waits.len() < MOST_RESOURCES || waits.contains_key(&name) {
            waits.entry(name).or_default().enter(started.elapsed().as_secs(), waited);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

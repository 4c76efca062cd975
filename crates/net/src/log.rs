//! Log lines contain neither messages nor the secret. The application logs links, since it knows the host names.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::{Refusal, Unreached};

/// Limit of lines in [`WINDOW`], since any host that reaches the port can cause them.
const LINES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

pub(crate) fn unreached(address: SocketAddr, why: &Unreached) {
    match why {
        Unreached::Refused(Refusal::Twin) => {
            tracing::warn!(%address, %why, "connected, but no link was established");
        }
        Unreached::Refused(_) => tracing::info!(%address, %why, "connected, but no link was established"),
        // Dead addresses are dialled forever.
        Unreached::Connection(_) => tracing::debug!(%address, %why, "cannot connect"),
    }
}

pub(crate) fn malformed(address: SocketAddr) {
    tracing::warn!(%address, "link closed: the peer sent a malformed frame");
}

/// Logs that the other side refused a connection that was already a link here.
pub(crate) fn refused_later(address: SocketAddr, refusal: Refusal) {
    tracing::warn!(%address, why = %refusal, "the peer refused this link");
}

#[derive(Default)]
pub(crate) struct Log {
    refused: Mutex<RateLimiter>,
    not_accepted: Mutex<RateLimiter>,
}

impl Log {
    pub fn not_accepted(&self, why: &io::Error) {
        if let Some(held_back) = open(&self.not_accepted) {
            tracing::warn!(%why, held_back, "cannot accept a connection: it waits until resources are available");
        }
    }

    pub fn refused(&self, refusal: Refusal, address: impl fmt::Display) {
        // Normal in a healthy cluster.
        if matches!(refusal, Refusal::Duplicate | Refusal::Myself | Refusal::Leaving) {
            tracing::debug!(%address, why = %refusal, "connection not needed");
            return;
        }
        match open(&self.refused) {
            Some(held_back) if refusal == Refusal::Twin => {
                tracing::warn!(%address, why = %refusal, held_back, "a connection was refused");
            }
            Some(held_back) => tracing::info!(%address, why = %refusal, held_back, "a connection was refused"),
            None => {}
        }
    }
}

fn open(limiter: &Mutex<RateLimiter>) -> Option<u64> {
    limiter.lock().unwrap_or_else(PoisonError::into_inner).open(Instant::now())
}

#[derive(Default)]
struct RateLimiter {
    since: Option<Instant>,
    through: u32,
    held_back: u64,
}

impl RateLimiter {
    /// Returns how many lines were suppressed before this one, or `None` to suppress it.
    fn open(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            (self.since, self.through) = (Some(now), 0);
        }
        if self.through == LINES {
            self.held_back += 1;
            return None;
        }
        self.through += 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_logs_few_lines_and_a_count() {
        let mut limiter = RateLimiter::default();
        let started = Instant::now();
        let through = (0..1000).filter_map(|_| limiter.open(started)).count();
        assert_eq!(through, LINES as usize);
        assert_eq!(limiter.open(started + WINDOW / 2), None);
        assert_eq!(limiter.open(started + WINDOW), Some(1001 - u64::from(LINES)), "the next line counts the others");
        assert_eq!(limiter.open(started + WINDOW), Some(0));
    }
}

//! Runs that take place once per period.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::time::Duration;

use common::Stand;
use peerlock_http::Line;
use peerlock_service::{Class, Conclusion, Error, Request};

const HOLD: Duration = Duration::from_secs(600);

#[tokio::test]
async fn concluded_slot_outlives_its_connection() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    for (name, succeeded, attempts, holds) in
        [("success", true, 1, true), ("failure", false, 2, false), ("last", false, 1, true)]
    {
        let mut hold = agent.hold(&Request::new(name).label("me")).await.unwrap();
        let Line::Granted(granted) = hold.next().await.unwrap() else { panic!("{name}: it was free") };
        let conclusion = Conclusion { succeeded, attempts, hold: HOLD };
        for _ in 0..2 {
            assert_eq!(agent.conclude(name, &granted.grant, conclusion).await.unwrap(), holds, "{name}, repeated");
        }
        drop(hold);
        let next = async || agent.acquire(&Request::new(name).try_only()).await;
        if !holds {
            // The agent notices the end of the connection later.
            while next().await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } else {
            let refused = next().await.unwrap_err();
            assert_eq!(refused.class(), Class::NotAcquired, "{name}: {refused}");
        }
        let period = agent.show(name).await.unwrap().period.unwrap();
        assert_eq!((period.succeeded, period.holds, period.label.as_str()), (succeeded, holds, "me"), "{name}");
        assert!(period.left <= HOLD && period.left > HOLD / 2, "{name}: {period:?}");
    }
}

#[tokio::test]
async fn detached_grant_is_not_concluded() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let granted = agent.acquire(&Request::new("r")).await.unwrap();
    let conclusion = Conclusion { succeeded: true, attempts: 1, hold: HOLD };
    let refused = agent.conclude("r", &granted.grant, conclusion).await.unwrap_err();
    assert!(matches!(&refused, Error::Refused { class: Class::BadRequest, .. }), "{refused}");
    agent.release("r", &granted.grant).await.unwrap();
}

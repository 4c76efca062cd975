//! What is refused, and how it is told.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use common::Stand;
use peerlock_http::client::Agent;
use peerlock_http::{App, Failure, Listener, Token, serve};
use peerlock_service::Class;

#[tokio::test]
async fn every_refusal_is_json_and_says_what_to_do() {
    let stand = Stand::start().await;
    let long = format!(r#"{{"label":"{}"}}"#, "x".repeat(20_000));
    let label = format!(r#"{{"label":"{}"}}"#, "x".repeat(1025));
    let name = format!("/v1/resources/{}/acquire", "x".repeat(256));
    let acquire = "/v1/resources/a/acquire";
    for (method, path, body, status, error, says) in [
        ("POST", acquire, r#"{"wait_msec":1}"#, 400, "bad_request", "`wait_msec`"),
        ("POST", acquire, r#"{"wait_ms":"1s"}"#, 400, "bad_request", "\"1s\""),
        ("POST", acquire, r#"{"wait_ms":-1}"#, 400, "bad_request", "-1"),
        ("POST", acquire, r#"{"wait_ms":1,"try":true}"#, 400, "bad_request", "give one of them"),
        ("POST", acquire, "{", 400, "bad_request", "line 1"),
        ("POST", acquire, "{} {}", 400, "bad_request", "trailing"),
        ("POST", acquire, "[]", 400, "bad_request", "GET /openapi.json"),
        ("POST", acquire, &label, 400, "bad_request", "shorten"),
        ("POST", acquire, &long, 413, "too_large", "16384"),
        ("POST", acquire, r#"{"slots":0}"#, 400, "bad_slots", "1 to 1024"),
        ("POST", acquire, r#"{"ttl_ms":5}"#, 400, "bad_lease", "at least 100 ms"),
        ("POST", "/v1/resources/a%0Ab/acquire", "", 400, "bad_name", "cannot be seen"),
        ("POST", "/v1/resources/a%FF/acquire", "", 400, "bad_name", "UTF-8"),
        ("POST", &name, "", 400, "bad_name", "255"),
        ("POST", acquire, r#"{"request_id":"nightly"}"#, 400, "bad_request", "nobody guesses"),
        (
            "POST",
            "/v1/resources/a/hold",
            r#"{"request_id":"0123456789abcdef"}"#,
            400,
            "bad_request",
            "leave request_id out",
        ),
        ("POST", acquire, r#"{"label":"\u001b[2J"}"#, 400, "bad_request", "control characters"),
        ("POST", "/v1/resources/a/renew", "", 400, "bad_request", "`grant`"),
        ("POST", "/v1/resources/a/release", r#"{"grant":"1"}"#, 410, "lost", "does not stand"),
        ("GET", "/v1/resources/a", "", 404, "no_such_resource", "spelt differently"),
        ("GET", "/v1/resources/a/b", "", 404, "not_found", "/openapi.json"),
        ("GET", acquire, "", 405, "method_not_allowed", "/openapi.json"),
        ("DELETE", "/v1/resources", "", 405, "method_not_allowed", "/openapi.json"),
        ("GET", "/v1/events?resource=a", "", 400, "bad_request", "`name`"),
        ("GET", "/v1/events?name=", "", 400, "bad_request", "`name`"),
        ("GET", "/assets/none", "", 404, "not_found", "/openapi.json"),
    ] {
        let answer = stand.ask(method, path, &[], body).await;
        let failure: Failure = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(error)), "{path} {body}");
        assert!(failure.0.to_string().contains(says), "{path} {body}: {}", failure.0);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    }
    assert!(stand.service.resources().await.unwrap().is_empty(), "nothing was asked for");
}

#[tokio::test]
async fn a_name_is_one_however_it_is_written() {
    let stand = Stand::start().await;
    for (path, name) in [("plain", "plain"), ("a%2Fb", "a/b"), ("K%C3%B6ln%20%E2%98%82", "Köln ☂"), ("%61+b", "a+b")]
    {
        let answer = stand.ask("POST", &format!("/v1/resources/{path}/acquire"), &[], "").await;
        assert_eq!((answer.status, answer.json()["name"].as_str()), (200, Some(name)));
    }
}

/// A page of another site must not release anybody's lock, whatever name it has got for this machine.
#[tokio::test]
async fn web_pages_of_others_have_no_say() {
    let stand = Stand::start().await;
    let at = format!("http://{}", stand.address());
    for (headers, status) in [
        (&[("Host", stand.address()), ("Origin", at.as_str())][..], 200),
        (&[("Host", "localhost"), ("Origin", "https://evil.example")], 403),
        (&[("Host", "localhost"), ("Origin", "null")], 403),
        (&[("Host", "evil.example"), ("Origin", "http://evil.example")], 403),
        (&[("Host", "evil.example")], 403),
    ] {
        let answer = stand.ask("POST", "/v1/resources/a/acquire", headers, "").await;
        assert_eq!(answer.status, status, "{headers:?} {}", answer.body);
        assert!(status == 200 || answer.json()["error"] == "forbidden", "{}", answer.body);
    }
}

#[tokio::test]
async fn other_machines_need_a_token() {
    let stand = Stand::start().await;
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = Listener::bind(&address.parse().unwrap(), None).await.unwrap_err();
        assert!(refused.to_string().contains("there is no token"), "{refused}");
    }
    // On loopback, so that the test is seen by nobody else; the token is asked for wherever it was given.
    let token = Token::new("0123456789abcdef0123").unwrap();
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), Some(token.clone())).await.unwrap();
    let endpoint = listener.endpoint().clone();
    let server = tokio::spawn(serve(vec![listener], App::new(stand.service.clone()), std::future::pending()));
    Agent::new(endpoint.clone(), Some(token)).peers().await.unwrap();
    for wrong in [None, Some(Token::new("0123456789abcdef0124").unwrap())] {
        let refused = Agent::new(endpoint.clone(), wrong).peers().await.unwrap_err();
        assert_eq!(refused.class(), Class::Unauthorized);
        assert!(refused.to_string().contains("Authorization: Bearer"), "{refused}");
    }
    server.abort();
}

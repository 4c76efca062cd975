//! Refused requests and their answers.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::time::Duration;

use common::{LONG, Stand, token};
use peerlock_http::client::Agent;
use peerlock_http::{Failure, Listener, Token};
use peerlock_service::{Class, Listing};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[tokio::test]
async fn refusals_are_json_with_advice() {
    let stand = Stand::start().await;
    let long = format!(r#"{{"label":"{}"}}"#, "x".repeat(20_000));
    let label = format!(r#"{{"label":"{}"}}"#, "x".repeat(1025));
    let name = format!("/v1/resources/{}/acquire", "x".repeat(256));
    let acquire = "/v1/resources/a/acquire";
    for (method, path, body, status, error, says) in [
        ("POST", acquire, r#"{"wait_msec":1}"#, 400, "bad_request", "`wait_msec`"),
        ("POST", acquire, r#"{"wait_ms":"1s"}"#, 400, "bad_request", "\"1s\""),
        ("POST", acquire, r#"{"wait_ms":-1}"#, 400, "bad_request", "-1"),
        ("POST", acquire, r#"{"wait_ms":1,"try":true}"#, 400, "bad_request", "give either"),
        ("GET", "/v1/resources?limit=many", "", 400, "bad_request", "`limit`, a number"),
        ("GET", "/v1/resources?limit=-1", "", 400, "bad_request", "`limit`, a number"),
        ("GET", "/v1/resources?name=a", "", 400, "bad_request", "`prefix`"),
        ("GET", "/v1/resources?after=", "", 400, "bad_request", "empty"),
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
        ("POST", acquire, r#"{"request_id":"nightly"}"#, 400, "bad_request", "unguessable"),
        ("POST", "/v1/resources/a/hold", r#"{"request_id":"0123456789abcdef"}"#, 400, "bad_request", "omit request_id"),
        ("POST", acquire, r#"{"label":"\u001b[2J"}"#, 400, "bad_request", "control characters"),
        ("POST", "/v1/resources/a/renew", "", 400, "bad_request", "`grant`"),
        ("POST", "/v1/resources/a/evict", r#"{"peer":"db1"}"#, 400, "bad_request", "decimal digits"),
        ("POST", "/v1/resources/a/resize", r#"{"slots":1,"name":"b"}"#, 400, "bad_request", "unknown field `name`"),
        ("POST", "/v1/resources/a/release", r#"{"grant":"1"}"#, 410, "lost", "no longer valid"),
        ("GET", "/v1/resources/a", "", 404, "no_such_resource", "misspelt"),
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
    assert!(stand.service.list(Listing::default()).await.unwrap().is_empty(), "no resource was created");
}

/// Head and body may arrive separately. A client that is answered before it has sent the body would find the connection
/// closed.
#[tokio::test]
async fn answer_waits_for_the_whole_request() {
    let stand = Stand::start().await;
    for (path, token, status) in [
        ("/v1/resources/a/remove", "0123456789abcdef0123", " 404 "),
        ("/v1/resources/a/remove", "another", " 401 "),
        ("/v1/nowhere", "0123456789abcdef0123", " 404 "),
    ] {
        let mut stream = TcpStream::connect(stand.address()).await.unwrap();
        for _ in 0..2 {
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n");
            stream.write_all(format!("{head}Content-Length: 2\r\n\r\n").as_bytes()).await.unwrap();
            let mut answer = [0; 1024];
            let early = timeout(Duration::from_millis(100), stream.read(&mut answer)).await;
            assert!(early.is_err(), "{path}: an answer to half a request");
            stream.write_all(b"{}").await.unwrap();
            let length = timeout(LONG, stream.read(&mut answer)).await.expect("an answer").unwrap();
            let answer = String::from_utf8_lossy(&answer[..length]);
            assert!(answer.lines().next().is_some_and(|line| line.contains(status)), "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn differently_encoded_names_are_equal() {
    let stand = Stand::start().await;
    for (path, name) in [("plain", "plain"), ("a%2Fb", "a/b"), ("K%C3%B6ln%20%E2%98%82", "Köln ☂"), ("%61+b", "a+b")]
    {
        let answer = stand.ask("POST", &format!("/v1/resources/{path}/acquire"), &[], "").await;
        assert_eq!((answer.status, answer.json()["name"].as_str()), (200, Some(name)));
    }
}

/// Whichever host name the page uses for this machine.
#[tokio::test]
async fn foreign_web_pages_are_refused() {
    let stand = Stand::start().await;
    let at = format!("http://{}", stand.address());
    for (headers, status) in [
        (&[("Host", stand.address()), ("Origin", at.as_str())][..], 200),
        (&[("Host", "localhost"), ("Origin", "https://evil.example")], 403),
        (&[("Host", "localhost"), ("Origin", "null")], 403),
        // The site's own host name, which resolves to this machine; but the page does not know the token.
        (&[("Host", "evil.example"), ("Origin", "http://evil.example"), ("Authorization", "Bearer ?")], 401),
    ] {
        let answer = stand.ask("POST", "/v1/resources/a/acquire", headers, "").await;
        assert_eq!(answer.status, status, "{headers:?} {}", answer.body);
        assert!(status != 403 || answer.json()["error"] == "forbidden", "{}", answer.body);
    }
}

#[tokio::test]
async fn other_users_and_machines_need_a_token() {
    let stand = Stand::start().await;
    for address in ["0.0.0.0:0", "[::]:0", "127.0.0.1:0"] {
        let refused = Listener::bind(&address.parse().unwrap(), None, 1).await.unwrap_err();
        assert!(refused.to_string().contains("there is no bearer token"), "{refused}");
    }
    stand.tcp().peers().await.unwrap();
    for wrong in [None, Some(Token::new("0123456789abcdef0124").unwrap())] {
        let refused = Agent::new(stand.tcp.clone(), wrong).peers().await.unwrap_err();
        assert_eq!(refused.class(), Class::Unauthorized);
        assert!(refused.to_string().contains("Authorization: Bearer"), "{refused}");
    }
    for (path, status) in [("/", 200), ("/assets/page.js", 200), ("/metrics", 401), ("/healthz", 401)] {
        let answer = stand.ask("GET", path, &[("Authorization", "")], "").await;
        assert_eq!(answer.status, status, "{path}: only the page needs no token");
    }
}

#[tokio::test]
async fn lease_is_limited_by_longest_lease() {
    let stand = Stand::with(1024, Duration::from_secs(3600)).await;
    for verb in ["acquire", "hold"] {
        let path = format!("/v1/resources/a/{verb}");
        for ttl in [3_600_001, u64::MAX] {
            let answer = stand.ask("POST", &path, &[], &format!(r#"{{"ttl_ms":{ttl}}}"#)).await;
            assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("bad_request")), "{}", answer.body);
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            assert!(message.contains("limit of 3600 s") && message.contains("--longest-lease"), "{message}");
        }
    }
    let answer = stand.ask("POST", "/v1/resources/a/acquire", &[], r#"{"ttl_ms":3600000}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// If both lengths are given, hyper uses the chunks, as RFC 9112 permits. The bytes behind the body must not be taken
/// for a request, since a proxy in front of the agent may see another end of the body.
#[tokio::test]
async fn request_with_two_lengths_closes_its_connection() {
    let stand = Stand::start().await;
    let smuggled = "GET /v1/peers HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef0123\r\n\r\n";
    for (name, lengths) in [
        ("a", "Content-Length: 5\r\nTransfer-Encoding: chunked"),
        ("b", "Transfer-Encoding: chunked\r\nContent-Length: 5"),
    ] {
        let request = format!(
            "POST /v1/resources/{name}/acquire HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \
             0123456789abcdef0123\r\n\
             {lengths}\r\n\r\n0\r\n\r\n{smuggled}"
        );
        let mut stream = TcpStream::connect(stand.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        // The connection may be reset, because more was sent than read.
        _ = timeout(LONG, stream.read_to_end(&mut received)).await.expect("closed by the agent");
        let received = String::from_utf8(received).unwrap();
        assert!(received.matches("HTTP/1.1 ").count() <= 1, "{received}");
    }
}

/// The agent buffers the head of an unauthenticated request, so its length must be limited.
#[tokio::test]
async fn endless_request_head_is_refused() {
    let stand = Stand::with(1, Duration::from_secs(3600)).await;
    let (started, ends) = ("GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer", token());
    let (endless, whole) =
        (format!("{started} {}", "x".repeat(32 * 1024)), format!("{started} {}\r\n\r\n", ends.as_str()));
    let mut open = Vec::new();
    // The second connection takes the only place, and the third is refused nevertheless.
    for (head, status) in [(&endless, " 431"), (&whole, " 200"), (&endless, " 431")] {
        let mut stream = TcpStream::connect(stand.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(LONG, stream.read_exact(&mut answer)).await.expect("an answer").unwrap();
        assert_eq!(answer[8..], *status.as_bytes());
        open.push(stream);
    }
}

#[tokio::test]
async fn longest_valid_request_is_accepted() {
    let stand = Stand::start().await;
    let path = format!("/v1/resources/{}/acquire", "%C3%BC".repeat(127));
    // The cookies that a browser has from other pages of this machine, and the longest body.
    let cookie = ("Cookie", &*"x".repeat(8 * 1024));
    let answer = stand.ask("POST", &path, &[cookie], &format!("{{{}}}", " ".repeat(16 * 1024 - 2))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

//! Runs the examples of `docs/api.md` in order.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use common::Stand;
use serde_json::Value;

#[tokio::test]
async fn documented_examples_work() {
    let stand = Stand::start().await;
    let text = include_str!("../../../docs/api.md");
    let (mut grant, mut tried) = (Value::Null, 0);
    // Examples with -N do not end: `streams.rs` has them.
    for line in text.lines().filter(|line| line.starts_with("$A/") && !line.contains(" -N")) {
        let (command, answer) = line.split_once(" #").unwrap_or((line, ""));
        let path = command.trim_start_matches("$A").split(' ').next().unwrap();
        let mut body = command.split('\'').nth(1).unwrap_or_default().to_owned();
        if let Some((start, rest)) = body.split_once(r#""grant": "#) {
            let end = rest.trim_start_matches(|c| c != '}');
            body = format!(r#"{start}"grant": {grant}{end}"#);
        }
        let method = if body.is_empty() { "GET" } else { "POST" };
        let got = stand.ask(method, path, &[], &body).await;
        assert_eq!(got.status, 200, "{line}: {}", got.body);
        if path.ends_with("/acquire") {
            grant = got.json()["grant"].clone();
        }
        for field in answer.split('"').filter(|part| part.ends_with("_ms") || *part == "holders") {
            assert!(got.body.contains(&format!("\"{field}\"")), "{line}: {}", got.body);
        }
        tried += 1;
    }
    assert_eq!(tried, 17);
}

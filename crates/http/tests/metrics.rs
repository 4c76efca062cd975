//! The metrics: conformance with the format, agreement with the document and the alert rules.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::Stand;
use peerlock_service::Request;

#[derive(Debug, Default)]
struct Family {
    kind: String,
    unit: Option<String>,
    /// The values by name and labels.
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

/// Parses OpenMetrics 1.0 strictly: contiguous families, type and help before samples, names that fit type and unit, no
/// duplicate samples, `# EOF` at the end.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut helped, mut ended) = (String::new(), BTreeSet::new(), false);
    assert!(text.ends_with("# EOF\n"), "ends with EOF and a newline");
    for line in text.lines() {
        assert!(!ended, "a line after EOF: {line}");
        if line == "# EOF" {
            ended = true;
        } else if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            if name != current {
                assert!(!families.contains_key(name), "{name} is not contiguous");
                current = name.to_owned();
                families.insert(current.clone(), Family::default());
            }
            let family = families.get_mut(name).unwrap();
            assert!(family.samples.is_empty(), "{line} comes before the samples");
            match what {
                "HELP" => assert!(helped.insert(name.to_owned()) && !rest.is_empty(), "{line}"),
                "TYPE" => family.kind = rest.to_owned(),
                "UNIT" => family.unit = Some(rest.to_owned()),
                _ => panic!("unknown comment: {line}"),
            }
        } else {
            let (name, labels, value) = sample(line);
            let family = families.get_mut(&current).unwrap();
            let suffixes: &[&str] = match &family.kind[..] {
                "counter" => &["_total"],
                "gauge" => &[""],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_count", "_sum"],
                kind => panic!("{current} is a {kind}"),
            };
            let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} is not of {current}"));
            assert!(suffixes.contains(&suffix), "{line}: a {} has {suffixes:?}", family.kind);
            assert!(helped.contains(&current), "{current} has no help");
            assert!(family.unit.as_ref().is_none_or(|unit| current.ends_with(&format!("_{unit}"))), "{current}");
            let is_new = family.samples.insert((name, labels), value).is_none();
            assert!(is_new, "twice: {line}");
        }
    }
    families
}

/// Parses `name{label="value",…} value`, without a timestamp.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label), "{line}");
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('"' | '\\') => escaped,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, character) => value.push(character),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = rest.strip_prefix('}').unwrap(),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{line}")))
}

async fn scraped(stand: &Stand) -> BTreeMap<String, Family> {
    let answer = stand.ask("GET", "/metrics", &[], "").await;
    assert!(answer.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", answer.head);
    parse(&answer.body)
}

fn of_resource(families: &BTreeMap<String, Family>, metric: &str, resource: &str) -> f64 {
    let family = &families[metric.trim_end_matches("_total")];
    family.samples[&(metric.to_owned(), BTreeMap::from([("resource".to_owned(), resource.to_owned())]))]
}

#[tokio::test]
async fn resource_with_any_name_has_metrics() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let unexpected = r#"a"b\c{d="e"} ☂"#;
    agent.acquire(&Request::new(unexpected).slots(3)).await.unwrap();
    let _inside = agent.acquire(&Request::new("a")).await.unwrap();
    let waits = agent.hold(&Request::new("a")).await.unwrap();
    stand.until("one waits", |shown| shown.queue.len() == 1).await;
    agent.resize(unexpected, 2).await.unwrap();
    let families = scraped(&stand).await;
    for (metric, of_strange, of_a) in [
        ("peerlock_resource_holders", 1.0, 1.0),
        ("peerlock_resource_waiting", 0.0, 1.0),
        ("peerlock_resource_slots", 2.0, 1.0),
        ("peerlock_resource_generation", 2.0, 1.0),
        ("peerlock_resource_recoveries_total", 1.0, 0.0),
        ("peerlock_resource_stalled", 0.0, 0.0),
        ("peerlock_resource_stall_seconds", 0.0, 0.0),
    ] {
        let got = (of_resource(&families, metric, unexpected), of_resource(&families, metric, "a"));
        assert_eq!(got, (of_strange, of_a), "{metric}");
    }
    assert_eq!(of_resource(&families, "peerlock_resource_oldest_wait_seconds", unexpected), 0.0);
    assert!(of_resource(&families, "peerlock_resource_oldest_wait_seconds", "a") > 0.0);
    let alone = |metric: &str| families[metric].samples[&(metric.to_owned(), BTreeMap::new())];
    for (metric, value) in [
        ("peerlock_session", 1.0),
        ("peerlock_voters", 1.0),
        ("peerlock_voters_up", 1.0),
        ("peerlock_members", 1.0),
        ("peerlock_leads", 1.0),
        ("peerlock_resources", 2.0),
        ("peerlock_resources_stalled", 0.0),
        ("peerlock_resources_left_out", 0.0),
    ] {
        assert_eq!(alone(metric), value, "{metric}");
    }
    assert!(alone("peerlock_session_left_seconds") > 1.0 && alone("peerlock_oldest_wait_seconds") > 0.0);
    let build = families["peerlock_build"].samples.keys().next().unwrap();
    assert_eq!(build.1["version"], env!("CARGO_PKG_VERSION"));
    drop(waits);
}

/// Every rule also needs the annotations that an operator reads.
#[tokio::test]
async fn alert_rules_use_exported_metrics() {
    let stand = Stand::start().await;
    stand.unix().acquire(&Request::new("a")).await.unwrap();
    let families = scraped(&stand).await;
    let samples: BTreeSet<&str> =
        families.values().flat_map(|family| family.samples.keys().map(|(name, _)| name.as_str())).collect();
    let text = include_str!("../../../contrib/peerlock-alerts.yml");
    let (_, rules) = text.split_once("    rules:\n").unwrap();
    let mut named = BTreeSet::new();
    for rule in rules.split("      - alert: ").skip(1) {
        let alert = rule.lines().next().unwrap();
        for field in ["        expr: ", "          severity: ", "          summary: \"", "          action: \""] {
            assert_eq!(rule.lines().filter(|line| line.starts_with(field)).count(), 1, "{alert}: {field}");
        }
        let expression = rule.lines().find_map(|line| line.strip_prefix("        expr: ")).unwrap();
        // A comparison has the value of its left side.
        let value = expression.split(['<', '>', '=']).next().unwrap();
        assert!(!(rule.contains("$value") && value.contains(['*', '/'])), "{alert} shows the value of {value}");
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("peerlock_")).collect();
        assert!(!metrics.is_empty(), "{alert} uses no metric of peerlock");
        for metric in metrics {
            assert!(samples.contains(metric), "{alert} uses {metric}, which is not among {samples:?}");
            named.insert(metric);
        }
    }
    assert!(named.len() >= 10, "{named:?}");
}

#[tokio::test]
async fn exported_and_documented_metrics_agree() {
    let stand = Stand::start().await;
    stand.unix().acquire(&Request::new("a")).await.unwrap();
    let families = scraped(&stand).await;
    let text = include_str!("../../../docs/operations.md");
    let table = text.split("## Metrics").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeSet<&str> = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`')).collect();
    let documented: BTreeSet<&str> = documented.into_iter().filter(|word| word.starts_with("peerlock_")).collect();
    let scraped = families.iter().map(|(name, family)| match &family.kind[..] {
        "counter" => format!("{name}_total"),
        "info" => format!("{name}_info"),
        _ => name.clone(),
    });
    let scraped: BTreeSet<String> = scraped.collect();
    assert_eq!(documented, scraped.iter().map(String::as_str).collect::<BTreeSet<_>>());
}

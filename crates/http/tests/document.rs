//! Compares the OpenAPI document with the routes.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::collections::BTreeSet;

use common::Stand;
use peerlock_service::Request;
use serde_json::{Map, Value, json};

#[tokio::test]
async fn every_route_answers_as_documented() {
    let stand = Stand::start().await;
    let document = stand.ask("GET", "/openapi.json", &[], "").await.json();
    let granted = stand.unix().acquire(&Request::new("a").label("me")).await.unwrap();
    let which = json!({ "grant": granted.grant }).to_string();
    let tried = r#"{"try":true}"#;
    // Path, method, body, expected status. `streams.rs` has the streams.
    let cases = [
        ("/v1/resources/{name}/renew", "post", which.as_str(), 200),
        ("/v1/resources/{name}/acquire", "post", tried, 423),
        ("/v1/resources/{name}/hold", "post", tried, 200),
        ("/v1/resources/{name}/resume", "post", which.as_str(), 200),
        ("/v1/resources/{name}/conclude", "post", r#"{"grant":"h","succeeded":true,"hold_ms":1000}"#, 410),
        ("/v1/resources/{name}", "get", "", 200),
        ("/v1/resources", "get", "", 200),
        ("/v1/resources/{name}/release", "post", which.as_str(), 200),
        ("/v1/resources/{name}/acquire", "post", r#"{"request_id":"0123456789abcdef"}"#, 200),
        ("/v1/peers", "get", "", 200),
        ("/v1/cluster", "get", "", 200),
        ("/v1/voters", "post", "{}", 200),
        ("/v1/forget", "post", r#"{"peer":"77"}"#, 200),
        ("/v1/drain", "post", "", 200),
        ("/v1/reload", "post", "", 503),
        ("/v1/resources/{name}/resize", "post", r#"{"slots":2}"#, 200),
        ("/v1/resources/{name}/revoke", "post", r#"{"fencing":1}"#, 410),
        ("/v1/resources/{name}/evict", "post", r#"{"peer":"2"}"#, 200),
        ("/v1/resources/{name}/remove", "post", "", 423),
        ("/v1/view", "get", "", 200),
        ("/v1/agent", "get", "", 200),
        ("/healthz", "get", "", 200),
        ("/metrics", "get", "", 200),
        ("/openapi.json", "get", "", 200),
    ];
    for (path, method, body, status) in cases {
        let operation = &document["paths"][path][method];
        assert!(operation.is_object(), "{method} {path} is not documented");
        let answer = stand.ask(&method.to_uppercase(), &path.replace("{name}", "a"), &[], body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        let responses = &operation["responses"];
        let documented = responses.get(status.to_string()).or_else(|| responses.get("default")).unwrap();
        let contents = documented["content"].as_object().unwrap();
        let (kind, content) = contents.iter().next().unwrap();
        assert!(answer.head.contains(&format!("content-type: {kind}")), "{path}: {}", answer.head);
        if kind == "application/json" {
            fits(&document, &content["schema"], &answer.json(), path);
        }
    }
    let tried: BTreeSet<&str> = cases.iter().map(|case| case.0).chain(["/v1/events"]).collect();
    let documented: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(tried, documented, "every documented route is tested");
}

/// The requirements of validators and client generators, some of which `.ci/openapi` runs.
#[tokio::test]
async fn document_suits_external_tools() {
    let stand = Stand::start().await;
    let document = stand.ask("GET", "/openapi.json", &[], "").await.json();
    assert_eq!(document["servers"][0]["url"], "/");
    let tags: Vec<&Value> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    let mut operations = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            assert!(operations.insert(operation["operationId"].as_str().unwrap()), "{path}: duplicate operation ID");
            assert!(tags.contains(&&operation["tags"][0]), "{path}: {}", operation["tags"]);
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(response["description"].is_string(), "{path}: {status} has no description");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["name"] != "name" || parameter["schema"]["maxLength"] == 255, "{path}: {parameter}");
            }
        }
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut names: BTreeSet<&str> = schemas.keys().map(String::as_str).collect();
    for (name, schema) in schemas {
        assert!(schema["allOf"].is_null(), "{name} uses allOf");
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            let title = variant["title"].as_str().unwrap_or_else(|| panic!("{name}: a variant without a title"));
            assert!(names.insert(title), "duplicate title {title}");
            let inline = |field: &Value| field["properties"].is_object();
            assert!(
                !variant["properties"].as_object().unwrap().values().any(inline),
                "{title} has an unnamed property"
            );
        }
    }
    assert!(names.contains("HappeningPeerUp") && names.contains("LineLost"), "{names:?}");
    let request = &schemas["Request"];
    let limits = |field: &str, limit: &str| request["properties"][field][limit].as_u64();
    assert_eq!((limits("slots", "minimum"), limits("slots", "maximum")), (Some(1), Some(1024)));
    assert_eq!((limits("request_id", "minLength"), limits("label", "maxLength")), (Some(16), Some(1024)));
    // The body is required unless all fields are optional.
    let needs_body = |path: &str| document["paths"][path]["post"]["requestBody"]["required"].as_bool();
    assert_eq!(needs_body("/v1/resources/{name}/acquire"), Some(false));
    assert_eq!(needs_body("/v1/resources/{name}/renew"), Some(true));
}

/// Checks a value against its schema, as far as the document uses schema features.
fn fits(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
        return fits(document, schema, value, reference);
    }
    if let Some(items) = schema.get("items") {
        let list = value.as_array().unwrap_or_else(|| panic!("{place}: no list: {value}"));
        return list.iter().for_each(|item| fits(document, items, item, place));
    }
    // A named schema without fields permits none.
    let none = Map::new();
    let named = place.starts_with('#') && schema["type"] == "object";
    let Some(properties) = schema["properties"].as_object().or(named.then_some(&none)) else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{place}: {name} is missing in {value}");
    }
    for (name, value) in value.as_object().unwrap_or_else(|| panic!("{place}: no object: {value}")) {
        let schema = properties.get(name).unwrap_or_else(|| panic!("{place}: {name} is not documented"));
        let is = match value {
            Value::Number(_) => ["integer", "number"].as_slice(),
            Value::String(_) => &["string"],
            Value::Bool(_) => &["boolean"],
            _ => &[],
        };
        let says = |kind: &str| {
            schema["type"] == kind || schema["type"].as_array().is_some_and(|all| all.contains(&json!(kind)))
        };
        let typed = schema.get("type").is_some() && !is.is_empty();
        assert!(!typed || is.iter().any(|kind| says(kind)), "{place}: {name} is {value}, not {}", schema["type"]);
        fits(document, schema, value, &format!("{place}.{name}"));
    }
}

//! The OpenAPI document, from the documentation of handlers and types, completed with common parts: the answer to a
//! failure is the same everywhere.

use std::collections::BTreeMap;

use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, ResponseBuilder, Schema};
use utoipa::{Modify, OpenApi};

use crate::Failure;

/// The longest name of a resource, in bytes; a name has no more characters than bytes.
const LONGEST_NAME: usize = 255;
const REFUSED: &str = "The request failed and holds nothing: `error` is the reason for programs, \
                       `message` for people";

#[derive(OpenApi)]
#[openapi(
    info(title = "peerlock agent", description = "Mutual exclusion: at most `slots` holders at a time, in fair order."),
    servers((url = "/", description = "The agent that serves this document")),
    tags(
        (name = "slots", description = "Acquire, renew and release"),
        (name = "looking", description = "Resources, peers and events"),
        (name = "administration", description = "Administration"),
        (name = "agent", description = "The agent itself"),
    ),
    security((), ("token" = [])),
    components(schemas(Failure)),
    modifiers(&Bearer)
)]
pub struct Document;

/// Adds the bearer token, which clients must send if the agent has one.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// Adds the common parts, and simplifies the schemas for client generators.
pub fn finish(document: &mut utoipa::openapi::OpenApi) {
    let schemas = &mut document.components.get_or_insert_default().schemas;
    merge_tagged(schemas, "Happening");
    let sums: Vec<String> = schemas.keys().cloned().collect();
    for name in sums {
        name_variants(&name, schemas);
    }
    for item in document.paths.paths.values_mut() {
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            finish_operation(operation, schemas);
        }
    }
}

/// Turns an `allOf` of a sum type and more fields into a sum type whose variants all have these fields.
fn merge_tagged(schemas: &mut BTreeMap<String, RefOr<Schema>>, name: &str) {
    let Some(RefOr::T(Schema::AllOf(both))) = schemas.get(name) else { return };
    let [RefOr::Ref(of), RefOr::T(Schema::Object(more))] = &both.items[..] else { return };
    let (of, more, description) = (component(of).to_owned(), more.clone(), both.description.clone());
    let Some(RefOr::T(Schema::OneOf(mut sum))) = schemas.remove(&of) else { return };
    for variant in &mut sum.items {
        let RefOr::T(Schema::Object(variant)) = variant else { continue };
        variant.properties.extend(more.properties.clone());
        variant.required.extend(more.required.clone());
    }
    sum.description = description;
    schemas.insert(name.to_owned(), RefOr::T(Schema::OneOf(sum)));
}

/// Names each variant of a sum type by its tag: generators would number them.
fn name_variants(name: &str, schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    let Some(RefOr::T(Schema::OneOf(mut sum))) = schemas.get(name).cloned() else { return };
    for variant in &mut sum.items {
        let RefOr::T(Schema::Object(variant)) = variant else { continue };
        let tag = variant.properties.values().find_map(|schema| match schema {
            RefOr::T(Schema::Object(field)) => field.enum_values.as_ref()?.first()?.as_str().map(ToOwned::to_owned),
            _ => None,
        });
        // Without a constant field, the variant's only field is the tag.
        let Some(label) = tag.or_else(|| variant.required.first().cloned()) else { continue };
        let title = format!("{name}{}", camel(&label));
        for inner in variant.properties.values_mut() {
            if matches!(inner, RefOr::T(Schema::Object(object)) if !object.properties.is_empty()) {
                let named = format!("{title}Body");
                let body = std::mem::replace(inner, RefOr::Ref(Ref::from_schema_name(&named)));
                schemas.insert(named, body);
            }
        }
        variant.title = Some(title);
    }
    schemas.insert(name.to_owned(), RefOr::T(Schema::OneOf(sum)));
}

fn camel(name: &str) -> String {
    let words = name.split('_').filter_map(|word| Some((word.chars().next()?, word.get(1..)?)));
    words.map(|(first, rest)| format!("{}{rest}", first.to_ascii_uppercase())).collect()
}

fn component(to: &Ref) -> &str {
    to.ref_location.rsplit('/').next().unwrap_or_default()
}

fn finish_operation(operation: &mut Operation, schemas: &BTreeMap<String, RefOr<Schema>>) {
    let failure = ContentBuilder::new().schema(Some(Ref::from_schema_name("Failure"))).build();
    let refused = ResponseBuilder::new().description(REFUSED).content("application/json", failure);
    operation.responses.responses.insert("default".to_owned(), refused.build().into());
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            limit_name(parameter);
        }
    }
    // A body without required fields may be omitted.
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        let needs_body = body.content.values().any(|content| match content {
            RefOr::T(content) => content.schema.as_ref().is_some_and(|schema| has_required(schema, schemas)),
            RefOr::Ref(_) => true,
        });
        body.required = Some(if needs_body { Required::True } else { Required::False });
    }
}

fn has_required(schema: &RefOr<Schema>, schemas: &BTreeMap<String, RefOr<Schema>>) -> bool {
    match schema {
        RefOr::Ref(to) => schemas.get(component(to)).is_none_or(|schema| has_required(schema, schemas)),
        RefOr::T(Schema::Object(object)) => !object.required.is_empty(),
        RefOr::T(_) => true,
    }
}

fn limit_name(parameter: &mut Parameter) {
    if parameter.name == "name"
        && let Some(RefOr::T(Schema::Object(name))) = &mut parameter.schema
    {
        (name.min_length, name.max_length) = (Some(1), Some(LONGEST_NAME));
    }
}

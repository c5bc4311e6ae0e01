//! `/openapi.json`: the routes as a document.
//!
//! Paths and methods come from the table of routes, schemas from the types that are sent. The parameters, statuses and
//! texts of each operation are written here. Tests hold the document against what the server really sends.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::control::Mistake;
use crate::route::{Endpoint, ROUTES, Role, Route};
use crate::wire;

pub(crate) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in &ROUTES {
        let item =
            paths.entry(route.path).or_insert_with(|| json!({ "parameters": path_parameters(route.path) }));
        item[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Thalweg",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Streams in, exact window answers out. Times are RFC 3339 in UTC with up to six digits of \
                            a second. Every error has the body of `Error`; 504 is the only status that leaves open \
                            whether something has happened; queries over tables only read.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { ADMIN_TOKEN: {
                "type": "http", "scheme": "bearer",
                "description": "The line in the file admin.token of the node's data directory, which the node's user can read",
            } },
        },
    })
}

/// The security scheme of routes that change something.
const ADMIN_TOKEN: &str = "adminToken";

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect()
}

/// The description of one route.
struct Operation {
    id: &'static str,
    summary: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    success: Vec<(&'static str, &'static str, Option<Value>)>,
    /// Statuses with the body of `Error`.
    errors: &'static [(&'static str, &'static str)],
}

fn operation(route: &Route) -> Value {
    let said = describe(route.endpoint);
    let mut responses = Map::new();
    for (status, description, content) in said.success {
        let mut response = json!({ "description": description });
        if let Some(content) = content {
            response["content"] = content;
        }
        responses.insert(status.to_owned(), response);
    }
    for (status, description) in said.errors {
        responses.insert((*status).to_owned(), failure(status, description));
    }
    let everywhere = [
        ("403", "A page of another site asks, or by a name that is not ours"),
        ("414", "The URL is too long"),
        ("431", "Request line and headers are too large; without a body where they are more than twice that"),
        ("500", "A fault of the node"),
    ];
    let limited = route.limited.then_some(("503", "Starting, draining or overloaded"));
    let guarded = (route.role == Role::Admin).then_some([
        ("401", "No token"),
        ("403", "A wrong token; a page of another site asks, or by a name that is not ours"),
    ]);
    for (status, description) in guarded.into_iter().flatten().chain(everywhere).chain(limited) {
        if !responses.contains_key(status) {
            responses.insert(status.to_owned(), failure(status, description));
        }
    }
    let role = match route.role {
        Role::Read => "read",
        Role::Write => "write",
        Role::Admin => "admin",
    };
    let mut operation = json!({
        "operationId": said.id,
        "summary": said.summary,
        "x-role": role,
        "responses": responses,
    });
    if route.role == Role::Admin {
        operation["security"] = json!([{ ADMIN_TOKEN: [] }]);
    }
    if !said.parameters.is_empty() {
        operation["parameters"] = Value::Array(said.parameters);
    }
    if let Some(body) = said.body {
        operation["requestBody"] = json!({ "required": true, "content": body });
    }
    operation
}

fn failure(status: &str, description: &str) -> Value {
    let mut response = json!({ "description": description, "content": schema("application/json", "Error") });
    if status == "401" {
        response["headers"] = json!({ "WWW-Authenticate": { "schema": { "const": "Bearer" } } });
    }
    if matches!(status, "429" | "503") {
        response["headers"] =
            json!({ "Retry-After": { "description": "Seconds", "schema": { "type": "integer" } } });
    }
    response
}

fn schema(media_type: &str, name: &str) -> Value {
    json!({ media_type: { "schema": { "$ref": format!("#/components/schemas/{name}") } } })
}

fn describe(endpoint: Endpoint) -> Operation {
    match endpoint {
        Endpoint::PostRecords => post_records(),
        Endpoint::ReadQuery => read_query(),
        Endpoint::AddQuery => add_query(),
        Endpoint::DropQuery => Operation {
            id: "dropQuery",
            summary: "Drop a query from a running operator; its state is deleted",
            parameters: vec![],
            body: None,
            success: vec![("204", "Dropped", None)],
            errors: &[
                ("400", "The URL has a parameter that it does not take"),
                ("404", "No such job, operator or query"),
                ("409", "The job is being started, or has ended"),
                ("504", "Overdue; it may still be dropped"),
                ("507", "A disk is full: the job is only read"),
            ],
        },
        Endpoint::ListJobs => Operation {
            id: "listJobs",
            summary: "All jobs with their live graphs",
            parameters: vec![],
            body: None,
            success: vec![("200", "The jobs by name", Some(schema("application/json", "Jobs")))],
            errors: &[("400", "The URL has a parameter that it does not take")],
        },
        Endpoint::ShowJob => Operation {
            id: "showJob",
            summary: "A job with its live graph: rates, queue depths, lag, busy share, latency, last cycle",
            parameters: vec![],
            body: None,
            success: vec![("200", "The job", Some(schema("application/json", "Job")))],
            errors: &[
                ("400", "The URL has a parameter that it does not take"),
                ("404", "No such job; `detail.known` lists those that exist"),
                ("409", "It is being started"),
            ],
        },
        Endpoint::StartJob => start_job(),
        Endpoint::ReplaceJob => Operation {
            id: "replaceJob",
            summary: "Start a job in the place of the one of its name, which is drained first",
            success: vec![
                ("200", "Replaced", Some(schema("application/json", "Job"))),
                ("201", "Started: there was none", Some(schema("application/json", "Job"))),
            ],
            ..start_job()
        },
        Endpoint::StopJob => Operation {
            id: "stopJob",
            summary: "Drain a job and stop it",
            parameters: vec![json!({
                "name": "drain",
                "in": "query",
                "description": "`false`: stop at once, also a job that is draining already; records in flight are dropped",
                "schema": { "type": "boolean", "default": true },
            })],
            body: None,
            success: vec![("200", "Stopped", Some(schema("application/json", "Summary")))],
            errors: &[
                ("400", "`drain` is neither `true` nor `false`"),
                ("404", "No such job"),
                ("409", "In a cluster: somebody else has changed the job, or it is to be stopped at once"),
                ("504", "Not drained in time; it goes on draining"),
            ],
        },
        Endpoint::Sql => sql(),
        Endpoint::ShowCluster => Operation {
            id: "showCluster",
            summary: "The cluster as this node sees it: members, the plan in force, jobs, and where each unit is",
            parameters: vec![json!({
                "name": "job",
                "in": "query",
                "description": "List the units of this job alone",
                "schema": { "type": "string" },
            })],
            body: None,
            success: vec![("200", "The cluster", Some(schema("application/json", "Cluster")))],
            errors: &[
                ("400", "The URL has a parameter that it does not take"),
                ("404", "The node is in no cluster, or there is no such job"),
            ],
        },
        Endpoint::DrainNode => drain_node(),
        Endpoint::FillNode => {
            Operation { id: "fillNode", summary: "Give a node units again", ..drain_node() }
        }
        Endpoint::Metrics => Operation {
            id: "metrics",
            summary: "Metrics in the text format of Prometheus",
            parameters: vec![],
            body: None,
            success: vec![(
                "200",
                "Metrics",
                Some(json!({ "text/plain": { "schema": { "type": "string" } } })),
            )],
            errors: &[("503", "The node does not answer in time")],
        },
        Endpoint::Health => Operation {
            id: "health",
            summary: "Whether the process serves requests",
            parameters: vec![],
            body: None,
            success: vec![("200", "It does", Some(schema("application/json", "Status")))],
            errors: &[],
        },
        Endpoint::Ready => Operation {
            id: "ready",
            summary: "Whether the node takes records",
            parameters: vec![],
            body: None,
            success: vec![("200", "It does", Some(schema("application/json", "Status")))],
            errors: &[("503", "Starting, draining, or a job takes no records")],
        },
        Endpoint::OpenApi => Operation {
            id: "openapi",
            summary: "This document",
            parameters: vec![],
            body: None,
            success: vec![("200", "This document", Some(json!({ "application/json": {} })))],
            errors: &[],
        },
    }
}

fn drain_node() -> Operation {
    Operation {
        id: "drainNode",
        summary: "Take all units from a node of the cluster, and give it none; `units_active` says how many are left",
        parameters: vec![],
        body: None,
        success: vec![("200", "The control log says so", Some(schema("application/json", "ClusterMember")))],
        errors: &[
            ("400", "The URL has a parameter that it does not take"),
            ("404", "The node that is asked is in no cluster, or there is no such node in it"),
            ("504", "The control log has not said so in time; it may still come about"),
        ],
    }
}

fn post_records() -> Operation {
    Operation {
        id: "postRecords",
        summary: "Send records; the reply has one line per record, in order: its answer, or an error in its place",
        parameters: vec![json!({
            "name": "reply",
            "in": "query",
            "description": "`none`: do not wait for the answers",
            "schema": { "type": "string", "enum": ["answers", "none"], "default": "answers" },
        })],
        body: Some(json!({
            "application/json": { "schema": { "oneOf": [
                { "type": "object" },
                { "type": "array", "items": { "type": "object" }, "description": "Each element is a record" },
            ] } },
            "application/x-ndjson": { "schema": { "type": "string", "description": "One object a line" } },
        })),
        success: vec![
            (
                "200",
                "One line per record; at least one was accepted",
                Some(json!({ "application/x-ndjson": { "schema": {
                    "oneOf": [{ "type": "object", "description": "An answer: the record's fields, then one object per query" },
                              { "$ref": "#/components/schemas/ErrorLine" }],
                } } })),
            ),
            (
                "202",
                "With `reply=none`: the job is through with the records, and they are as safe as the source's `ack` says. The count is of records; those \
                 among them that turn out to be unusable go to rejects",
                Some(schema("application/json", "Accepted")),
            ),
            (
                "400",
                "No record was accepted: one `ErrorLine` per record (application/x-ndjson). Or the request itself is \
                 wrong: `Error` (application/json)",
                Some(json!({
                    "application/x-ndjson": { "schema": { "$ref": "#/components/schemas/ErrorLine" } },
                    "application/json": { "schema": { "$ref": "#/components/schemas/Error" } },
                })),
            ),
        ],
        errors: &[
            ("404", "No such job or source; `detail.known` lists those that exist"),
            ("408", "The body came too slowly"),
            ("409", "The job has ended"),
            ("413", "The body is too large"),
            ("415", "The body is not JSON, or packed other than by gzip"),
            ("429", "The source's queue is full"),
            (
                "504",
                "An answer is overdue or the job stopped: the outcome is unknown. Repeating is safe only where the source \
                 has an `id`",
            ),
            ("507", "A disk is full: the job takes nothing and is only read"),
        ],
    }
}

fn sql() -> Operation {
    let text = || json!({ "schema": { "type": "string" } });
    Operation {
        id: "sql",
        summary: "Run one SQL statement that only reads, over the tables of all jobs",
        parameters: vec![
            json!({
                "name": "format",
                "in": "query",
                "description": "Wins over `Accept`. Where the query fails after its first rows, the connection is cut",
                "schema": { "type": "string", "enum": ["json", "ndjson", "csv", "arrow", "table"], "default": "json" },
            }),
            json!({
                "name": "compression",
                "in": "query",
                "description": "Of the buffers of an Arrow stream; refused with other formats",
                "schema": { "type": "string", "enum": ["none", "lz4"], "default": "none" },
            }),
            json!({
                "name": "addresses",
                "in": "query",
                "description": "The type of addresses in an Arrow stream: 16 bytes or text; refused with other formats",
                "schema": { "type": "string", "enum": ["binary", "text"], "default": "binary" },
            }),
        ],
        body: Some(json!({
            "text/plain": { "schema": { "type": "string", "description": "The statement" } },
            "application/json": { "schema": {
                "type": "object", "properties": { "sql": { "type": "string" } }, "required": ["sql"],
            } },
        })),
        success: vec![(
            "200",
            "The rows, as they come. Addresses and times are texts; so are decimals, NaN and infinities in JSON. Arrow keeps the types",
            Some(json!({
                "application/json": { "schema": { "type": "array", "items": { "type": "object" } } },
                "application/x-ndjson": text(),
                "text/csv": text(),
                "text/plain": text(),
                "application/vnd.apache.arrow.stream": {},
            })),
        )],
        errors: &[
            (
                "400",
                "Not SQL, or it names something that does not exist, or it writes, or it takes too much memory",
            ),
            ("404", "The node answers no SQL"),
            ("408", "The body came too slowly"),
            ("413", "The body is too large"),
            ("415", "The body is not text, or packed other than by gzip"),
            ("429", "Too many queries wait already"),
            ("504", "It takes too long; it was stopped"),
        ],
    }
}

fn read_query() -> Operation {
    Operation {
        id: "readQuery",
        summary: "Present values of a query for one group",
        parameters: vec![json!({
            "name": "key",
            "in": "query",
            "description": "One parameter per GROUP BY field, `card=c1`; without `=` (`?card`) the field is null",
            "style": "form",
            "explode": true,
            "schema": { "type": "object", "additionalProperties": { "type": "string" } },
        })],
        body: None,
        success: vec![("200", "The values as of task time", Some(schema("application/json", "Present")))],
        errors: &[
            ("400", "The key is not that of the query"),
            ("404", "No such job, operator or query"),
            ("409", "The job is being started, or has ended"),
        ],
    }
}

fn add_query() -> Operation {
    Operation {
        id: "addQuery",
        summary: "Add a query to a running operator",
        parameters: vec![],
        body: Some(json!({
            "text/plain": { "schema": { "type": "string", "examples": [
                "SELECT count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
            ] } },
            "application/json": { "schema": {
                "type": "object",
                "required": ["query"],
                "additionalProperties": false,
                "properties": { "query": { "type": "string" } },
            } },
        })),
        success: vec![("201", "Added", Some(schema("application/json", "AddedQuery")))],
        errors: &[
            ("400", "A mistake in the query: `detail` is a list of `Mistake`"),
            ("404", "No such job or operator"),
            ("408", "The body came too slowly"),
            ("409", "There is a query of this name, or the job is being started, or has ended"),
            ("413", "The body is too large"),
            ("415", "The body is not text, or packed other than by gzip"),
            ("504", "Overdue; it may still be added"),
            ("507", "A disk is full: the job is only read"),
        ],
    }
}

fn start_job() -> Operation {
    Operation {
        id: "startJob",
        summary: "Start a job; the body is its job file",
        parameters: vec![],
        body: Some(json!({
            "application/yaml": { "schema": { "type": "string" } },
            "application/json": { "schema": { "type": "object" } },
        })),
        success: vec![("201", "Started", Some(schema("application/json", "Job")))],
        errors: &[
            ("400", "Mistakes in the job file: `detail` is a list of `Mistake`, all of them"),
            ("408", "The body came too slowly"),
            ("409", "There is a job of this name"),
            ("413", "The body is too large"),
            ("415", "The body is not text, or packed other than by gzip"),
            ("504", "Overdue; it may still start"),
        ],
    }
}

// `thalweg_connect` writes these lines.
/// A line in place of an answer.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes what is written elsewhere")]
struct ErrorLine {
    error: LineError,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "describes what is written elsewhere")]
#[schemars(inline)]
struct LineError {
    code: String,
    message: String,
    hint: Option<String>,
}

/// Schemas of all bodies, and of the types in them.
fn schemas() -> Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    generator.subschema_for::<wire::ErrorBody>();
    generator.subschema_for::<ErrorLine>();
    generator.subschema_for::<Mistake>();
    generator.subschema_for::<wire::Accepted>();
    generator.subschema_for::<wire::Status>();
    generator.subschema_for::<wire::Present>();
    generator.subschema_for::<wire::AddedQuery>();
    generator.subschema_for::<wire::Summary>();
    generator.subschema_for::<wire::Jobs>();
    generator.subschema_for::<wire::cluster::Cluster>();
    generator.take_definitions(true)
}

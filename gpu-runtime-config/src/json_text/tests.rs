use std::path::Path;

use crate::{
    edit::{Format, Op, edit},
    error::Error,
    value::{Table, Value},
};

fn set(path: &[&str], value: Value) -> Op {
    match Value::nested(path, value) {
        Value::Table(table) => Op::Merge(table),
        _ => Op::Merge(Table::new()),
    }
}

#[track_caller]
fn check(text: &str, ops: &[Op], expected: &str) {
    let path = Path::new("daemon.json");
    let edited = edit(Format::Json, path, text, ops).unwrap();
    assert_eq!(edited, expected);
    if ops.iter().all(|op| matches!(op, Op::Merge(_))) {
        assert_eq!(edit(Format::Json, path, &edited, ops).unwrap(), edited, "twice");
    }
}

#[test]
fn a_new_member_follows_the_files_own_style() {
    let op = || [set(&["features", "cdi"], Value::Bool(true))];
    check(
        "{\"b\":1,\"a\":2}",
        &op(),
        "{\"b\":1,\"a\":2,\"features\":{\"cdi\":true}}",
    );
    check("{ \"b\": 1 }\n", &op(), "{ \"b\": 1, \"features\": {\"cdi\": true} }\n");
    check(
        "{\r\n\t\"b\" : 1\r\n}",
        &op(),
        "{\r\n\t\"b\" : 1,\r\n\t\"features\": {\r\n\t\t\"cdi\": true\r\n\t}\r\n}",
    );
    check("", &op(), "{\n    \"features\": {\n        \"cdi\": true\n    }\n}\n");
    check(
        "{}\n",
        &op(),
        "{\n    \"features\": {\n        \"cdi\": true\n    }\n}\n",
    );
    check(
        "{\n  \"features\": {},\n  \"z\": 1e3\n}\n",
        &op(),
        "{\n  \"features\": {\n    \"cdi\": true\n  },\n  \"z\": 1e3\n}\n",
    );
}

#[test]
fn other_features_stay() {
    check(
        "{\"features\": {\"buildkit\": true, \"cdi\": false}}",
        &[set(&["features", "cdi"], Value::Bool(true))],
        "{\"features\": {\"buildkit\": true, \"cdi\": true}}",
    );
}

#[test]
fn removal_takes_the_comma_with_it() {
    let remove = |key: &str| [Op::Remove(vec![key.to_owned()])];
    check("{\n  \"a\": 1,\n  \"b\": 2\n}", &remove("b"), "{\n  \"a\": 1\n}");
    check("{\n  \"a\": 1,\n  \"b\": 2\n}", &remove("a"), "{\n  \"b\": 2\n}");
    check("{ \"a\": [1, 2] }", &remove("a"), "{}");
    check(
        "{\"a\": [1, 2]}",
        &[Op::Take(vec!["a".to_owned()], vec![Value::Number("2".into())])],
        "{\"a\": [1]}",
    );
}

#[test]
fn broken_json_is_refused_with_its_place() {
    let error = edit(
        Format::Json,
        Path::new("/etc/docker/daemon.json"),
        "{\n  \"a\": 1,\n}",
        &[],
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/etc/docker/daemon.json:3:1` is not valid JSON: trailing comma"
    );
    let error = edit(Format::Json, Path::new("d"), "[]", &[]).unwrap_err();
    assert_eq!(error.to_string(), "`.` at `d:1:1` is an array, not an object");
}

#[test]
fn a_key_of_the_wrong_type_is_refused() {
    let op = [set(&["runtimes", "nvidia", "path"], Value::string("x"))];
    let error = edit(Format::Json, Path::new("d"), "{\"runtimes\": []}", &op).unwrap_err();
    assert_eq!(error.to_string(), "`runtimes` at `d:1:14` is an array, not an object");
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    let op = [set(&["runtimes", "nvidia", "path"], Value::string("x"))];
    let error = edit(
        Format::Json,
        Path::new("d"),
        "{\"runtimes\": {}, \"runtimes\": {}}",
        &op,
    )
    .unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { .. }), "{error}");
}

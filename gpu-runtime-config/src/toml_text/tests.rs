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

fn path(keys: &str) -> Vec<String> {
    keys.split('.').map(str::to_owned).collect()
}

#[track_caller]
fn check(text: &str, ops: &[Op], expected: &str) {
    let edited = edit(Format::Toml, Path::new("c.toml"), text, ops).unwrap();
    assert_eq!(edited, expected);
}

fn yes() -> Value {
    Value::Bool(true)
}

#[test]
fn a_value_is_replaced_where_it_stands() {
    check(
        "a = 'x' # why\nb=1\n",
        &[set(&["a"], Value::string("y"))],
        "a = \"y\" # why\nb=1\n",
    );
    check(
        "t = { a = 1, b = 2 }",
        &[set(&["t", "a"], yes())],
        "t = { a = true, b = 2 }",
    );
}

#[test]
fn a_new_key_follows_its_siblings() {
    check(
        "[t]\n  a = 1 # c\n\n[u]\n",
        &[set(&["t", "b"], yes())],
        "[t]\n  a = 1 # c\n  b = true\n\n[u]\n",
    );
    check(
        "[t]\r\na = 1\r\n[u]\r\n",
        &[set(&["t", "b"], yes())],
        "[t]\r\na = 1\r\nb = true\r\n[u]\r\n",
    );
    check("[t]", &[set(&["t", "b"], yes())], "[t]\nb = true");
    check(
        "t.a = 1\nz = 2\n",
        &[set(&["t", "b"], yes())],
        "t.a = 1\nt.b = true\nz = 2\n",
    );
    check(
        "[p]\nt.'x.y'.a = 1\n",
        &[set(&["p", "t", "x.y", "b"], yes())],
        "[p]\nt.'x.y'.a = 1\nt.'x.y'.b = true\n",
    );
    check(
        "t = { a = 1 }\n",
        &[set(&["t", "b", "c"], yes())],
        "t = { a = 1, b = { c = true } }\n",
    );
    check("t = {}\n", &[set(&["t", "b"], yes())], "t = { b = true }\n");
    check(
        "t = { a.x = 1 }\n",
        &[set(&["t", "a", "b"], yes())],
        "t = { a.x = 1, a.b = true }\n",
    );
}

#[test]
fn a_new_root_key_goes_below_the_version_or_to_the_top() {
    check(
        "# c\nversion = 2 # v\n\na = 1\n",
        &[set(&["i"], yes())],
        "# c\nversion = 2 # v\ni = true\n\na = 1\n",
    );
    check("# c\n\n[t]\n", &[set(&["i"], yes())], "# c\ni = true\n\n[t]\n");
    check("# of t\n[t]\n", &[set(&["i"], yes())], "i = true\n\n# of t\n[t]\n");
    check("", &[set(&["i"], yes())], "i = true\n");
    check("# c", &[set(&["i"], yes())], "# c\ni = true\n");
    check("\u{feff}[t]\n", &[set(&["i"], yes())], "\u{feff}i = true\n\n[t]\n");
}

#[test]
fn a_new_table_follows_the_last_of_its_siblings() {
    check(
        "[r.a]\n  k = 1\n  # old = 2\n\n# of z\n[z]\n",
        &[
            set(&["r", "b", "o", "k"], yes()),
            set(&["r", "b", "t"], Value::string("x")),
        ],
        "[r.a]\n  k = 1\n  # old = 2\n\n[r.b]\n  t = \"x\"\n[r.b.o]\n  k = true\n\n# of z\n[z]\n",
    );
    check(
        "[a]\nx = 1\n# of b\n[b]\n",
        &[set(&["a", "c", "k"], yes())],
        "[a]\nx = 1\n[a.c]\nk = true\n# of b\n[b]\n",
    );
    check("x = 1", &[set(&["a.b", "k"], yes())], "x = 1\n\n[\"a.b\"]\nk = true");
    check(
        "# only a comment\n",
        &[set(&["a", "k"], yes())],
        "# only a comment\n\n[a]\nk = true\n",
    );
    check("", &[set(&["a", "k"], yes())], "[a]\nk = true\n");
    check(
        "[a.b]\nx = 1\n",
        &[set(&["a", "k"], yes())],
        "[a.b]\nx = 1\n\n[a]\nk = true\n",
    );
}

#[test]
fn nested_tables_keep_the_files_indentation() {
    check(
        "[p]\n  [p.'q.r']\n    a = 1\n    [p.'q.r'.c]\n      b = 2\n",
        &[
            set(&["p", "q.r", "c", "n", "o", "k"], yes()),
            set(&["p", "q.r", "e"], yes()),
        ],
        "[p]\n  [p.'q.r']\n    a = 1\n    e = true\n    [p.'q.r'.c]\n      b = 2\n      [p.'q.r'.c.n.o]\n        k = true\n",
    );
}

#[test]
fn elements_are_added_without_moving_comments() {
    let add = || [Op::Append(path("i"), vec![Value::string("n")])];
    check("i = []\n", &add(), "i = [\"n\"]\n");
    check("i = ['a']\n", &add(), "i = ['a', \"n\"]\n");
    check("i = [ 'a', ] # c\n", &add(), "i = [ 'a', \"n\", ] # c\n");
    check(
        "i = [\n  'a', # of a\n  'b' # of b\n]\n",
        &add(),
        "i = [\n  'a', # of a\n  'b', # of b\n  \"n\"\n]\n",
    );
    check(
        "i = [\n  'b', # of b\n  # end\n]\n",
        &add(),
        "i = [\n  'b', # of b\n  \"n\",\n  # end\n]\n",
    );
    check(
        "i = [\n  # none, yet\n]\n",
        &add(),
        "i = [\n  # none, yet\n  \"n\",\n]\n",
    );
    check("# c\n\n[t]\n", &add(), "# c\ni = [\"n\"]\n\n[t]\n");
}

#[test]
fn elements_are_taken_without_losing_comments() {
    let take = || [Op::Take(path("i"), vec![Value::string("n")])];
    check("i = ['a', \"n\"]\n", &take(), "i = ['a']\n");
    check("i = ['n', 'a']\n", &take(), "i = ['a']\n");
    check("i = [\"n\"]\n", &take(), "i = []\n");
    check(
        "i = [\n  'a', # of a\n  \"n\"\n]\n",
        &take(),
        "i = [\n  'a', # of a\n]\n",
    );
    check(
        "i = [\n  \"n\", # mine\n  'a'\n]\n",
        &take(),
        "i = [\n   # mine\n  'a'\n]\n",
    );
}

#[test]
fn removal_leaves_comments_and_neighbours() {
    let remove = |keys: &str| [Op::Remove(path(keys))];
    check("a = 1\nb = 2 # why\nc = 3\n", &remove("a"), "b = 2 # why\nc = 3\n");
    check("a = 1\nb = 2 # why\nc = 3\n", &remove("b"), "a = 1\n# why\nc = 3\n");
    check(
        "[t]\nx = 1\n\n[t.u]\ny = 1\n\n# of v\n[v]\n",
        &remove("t.u"),
        "[t]\nx = 1\n\n# of v\n[v]\n",
    );
    check("t.a.x = 1\nt.b.x = 2\n", &remove("t.a"), "t.b.x = 2\n");
    check("t = { a = 1, b = 2 }\n", &remove("t.b"), "t = { a = 1 }\n");
    check(
        "t = { a.x = 1, a.y = 3, b = 2 }\n",
        &remove("t.a.x"),
        "t = { a.y = 3, b = 2 }\n",
    );
    check("t = { a = 1 }\n", &remove("t.zz"), "t = { a = 1 }\n");
}

#[test]
fn broken_toml_and_templates_are_refused_with_their_place() {
    let refuse = |text: &str| edit(Format::Toml, Path::new("/c.toml"), text, &[]).unwrap_err();
    let error = refuse("version = 2\nroot = \"/x\n");
    assert!(
        matches!(&error, Error::Syntax { position, .. } if position.line == 2),
        "{error}"
    );
    assert_eq!(
        refuse("version = 2\n  {{ template \"base\" . }}\n").to_string(),
        "`/c.toml:2:3` holds `{{`: it is a template, not a configuration"
    );
}

#[test]
fn a_key_of_the_wrong_type_is_refused() {
    let refuse = |text: &str, op: Op| edit(Format::Toml, Path::new("c"), text, &[op]).unwrap_err().to_string();
    assert_eq!(
        refuse("a = 1\n", set(&["a", "b"], yes())),
        "`a` at `c:1:5` is a number, not a table"
    );
    assert_eq!(
        refuse("[a]\n", set(&["a"], yes())),
        "`a` at `c:1:1` is a table, not a boolean"
    );
    assert_eq!(
        refuse("[[a]]\n", set(&["a", "b"], yes())),
        "`a` at `c:1:1` is an array, not a table"
    );
    assert_eq!(
        refuse("i = 'x'\n", Op::Append(path("i"), vec![yes()])),
        "`i` at `c:1:5` is a string, not an array"
    );
}

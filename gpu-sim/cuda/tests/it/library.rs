use std::{fs, process::Command};

use gpu_sim::NodeSpec;

use crate::{Simulated, libraries};

#[test]
fn the_node_has_its_library_in_both_places() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1).driver("550"));
    let tree = fs::read(libraries(&node.node.root()).join("libcuda.so.550.163.01")).unwrap();
    let beside = fs::read(node.node.folder().join("lib/libcuda.so.1")).unwrap();
    assert!(tree == beside && tree.ends_with(b"\ngpu-sim cuda 12040\n"));
}

/// Names that the library defines, as `nm` lists them.
#[test]
fn only_functions_of_cuda_are_exported_and_libc_alone_is_needed() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1));
    let library = node.node.folder().join("lib/libcuda.so.1");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(&library).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let symbols = run("nm", &["-D", "--defined-only"]);
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert!(names.contains(&"cuInit") && names.len() > 15, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("cu")), "{names:?}");
    let dynamic = run("readelf", &["-d"]);
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    let other: Vec<&str> = needed
        .filter(|line| !line.contains("[libc.so.6]") && !line.contains("[ld-linux"))
        .collect();
    assert_eq!(other, [] as [&str; 0]);
    assert!(dynamic.contains("[libcuda.so.1]"), "{dynamic}");
}

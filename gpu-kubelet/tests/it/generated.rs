//! The committed code under `src/generated/` is what the definitions under `proto/` give.
//!
//! After a change to a definition: `UPDATE_EXPECT=1 cargo test -p gpu-kubelet generated`.

use std::{fs, path::Path};

const DEFINITIONS: [&str; 2] = ["device_plugin_v1beta1.proto", "pod_resources_v1.proto"];

#[test]
fn generated_code_is_up_to_date() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh_dir = tempfile::tempdir().unwrap();
    let definitions = protox::compile(DEFINITIONS, [crate_dir.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .btree_map(".") // maps in a stable order, so that equal answers are equal bytes
        .out_dir(fresh_dir.path())
        .compile_fds(definitions)
        .unwrap();

    let mut fresh_names: Vec<_> = fs::read_dir(fresh_dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    fresh_names.sort();
    assert_eq!(fresh_names, ["v1.rs", "v1beta1.rs"]);

    for name in fresh_names {
        let fresh = fs::read_to_string(fresh_dir.path().join(&name)).unwrap();
        let committed_path = crate_dir.join("src/generated").join(&name);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&committed_path, fresh).unwrap();
        } else {
            let committed = fs::read_to_string(&committed_path).unwrap();
            assert!(
                committed == fresh,
                "`{name}` is not what `proto/` gives; see this test's module for how to renew it"
            );
        }
    }
}

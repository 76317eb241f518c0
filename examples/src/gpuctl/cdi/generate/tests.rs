use clap::Parser;
use gpu_cdi::{HookName, NameStrategy};

use super::*;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    generate: Generate,
}

#[track_caller]
fn parse(arguments: &[&str]) -> Generate {
    let arguments = ["x"].iter().chain(arguments);
    Program::try_parse_from(arguments).unwrap().generate
}

#[test]
fn the_vendors_flags_become_options() {
    let options = parse(&[
        "--vendor=example.com",
        "--class=acc",
        "--device-name-strategy=type-index,uuid",
        "--no-all-device",
        "--nvidia-ctk-path=/opt/nvidia-ctk",
        "--ldconfig-path=/sbin/ldconfig.real",
        "--disable-hooks=all",
        "--enable-hook=update-ldcache",
        "--feature-flags=no-additional-gids-for-device-nodes,disable-ipc-discoverer",
    ])
    .options()
    .unwrap();
    assert_eq!(options.kind.to_string(), "example.com/acc");
    assert_eq!(options.names, [NameStrategy::TypeIndex, NameStrategy::Uuid]);
    assert_eq!(options.hook_path, "/opt/nvidia-ctk");
    assert_eq!(options.ldconfig_path.as_deref(), Some("/sbin/ldconfig.real"));
    assert_eq!(
        (options.all_device, options.additional_gids, options.ipc_sockets),
        (false, false, false)
    );
    assert_eq!(
        (
            options.disabled_hooks.len(),
            options.disabled_hooks.contains(&HookName::UpdateLdcache)
        ),
        (5, false)
    );
}

#[test]
fn what_is_not_supported_is_said() {
    #[track_caller]
    fn check(arguments: &[&str], expected: &str) {
        let generate = parse(arguments);
        let result = generate.options().and_then(|options| {
            let ids: Vec<_> = generate.device_id.iter().map(String::as_str).collect();
            generate.spec(&ids, Path::new("/"), options)
        });
        let error = result.unwrap_err();
        assert!(
            error.is::<BadUsage>() && error.to_string().starts_with(expected),
            "{error}"
        );
    }
    check(
        &["--device-id=none,0"],
        "`--device-id`: `none` is a device without GPUs, and cannot be named with others",
    );
    check(
        &["--mode=gds", "--device-id=none"],
        "`--device-id`: mode `gds` has no device `none`",
    );
    check(
        &["--mode=csv", "--device-id=0"],
        "`--device-id`: mode `csv` describes all that there is, and no devices by name",
    );
    check(
        &["--disable-hook=x"],
        "`--disable-hook`: `x` is none of the hooks create-symlinks, enable-cuda-compat, update-ldcache, \
         disable-device-node-modification, update-application-profile, chmod",
    );
    check(
        &["--ldconfig-path=sbin/ldconfig"],
        "`--ldconfig-path` takes an absolute path, not `sbin/ldconfig`",
    );
    check(&["--vendor=/"], "`--vendor` and `--class`: `/` is not a CDI vendor");
    check(
        &["--mode=imex", "--device-id=x"],
        "`--device-id`: `x` is not an IMEX channel",
    );
    check(
        &["--enable-hook=all"],
        "`--enable-hook` takes names of hooks, not `all`",
    );
    assert!(Program::try_parse_from(["x", "--mode=bogus"]).is_err());
    let error = Program::try_parse_from(["x", "--feature-flag=make-coffee"]).unwrap_err();
    assert!(error.to_string().contains("enable-coherent-annotations"), "{error}");
}

#[test]
fn search_paths_are_taken_beneath_the_driver_root() {
    let paths = ["/driver-root/lib64", "/opt/lib"].map(PathBuf::from);
    assert_eq!(
        beneath(Path::new("/driver-root"), &paths),
        [PathBuf::from("/lib64"), PathBuf::from("/opt/lib")]
    );
    assert_eq!(beneath(Path::new("/"), &paths), paths);
}

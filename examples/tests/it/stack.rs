use super::{program, run, stderr, stdout};

const STACK: &str = env!("CARGO_BIN_EXE_gpu-stack");

#[test]
fn it_tells_its_version_and_its_programs() {
    let output = run(program(STACK).arg("--version"));
    assert_eq!(
        (output.status.code(), stdout(&output)),
        (Some(0), concat!("gpu-stack ", env!("CARGO_PKG_VERSION"), "\n"))
    );
    let help = run(program(STACK).arg("--help"));
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("nvidia-cdi-hook"));
    let nothing = run(&mut program(STACK));
    assert_eq!((nothing.status.code(), stdout(&nothing)), (Some(2), ""));
    assert_eq!(stderr(&nothing), stdout(&help));
}

#[test]
fn every_program_answers_by_both_its_names() {
    for (name, answers) in [
        ("gpu-device-plugin", "gpu-device-plugin"),
        ("nvidia-device-plugin", "gpu-device-plugin"),
        ("config-manager", "config-manager"),
        ("gpu-feature-discovery", "gpu-feature-discovery"),
        ("gpu-mps-daemon", "gpu-mps-daemon"),
        ("mps-control-daemon", "gpu-mps-daemon"),
        ("gpuctl", "gpuctl"),
        ("gpu-cdi-hook", "gpu-cdi-hook"),
        ("nvidia-cdi-hook", "gpu-cdi-hook"),
    ] {
        let expected = format!("{answers} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(stdout(&run(program(STACK).args([name, "--version"]))), expected);
        // As an image has it: a link of that name.
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(STACK, &link).unwrap();
        assert_eq!(stdout(&run(program(link.to_str().unwrap()).arg("--version"))), expected);
    }
}

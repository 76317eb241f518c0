//! A CUDA program as a client of the Multi-Process Service; the daemon's part is played here. That the daemon of `gpu-sim`
//! plays it as well is held there.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixListener,
    process::Stdio,
};

use gpu_sim::NodeSpec;

use crate::{Simulated, result};

#[test]
fn a_program_is_a_client_with_its_share_of_the_gpu_as_long_as_it_lives() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1));
    let folder = tempfile::tempdir().unwrap();
    let daemon = UnixListener::bind(folder.path().join("control")).unwrap();
    let mut program = node
        .program()
        .arg("--context")
        .env("CUDA_MPS_PIPE_DIRECTORY", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut client, _) = daemon.accept().unwrap();
    client.write_all(b"server 12 25.0\n").unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut device = String::new();
    output.read_line(&mut String::new()).unwrap();
    output.read_line(&mut device).unwrap();
    assert!(device.ends_with(", 33 SM\n"), "{device}");
    assert_eq!(program.try_wait().unwrap(), None);
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the connection has ended with it");
}

#[test]
fn what_a_daemon_refuses_fails() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1));
    let folder = tempfile::tempdir().unwrap();
    let daemon = UnixListener::bind(folder.path().join("control")).unwrap();
    for (answer, expected) in [
        (
            "refused the server has 48 clients\n",
            "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        ),
        ("refused the daemon ends\n", "CUDA_ERROR_MPS_CONNECTION_FAILED"),
        ("", "CUDA_ERROR_MPS_CONNECTION_FAILED"),
    ] {
        let program = node
            .program()
            .env("CUDA_MPS_PIPE_DIRECTORY", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut client, _) = daemon.accept().unwrap();
        client.write_all(answer.as_bytes()).unwrap();
        drop(client);
        assert_eq!(
            result(&program.wait_with_output().unwrap()),
            Err(format!("cuInit: {expected}"))
        );
    }
}

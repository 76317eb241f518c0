//! `/healthz`.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use super::{Setup, wait_until};

/// What the program answers to these bytes.
fn ask(port: u16, request: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // In pieces, as a network may deliver it.
    for part in request.chunks(5) {
        stream.write_all(part)?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn it_answers_with_the_state_and_is_well_while_labels_cannot_be_written() {
    let setup = Setup::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    drop(listener);
    let listen = format!("--listen=127.0.0.1:{port}");
    let daemon = setup.start(&["--sleep-interval=1s", &listen]);
    setup.wait_for("gpu.count", "2");
    // One that says nothing keeps nobody else waiting.
    let _silent = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let healthz = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = ask(port, healthz).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("labels are in `"), "{answer}");
    let answer = ask(port, b"GET /other HTTP/1.1\r\n\r\n").expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let answer = ask(port, &[0; 4096]).unwrap_or_default();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 404 "), "{answer}");

    std::fs::remove_file(setup.output()).expect("the file can be removed");
    std::fs::create_dir(setup.output()).expect("a folder can be made");
    wait_until("it says what is wrong", || {
        let answer = ask(port, healthz).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.contains("cannot write `")
    });
    daemon.end();
}

#[test]
fn an_address_that_is_taken_is_named() {
    let setup = Setup::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let output = setup.run(&[&format!("--listen={address}")]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains(&format!("cannot listen at {address}: ")), "{message}");
}

//! Making sockets, finding them occupied or absent.

use std::{
    convert::Infallible,
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener as StdListener},
    path::Path,
    time::{Duration, Instant},
};

use gpu_kubelet::{
    Error, Registration, connect, listen, register,
    tonic::{self, Status, codegen::http, transport::Server},
};
use tempfile::TempDir;

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a scratch directory")
}

/// Leaves a socket that nobody listens on, as a killed plugin does.
fn leave_stale_socket(path: &Path) {
    drop(StdListener::bind(path).expect("a socket"));
    assert!(path.exists(), "the standard library leaves the file");
}

#[tokio::test]
async fn stale_socket_is_replaced() {
    let dir = scratch();
    let path = dir.path().join("widgets.sock");
    leave_stale_socket(&path);

    let _incoming = listen(&path).await.unwrap();

    connect(&path).await.unwrap();
}

#[tokio::test]
async fn live_socket_is_refused_and_left_alone() {
    let dir = scratch();
    let path = dir.path().join("widgets.sock");
    let _first = listen(&path).await.unwrap();

    let error = listen(&path).await.unwrap_err();

    assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    assert!(!error.is_transient());
    connect(&path).await.unwrap();
}

#[tokio::test]
async fn regular_file_is_refused_and_left_alone() {
    let dir = scratch();
    let path = dir.path().join("widgets.sock");
    fs::write(&path, "precious").unwrap();

    let error = listen(&path).await.unwrap_err();

    assert!(matches!(error, Error::NotASocket { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn symbolic_link_is_refused_even_to_a_stale_socket() {
    let dir = scratch();
    let path = dir.path().join("widgets.sock");
    leave_stale_socket(&dir.path().join("target.sock"));
    std::os::unix::fs::symlink("target.sock", &path).unwrap();

    let error = listen(&path).await.unwrap_err();

    assert!(matches!(error, Error::NotASocket { .. }), "{error:?}");
    assert!(dir.path().join("target.sock").exists());
}

#[tokio::test]
async fn missing_directory_is_named() {
    let dir = scratch();

    let error = listen(dir.path().join("absent/widgets.sock")).await.unwrap_err();

    assert!(
        matches!(&error, Error::NoDirectory { path } if *path == dir.path().join("absent")),
        "{error:?}"
    );
}

#[tokio::test]
async fn too_long_a_path_is_an_error() {
    let dir = scratch();

    let error = listen(dir.path().join("x".repeat(120))).await.unwrap_err();

    assert!(matches!(error, Error::Listen { .. }), "{error:?}");
}

#[tokio::test]
async fn only_the_owner_may_connect() {
    let dir = scratch();
    let incoming = listen(dir.path().join("widgets.sock")).await.unwrap();

    let mode = fs::metadata(incoming.path()).unwrap().permissions().mode();

    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn dropped_listener_removes_its_socket() {
    let dir = scratch();
    let path = dir.path().join("widgets.sock");

    drop(listen(&path).await.unwrap());

    assert!(!path.exists());
}

#[tokio::test]
async fn dropped_listener_leaves_its_successors_socket() {
    let dir = scratch();
    let path = dir.path().join("widgets.sock");
    let old = listen(&path).await.unwrap();
    fs::remove_file(&path).unwrap(); // as a starting kubelet does
    let _new = listen(&path).await.unwrap();

    drop(old);

    connect(&path).await.unwrap();
}

#[tokio::test]
async fn requests_carry_the_authority_localhost() {
    let dir = scratch();
    let incoming = listen(dir.path().join("kubelet.sock")).await.unwrap();
    let socket = incoming.path().to_owned();
    let (seen, mut authorities) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
        seen.send(request.uri().authority().map(ToString::to_string))
            .expect("a listener");
        std::future::ready(Ok::<_, Infallible>(
            Status::unimplemented("only looks").into_http::<tonic::body::Body>(),
        ))
    });
    tokio::spawn(Server::builder().serve_with_incoming(service, incoming));

    let registration = Registration::new("widgets.sock", "example.com/widget");
    let error = register(socket, &registration, Duration::from_secs(5))
        .await
        .unwrap_err();

    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert_eq!(authorities.recv().await.unwrap().as_deref(), Some("localhost"));
}

#[tokio::test]
async fn absent_kubelet_is_transient() {
    let dir = scratch();
    let never_there = dir.path().join("kubelet.sock");
    let left_behind = dir.path().join("stale.sock");
    leave_stale_socket(&left_behind);

    for socket in [never_there, left_behind] {
        let registration = Registration::new("widgets.sock", "example.com/widget");
        let error = register(&socket, &registration, Duration::from_secs(5))
            .await
            .unwrap_err();

        assert!(
            matches!(&error, Error::Absent { path, .. } if *path == socket),
            "{error:?}"
        );
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn silent_kubelet_is_given_up_after_the_deadline() {
    let dir = scratch();
    let socket = dir.path().join("kubelet.sock");
    let _accepts_but_never_answers = StdListener::bind(&socket).unwrap();
    let started = Instant::now();

    let registration = Registration::new("widgets.sock", "example.com/widget");
    let error = register(&socket, &registration, Duration::from_millis(50))
        .await
        .unwrap_err();

    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(error.is_transient());
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn kubelet_that_goes_away_during_registration_is_transient() {
    let dir = scratch();
    let socket = dir.path().join("kubelet.sock");
    let kubelet = StdListener::bind(&socket).unwrap();
    let hang_up = std::thread::spawn(move || drop(kubelet.accept().unwrap()));

    let registration = Registration::new("widgets.sock", "example.com/widget");
    let error = register(&socket, &registration, Duration::from_secs(5))
        .await
        .unwrap_err();

    hang_up.join().unwrap();
    assert!(error.is_transient(), "{error:?}");
}

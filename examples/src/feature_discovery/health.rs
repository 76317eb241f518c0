//! `/healthz`, for a kubelet's probe.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch::Receiver,
    time::{sleep, timeout},
};

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request with a longer head is not waited for.
const LONGEST_HEAD: usize = 8 << 10;

/// Answers `/healthz` for ever: 200 and the state in words, as long as the program runs; its labels stay while it fails, so
/// that being started anew would help nobody.
pub(super) async fn serve(address: SocketAddr, state: Receiver<String>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen at {address}"))?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(timeout(PATIENCE, answer(stream, state.clone())))),
                // No descriptors left, or a client that is gone: the next may do better.
                Err(error) => {
                    tracing::debug!("cannot take a connection at {address}: {error}");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    });
    Ok(())
}

async fn answer(mut stream: TcpStream, state: Receiver<String>) -> io::Result<()> {
    let request = head(&mut stream).await?;
    let (status, body) = match request.split(|b| *b == b' ').nth(1) {
        Some(b"/healthz") => ("200 OK", format!("{}\n", *state.borrow())),
        _ => ("404 Not Found", "there is only /healthz\n".to_owned()),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// What a client says up to the blank line. All of it, because a connection that is closed with some left is torn down.
async fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while head.len() < LONGEST_HEAD && !head.ends_with(b"\r\n\r\n") {
        let mut part = [0; 1024];
        match stream.read(&mut part).await? {
            0 => break,
            length => head.extend_from_slice(&part[..length]),
        }
    }
    Ok(head)
}

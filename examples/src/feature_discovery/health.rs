//! `/healthz`, for a kubelet's probe.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch::Receiver,
    time::timeout,
};

/// Answers `/healthz` for ever: 200 and the state in words, as long as the program runs; its labels stay while it fails, so
/// that being started anew would help nobody.
pub(super) async fn serve(address: SocketAddr, state: Receiver<String>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen at {address}"))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let state = state.borrow().clone();
            // A client that says nothing is not waited for.
            tokio::spawn(timeout(Duration::from_secs(5), answer(stream, state)));
        }
    });
    Ok(())
}

async fn answer(mut stream: TcpStream, state: String) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    let path = request[..length].split(|b| *b == b' ').nth(1);
    let (status, body) = match path {
        Some(b"/healthz") => ("200 OK", format!("{state}\n")),
        _ => ("404 Not Found", "there is only /healthz\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes())
        .await?;
    stream.shutdown().await
}

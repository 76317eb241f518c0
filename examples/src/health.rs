//! `/healthz` and the like, for a kubelet's probes.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

/// The path of metrics.
pub(crate) const METRICS: &str = "/metrics";

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request with a longer head is not waited for.
const LONGEST_HEAD: usize = 8 << 10;

/// What is answered: whether all is well, and words about it.
pub(crate) type Answer = Result<String, String>;

/// Answers GET for ever: 200 or 503 with the words of `answer` for the path, 404 where it has none. What it has for
/// [`METRICS`] is of the form that Prometheus reads.
pub(crate) async fn serve(
    address: SocketAddr,
    answer: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen at {address}"))?;
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(timeout(PATIENCE, reply(stream, Arc::clone(&answer))))),
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

async fn reply(mut stream: TcpStream, answer: Arc<impl Fn(&str) -> Option<Answer>>) -> io::Result<()> {
    let request = head(&mut stream).await?;
    let path = request.split(|b| *b == b' ').nth(1).unwrap_or_default();
    let path = String::from_utf8_lossy(path);
    let content_type = match path.as_ref() {
        METRICS => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain",
    };
    let (status, body) = match answer(&path) {
        Some(Ok(text)) => ("200 OK", text),
        Some(Err(text)) => ("503 Service Unavailable", text),
        None => ("404 Not Found", "there is nothing here".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n",
        body.len() + 1
    );
    stream
        .write_all(format!("{head}Connection: close\r\n\r\n{body}\n").as_bytes())
        .await?;
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

//! `/healthz` and the like, for a kubelet's probes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// The path of metrics.
pub(crate) const METRICS: &str = "/metrics";

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
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: that passes, and probes come again.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            let answer = Arc::clone(&answer);
            // A client that says nothing is not waited for.
            tokio::spawn(timeout(Duration::from_secs(5), reply(stream, answer)));
        }
    });
    Ok(())
}

async fn reply(mut stream: TcpStream, answer: Arc<impl Fn(&str) -> Option<Answer>>) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request).await?;
    let path = request[..length].split(|b| *b == b' ').nth(1).unwrap_or_default();
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

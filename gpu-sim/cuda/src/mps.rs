//! Being a client of the Multi-Process Service.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader},
    os::unix::net::UnixStream,
    path::PathBuf,
};

use crate::code::{Answer, Code};

/// A connection to the control daemon; the process is a client as long as it is open.
#[derive(Debug)]
pub(crate) struct Client {
    _connection: UnixStream,
    /// How much of a GPU's threads it may use, in percent.
    pub(crate) percentage: f64,
}

impl Client {
    /// Connects, if there is a daemon. One that does not listen is none.
    pub(crate) fn connect(pipe: Option<OsString>) -> Answer<Option<Self>> {
        let folder = pipe
            .filter(|pipe| !pipe.is_empty())
            .map_or_else(|| PathBuf::from("/tmp/nvidia-mps"), PathBuf::from);
        let Ok(connection) = UnixStream::connect(folder.join("control")) else {
            return Ok(None);
        };
        let mut answer = String::new();
        let read = BufReader::new(&connection).read_line(&mut answer);
        read.map_err(|_| Code::MPS_CONNECTION_FAILED)?;
        let percentage = percentage(&answer)?;
        Ok(Some(Self {
            _connection: connection,
            percentage,
        }))
    }
}

/// The daemon answers `server PID PERCENTAGE` or `refused REASON`.
fn percentage(answer: &str) -> Answer<f64> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    match words.as_slice() {
        ["server", _, percentage] => percentage.parse().map_err(|_| Code::MPS_CONNECTION_FAILED),
        ["refused", "the", "server", "has", ..] => Err(Code::MPS_MAX_CLIENTS_REACHED),
        _ => Err(Code::MPS_CONNECTION_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_percentage_or_a_reason() {
        assert_eq!(percentage("server 12 25.0\n"), Ok(25.0));
        assert_eq!(
            percentage("refused the server has 48 clients\n"),
            Err(Code::MPS_MAX_CLIENTS_REACHED)
        );
        for other in ["", "server 12\n", "server 12 many\n", "refused the daemon ends\n"] {
            assert_eq!(percentage(other), Err(Code::MPS_CONNECTION_FAILED), "{other}");
        }
    }
}

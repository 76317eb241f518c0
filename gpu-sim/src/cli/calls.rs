//! `gpu-sim calls`: the log of NVML calls.

use std::{
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

use clap::{Args, ValueEnum};

use super::{OfNode, print};
use crate::{Call, Node, Result, nvml};

#[derive(Debug, Args)]
pub(super) struct Calls {
    #[command(flatten)]
    node: OfNode,
    /// What to do. Default: print the calls, one a line: seconds since 1970, process, function, device, result, microseconds.
    #[arg(value_enum)]
    action: Option<Action>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Action {
    /// Log the calls of all processes from now on.
    On,
    /// Log no more; what is logged stays.
    Off,
    /// Forget what is logged.
    Clear,
}

impl Calls {
    pub(super) fn run(self) -> Result<()> {
        let node = Node::open(self.node.dir)?;
        match self.action {
            Some(Action::On) => node.log_calls(true),
            Some(Action::Off) => node.log_calls(false),
            Some(Action::Clear) => node.clear_calls(),
            None => {
                let calls = node.calls()?;
                if calls.is_empty() && !node.logs_calls()? {
                    return print("no calls are logged: `gpu-sim calls on` begins\n");
                }
                print(&calls.iter().fold(String::new(), |text, call| text + &line(call)))
            }
        }
    }
}

fn line(call: &Call) -> String {
    let since: Duration = call.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}.{:06} {:>7} {:<48} {:<44} {:<22} {:>8}",
        since.as_secs(),
        since.subsec_micros(),
        call.pid,
        call.function,
        call.device.as_deref().unwrap_or("-"),
        nvml::error_text(call.code).to_string_lossy(),
        call.duration.as_micros()
    );
    text
}

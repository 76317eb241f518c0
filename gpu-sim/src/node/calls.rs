//! The log of NVML calls.

use super::Node;
use crate::{Call, Result};

impl Node {
    /// Logs every NVML call of every process from now on, or no more. Calls that are logged already stay.
    ///
    /// A process that uses the node notices with its next call. Not logged are `nvmlErrorString`, calls outside of a session
    /// (before the first initialisation succeeds and after the last shutdown), and those in a container that got the library
    /// alone.
    ///
    /// # Errors
    /// Where the state cannot be written.
    pub fn log_calls(&self, on: bool) -> Result<()> {
        if on {
            self.state.open_calls()?; // so that one who may not write elsewhere need not make it
        }
        self.state.change(&self.file, |record| {
            record.log_calls = on;
            Ok(())
        })
    }

    /// Whether calls are logged.
    ///
    /// # Errors
    /// Where the state cannot be read.
    pub fn logs_calls(&self) -> Result<bool> {
        Ok(self.state.read()?.log_calls)
    }

    /// The calls that were logged, in the order in which they ended.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn calls(&self) -> Result<Vec<Call>> {
        self.state.calls()
    }

    /// Forgets the calls that were logged.
    ///
    /// # Errors
    /// Where the log cannot be written.
    pub fn clear_calls(&self) -> Result<()> {
        self.state.clear_calls()
    }
}

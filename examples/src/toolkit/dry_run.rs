//! What a run would do, with nothing done.

use gpu_runtime_config::apply::Stop;

use super::{arguments::Arguments, engine_setup::EngineSetup, nodes::Nodes, pid_file, programs, specs};
use crate::program::print;

/// Says all that a run would do, in its order, and what it would not since it is so already.
///
/// # Errors
/// Those that a run would find before it changes anything.
pub(super) async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let programs = programs::find(arguments)?;
    let setup = EngineSetup::find(arguments, &Stop::default())?;
    setup.tell();
    if pid_file::is_held(arguments.pid_file())? {
        tracing::warn!(
            "another gpu-toolkit holds `{}`: a run would end without doing any of this",
            arguments.pid_file().display()
        );
    }
    for program in &programs {
        program.announce()?;
    }
    Nodes::Control.announce(arguments)?;
    specs::have_described(false).await?;
    setup.announce(arguments)?;
    if arguments.no_daemon {
        return Ok(());
    }
    print("would then describe the GPUs anew whenever they change, until it is told to end\n")?;
    if arguments.no_runtime_config {
        return Ok(());
    }
    print(format_args!(
        "would take back what it set in {} at its end\n",
        setup.engine()
    ))
}

use std::ffi::OsString;

use clap::Args;

use super::{
    node::{Node, lock},
    outcome::{carry_out, notices, show},
};
use crate::program::remark;

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Revert {
    #[command(flatten)]
    pub(super) node: Node,

    /// Not needed: the receipt beside the main file names what `configure` wrote. Taken so that its flags can be given again
    #[arg(long, value_name = "PATH")]
    drop_in_config: Option<OsString>,

    /// Says which files would be written or removed and prints what is left of them, and changes nothing
    #[arg(long)]
    dry_run: bool,
}

impl Revert {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let target = self.node.target(self.drop_in_config.as_ref())?;
        let lock = lock(&target, self.dry_run)?;
        let Some(plan) = target.revert()? else {
            let main = target.here(&target.main);
            remark(format_args!(
                "`{}` was not configured by gpuctl: nothing to do",
                main.display()
            ));
            return Ok(());
        };
        notices(&target, &plan);
        match lock {
            Some(lock) => carry_out(&target, &plan, &lock),
            None => show(&target, &plan, &[]),
        }
    }
}

//! Carrying a plan out, or showing what would come of it.

use std::path::Path;

use anyhow::bail;
use gpu_core::root::Root;
use gpu_runtime_config::{
    FileChange, Notice, Plan,
    apply::{Lock, Outcome, Restart, Stop, read_file},
};

use crate::{
    engine::{Target, news},
    program::{print, remark},
};

/// Says what a person should know about a plan.
pub(super) fn notices(target: &Target, plan: &Plan) {
    for notice in news(plan) {
        remark(format_args!("note: {}", as_seen_from_here(target, notice.clone())));
    }
}

fn as_seen_from_here(target: &Target, mut notice: Notice) -> Notice {
    if let Notice::NoDropInsInVersion1 { path }
    | Notice::DropInReplaced { path }
    | Notice::ChangedSince { path, .. }
    | Notice::RuntimeRemoved { path, .. } = &mut notice
    {
        *path = target.here(path);
    }
    notice
}

/// Carries a plan out under the lock.
pub(super) fn carry_out(target: &Target, plan: &Plan, lock: &Lock) -> anyhow::Result<()> {
    warn_of_a_new_folder(target, plan);
    match target.apply(plan, Restart::None, None, &Stop::default(), lock)? {
        Outcome::Unchanged => remark("Nothing to change"),
        Outcome::Applied => {
            for change in &plan.changes {
                let verb = verb(change, ["Made", "Wrote", "Removed"]);
                remark(format_args!("{verb} `{}`", target.here(&change.path).display()));
            }
            remark(format_args!(
                "It is recommended that {} be restarted.",
                target.engine.name()
            ));
        }
        other => bail!("cannot configure {}: {other}", target.engine.name()),
    }
    Ok(())
}

/// Says what would be done, and prints what the files would hold: these and those that change.
pub(super) fn show(target: &Target, plan: &Plan, files: &[&Path]) -> anyhow::Result<()> {
    warn_of_a_new_folder(target, plan);
    for change in &plan.changes {
        let verb = verb(change, ["make", "write", "remove"]);
        remark(format_args!("Would {verb} `{}`", target.here(&change.path).display()));
    }
    if plan.is_empty() {
        remark("Nothing to change");
    }
    print(contents(target, plan, files)?)
}

fn verb<'v>(change: &FileChange, [make, write, remove]: [&'v str; 3]) -> &'v str {
    match (&change.before, &change.after) {
        (None, Some(_)) => make,
        (Some(_), Some(_)) => write,
        (_, None) => remove,
    }
}

/// A main file that is not there is made or taken as empty, as by the vendor's program; that there is not even its folder
/// tells of a mistyped path, or of a node without this engine.
fn warn_of_a_new_folder(target: &Target, plan: &Plan) {
    let is_made = |change: &FileChange| change.before.is_none();
    let folder = target.main.parent().unwrap_or(Path::new("/"));
    let is_there = || Root::open(&target.host_root).is_ok_and(|root| root.stat(folder).is_ok());
    if plan.changes.iter().any(is_made) && !is_there() {
        remark(format_args!(
            "warning: there was no folder `{}`: is this where {} reads its file?",
            target.here(folder).display(),
            target.engine.name()
        ));
    }
}

/// What the files would hold. Each is named where its notation has comments; Docker has one file alone.
fn contents(target: &Target, plan: &Plan, files: &[&Path]) -> anyhow::Result<String> {
    let changed = plan.changes.iter().map(|change| change.path.as_path());
    let changed = changed.filter(|path| !files.contains(path));
    let mut texts = Vec::new();
    for path in files.iter().copied().chain(changed) {
        let change = plan.changes.iter().find(|change| change.path == path);
        let text = match change {
            Some(change) => change.after.clone(),
            None => read_file(&target.host_root, path)?.text,
        };
        texts.extend(text.map(|text| match target.engine.drop_in() {
            Some(_) => format!("# {}\n{text}", target.here(path).display()),
            None => text,
        }));
    }
    Ok(texts.join("\n"))
}

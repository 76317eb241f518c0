//! Carrying a plan out, or showing what would come of it.

use std::path::Path;

use anyhow::bail;
use gpu_runtime_config::{
    FileChange, Notice, Plan, Reload,
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
    match target.apply(plan, Restart::None, None, &Stop::default(), |_| {}, lock)? {
        Outcome::Unchanged => remark("Nothing to change"),
        Outcome::Applied => {
            for change in &plan.changes {
                let verb = verb(change, ["Made", "Wrote", "Removed"]);
                remark(format_args!("{verb} `{}`", target.here(&change.path).display()));
            }
            remark(advice(target));
        }
        other => bail!("cannot configure {}: {other}", target.engine.name()),
    }
    Ok(())
}

/// What is left to do once the files are written.
fn advice(target: &Target) -> String {
    let engine = target.engine.name();
    match target.preset.map(|preset| (preset, preset.reload())) {
        Some((preset, Reload::Watched)) => {
            format!("No restart is needed: {preset} watches the files of {engine}.")
        }
        Some((_, Reload::Units(units))) => {
            let units: Vec<_> = units.iter().map(|unit| format!("`{unit}`")).collect();
            format!(
                "It is recommended that {engine} be restarted, by restarting {}.",
                units.join(" or ")
            )
        }
        _ => format!("It is recommended that {engine} be restarted."),
    }
}

/// Says what would be done, and prints what the files would hold: these and those that change.
pub(super) fn show(target: &Target, plan: &Plan, files: &[&Path]) -> anyhow::Result<()> {
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

//! The installed programs' configuration: the vendor's defaults with what was asked for.

use std::path::Path;

use gpu_cdi::Cache;
use gpu_runtime_config::toolkit::{self, Assignment};

use super::{
    arguments::Arguments,
    installed_file::{Content, InstalledFile},
};
use crate::{
    engine::Target,
    toolkit_config::{self, keys},
};

/// The file as it is to be.
pub(super) fn file(arguments: &Arguments, target: &Target) -> anyhow::Result<InstalledFile> {
    let mut runtimes = arguments.runtime_settings.low_level_runtimes();
    if runtimes.is_empty() {
        runtimes = target.low_level_runtimes(&arguments.settings()?)?;
    }
    Ok(InstalledFile {
        path: arguments
            .folder()
            .join(toolkit_config::BESIDE)
            .join(toolkit_config::PATH),
        content: Content::Text(text(arguments, &runtimes)?),
        mode: 0o644,
    })
}

fn text(arguments: &Arguments, runtimes: &[String]) -> anyhow::Result<String> {
    let mut settings = vec![
        (keys::DRIVER_ROOT, arguments.driver_root.clone()),
        (
            keys::CTK_PATH,
            arguments.folder().join("nvidia-ctk").display().to_string(),
        ),
        (keys::SKIP_MODE_DETECTION, true.to_string()),
        (keys::RUNTIMES, runtimes.join(",")),
    ];
    settings.extend(spec_dirs(arguments).map(|folders| (keys::SPEC_DIRS, folders)));
    settings.extend(arguments.runtime_settings.assignments());
    let assignments = settings
        .iter()
        .map(|(key, value)| Assignment::parse(&format!("{key}={value}"), ","))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(toolkit::set(
        "config.toml".as_ref(),
        &toolkit::defaults(),
        &assignments,
    )?)
}

/// The folders where the runtime finds devices, if they are others than usual.
fn spec_dirs(arguments: &Arguments) -> Option<String> {
    let specs = arguments.specs();
    // The last one counts most: these specs are those that are kept up to date.
    let folders = || format!("{},{}", Cache::DIRS.join(","), specs.display());
    let is_usual = Cache::DIRS.iter().any(|folder| Path::new(folder) == specs);
    (!is_usual).then(folders)
}

#[cfg(test)]
mod tests {
    use gpu_runtime_config::toolkit::Config;

    use super::*;

    #[test]
    fn the_runtime_reads_what_was_asked_for() {
        let arguments = Arguments::of(&[
            "--nvidia-container-runtime-debug=/l",
            "--nvidia-container-runtime-log-level=debug",
            "--nvidia-container-runtime-modes.cdi.default-kind=v.com/gpu",
            "--cdi-enabled",
            "--cdi-output-dir=/c",
        ])
        .unwrap();
        let text = text(&arguments, &["/opt/runc".to_owned()]).unwrap();
        let config = Config::parse("c".as_ref(), &text).unwrap();
        assert_eq!(
            (
                config.log_file.as_deref(),
                config.log_level.as_str(),
                config.cdi_default_kind.as_str()
            ),
            (Some("/l"), "debug", "v.com/gpu")
        );
        assert_eq!(config.cdi_spec_dirs, ["/etc/cdi", "/var/run/cdi", "/c"]);
        assert_eq!(
            (config.runtimes, config.unknown_keys),
            (vec!["/opt/runc".to_owned()], vec![])
        );
    }
}

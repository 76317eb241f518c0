#![no_main]

use gpu_labels::{
    LabelKey, LabelValue, Labels, Node, Options,
    gpu_core::Inventory,
    gpu_sharing::config::{self, Config, ConfigFile, Flags, Reading},
    labels,
};

// An inventory, a zero byte, and a configuration file; whether each model has labels is told by how that begins.
libfuzzer_sys::fuzz_target!(|input: &str| {
    let (inventory, config) = input.split_once('\0').unwrap_or((input, ""));
    let per_model = config.starts_with('#');
    let Ok(inventory) = serde_json::from_str::<Inventory>(inventory) else {
        return;
    };
    let Ok((file, _)) = ConfigFile::parse(config, Reading::Lenient) else {
        return;
    };
    let (config, _) = Config::resolve(file, Flags::default(), config::Options { naming: true });
    let Ok((labels, _)) = labels(&inventory, &Node::default(), &config, Options { per_model }) else {
        return;
    };
    for (key, value) in &labels {
        key.as_str().parse::<LabelKey>().expect("a key");
        value.as_str().parse::<LabelValue>().expect("a value");
    }
    assert_eq!(Labels::parse_feature_file(&labels.to_string()), Ok(labels));
});

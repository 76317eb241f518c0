#![no_main]

use gpu_sharing::mig::Profile;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(profile) = text.parse::<Profile>() else { return };
    assert_eq!(profile.as_str().parse::<Profile>().as_ref(), Ok(&profile));
    assert_eq!(profile.gpu_instance().compute_slices(), profile.slices());
    let _ = (profile.label(), profile.attributes().count(), profile.without().count());
});

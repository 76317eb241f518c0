use super::{add_all, options::all_name, simplify};
use crate::{Result, Spec, names};

/// One spec for the devices whose memory is coherent with the processor's and one for the others, as far as there are such.
///
/// For specs made with [`coherent_annotations`](crate::GenerateOptions::coherent_annotations): the class of the kind ends in
/// `.coherent` or `.noncoherent`, and the annotation is gone. The vendor writes them beside the whole spec, to files with
/// the same ending before the extension.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid), if the spec is.
pub fn split_by_coherence(spec: &Spec) -> Result<Vec<Spec>> {
    let mut specs = Vec::new();
    for (class, value) in [("coherent", "true"), ("noncoherent", "false")] {
        let mut part = spec.clone();
        part.devices.retain(|device| {
            device
                .annotations
                .get(names::COHERENT)
                .is_some_and(|found| found == value)
        });
        if part.devices.is_empty() {
            continue;
        }
        for device in &mut part.devices {
            device.annotations.remove(names::COHERENT);
        }
        part.kind = spec.kind.with_subclass(class);
        if spec.devices.iter().any(|device| device.name == all_name()) {
            add_all(&mut part);
            simplify::simplify(&mut part);
        }
        part.cdi_version = part.required_version();
        part.validate()?;
        specs.push(part);
    }
    Ok(specs)
}

use nvml_wrapper::Nvml;

use super::{Library, guard::Progress, raw, read::Reader};
use crate::Problem;

/// A number that NVML gives by number: `NVML_FI_*`, as `nvml.h` numbered them before CUDA 13.0 Update 1.
///
/// That update gave 251 to 273 other numbers (driver 580.82); they are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Field {
    /// `NVML_FI_*`.
    pub id: u32,
    /// Which of several: a link's number, or all ones for the sum, by what `nvml.h` says of the field. 0 where it says nothing.
    pub scope: u32,
}

/// What NVML answered to a [`Field`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldReading {
    /// What was asked for.
    pub field: Field,
    /// The value; `None` where the GPU does not offer it, or the answer is no number.
    pub value: Option<FieldValue>,
    /// When the driver read it, in microseconds since 1970; 0 where it does not say.
    pub timestamp_us: i64,
}

/// A field's value, as wide as NVML gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum FieldValue {
    /// A number from 0 on.
    Unsigned(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A fraction; always finite.
    Float(f64),
}

impl FieldValue {
    /// From `NVML_VALUE_TYPE_*` and the union's bytes.
    fn from_nvml(kind: u32, bytes: [u8; 8]) -> Option<Self> {
        let [a, b, c, d, ..] = bytes;
        Some(match kind {
            0 => Self::Float(Some(f64::from_ne_bytes(bytes)).filter(|value| value.is_finite())?),
            1 => Self::Unsigned(u32::from_ne_bytes([a, b, c, d]).into()),
            // `unsigned long` has 64 bits on all machines that this runs on.
            2 | 3 => Self::Unsigned(u64::from_ne_bytes(bytes)),
            4 => Self::Signed(i64::from_ne_bytes(bytes)),
            5 => Self::Signed(i32::from_ne_bytes([a, b, c, d]).into()),
            6 => Self::Unsigned(u16::from_ne_bytes([a, b]).into()),
            _ => return None,
        })
    }
}

impl Library {
    /// Reads fields of one GPU, by NVML's index, in one call; the readings are in the order of the fields.
    ///
    /// # Errors
    /// Where the GPU is lost, hangs or cannot be asked at all. A field that it does not offer is no error.
    pub fn field_values(&self, index: u32, fields: &[Field]) -> Result<Vec<FieldReading>, Box<Problem>> {
        let fields = fields.to_vec();
        self.guarded_gpu(index, move |nvml: &Nvml, progress: &Progress| {
            let reader = Reader::new(index, progress);
            let device = reader.needed("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(index))?;
            let version = reader.needed("nvmlSystemGetDriverVersion", || raw::text::driver_version(nvml))?;
            let renumbered = is_renumbered(&version);
            let asked = fields.iter().map(|field| (number(field.id, renumbered), field.scope));
            let answers = reader.needed("nvmlDeviceGetFieldValues", || raw::field::field_values(&device, asked))?;
            let reading = |(field, answer): (&Field, raw::field::FieldAnswer)| FieldReading {
                field: *field,
                value: (answer.code == 0)
                    .then(|| FieldValue::from_nvml(answer.kind, answer.bytes))
                    .flatten(),
                timestamp_us: answer.timestamp_us,
            };
            Ok(fields.iter().zip(answers).map(reading).collect())
        })?
        .map_err(Box::new)
    }
}

/// Whether a driver has the numbers of CUDA 13.0 Update 1 (NVML's list of known issues).
fn is_renumbered(driver: &str) -> bool {
    let mut parts = driver.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    version >= (580, 82)
}

/// A field's number on a driver. The clock event reasons went behind the numbers of power smoothing.
fn number(id: u32, renumbered: bool) -> u32 {
    match id {
        251..=255 if renumbered => id + 18,
        256..=273 if renumbered => id - 5,
        id => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_an_update_changed_are_translated_each_to_its_own() {
        assert!(!is_renumbered("580.65.06") && !is_renumbered("470.256.02") && !is_renumbered(""));
        assert!(is_renumbered("580.82.07") && is_renumbered("610.43.02"));
        assert_eq!(
            (number(251, true), number(256, true), number(252, false)),
            (269, 251, 252)
        );
        let mut translated: Vec<_> = (0..300).map(|id| number(id, true)).collect();
        translated.sort_unstable();
        assert_eq!(translated, (0..300).collect::<Vec<_>>());
    }

    #[test]
    fn values_are_as_wide_and_as_signed_as_they_were_given() {
        #[track_caller]
        fn check(kind: u32, number: u64, expected: Option<FieldValue>) {
            assert_eq!(FieldValue::from_nvml(kind, number.to_ne_bytes()), expected);
        }
        check(0, 0.5_f64.to_bits(), Some(FieldValue::Float(0.5)));
        check(0, f64::NAN.to_bits(), None);
        check(0, f64::INFINITY.to_bits(), None);
        check(1, 7, Some(FieldValue::Unsigned(7)));
        check(2, 0x1_0000_0005, Some(FieldValue::Unsigned(0x1_0000_0005)));
        check(3, u64::MAX, Some(FieldValue::Unsigned(u64::MAX)));
        check(4, u64::MAX, Some(FieldValue::Signed(-1)));
        check(5, u64::from(u32::MAX - 2), Some(FieldValue::Signed(-3)));
        check(6, 65_535, Some(FieldValue::Unsigned(65_535)));
        check(8, 1, None);
    }
}

use std::fmt::Write as _;

use crate::mig::{Compute, GpuState, Held, Instance, Mode, Part};

/// A GPU's memory slots as text, to scale: one line of names between bars, `*` after the name of what is in use. Where a GPU
/// instance is divided, another line has its compute instances; dots are slots and compute slices that are free.
///
/// ```
/// use std::sync::Arc;
/// use gpu_sharing::mig::{Catalogue, GpuState, Held, Instance, Mode, Placement, draw_text};
///
/// let board = Arc::clone(Catalogue::builtin().board("A30-24GB").unwrap());
/// let held = |profile: &str, start, size, pinned| -> Result<_, gpu_sharing::mig::ParseProfileError> {
///     Ok(Held::whole(Instance { placement: Placement { start, size }, profile: profile.parse()? }, pinned))
/// };
/// let instances = vec![held("2g.12gb", 2, 2, true)?, held("1g.6gb", 0, 1, false)?];
/// let gpu = GpuState { name: "gpu-0".into(), board, mode: Mode::Enabled, instances };
/// assert_eq!(draw_text(&gpu), "\
/// gpu-0 (A30-24GB)
/// |0     |1     |2     |3     |
/// |1g.6gb|......|2g.12gb*     |
/// ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn draw_text(gpu: &GpuState) -> String {
    let slots = usize::from(gpu.board.memory_slots());
    let runs = runs(gpu);
    let cell = runs.iter().map(Run::cell).max().unwrap_or(0).max(2);
    let width = |run: &Run| run.size * (cell + 1) - 1;
    let mut text = format!("{}\n|", title(gpu));
    for slot in 0..slots {
        let _ = write!(text, "{slot:<cell$}|");
    }
    text.push_str("\n|");
    for run in &runs {
        run.write(&mut text, width(run));
    }
    text.push('\n');
    if runs.iter().any(|run| run.division.is_some()) {
        text.push('|');
        for run in &runs {
            let Some(Division { slices, runs }) = &run.division else {
                let _ = write!(text, "{:<1$}|", "", width(run));
                continue;
            };
            let edge = |slice: usize| slice * (width(run) + 1) / slices;
            for part in runs {
                part.write(&mut text, edge(part.start + part.size) - edge(part.start) - 1);
            }
        }
        text.push('\n');
    }
    text
}

/// A GPU's memory slots as an SVG image, to scale, without scripts, fonts or anything else from outside.
///
/// Instances in use are filled dark, idle ones light; what is free is outlined with dashes. Beneath a GPU instance that is
/// divided are its compute instances.
pub fn draw_svg(gpu: &GpuState) -> String {
    const SLOT: usize = 90;
    let runs = runs(gpu);
    let width = usize::from(gpu.board.memory_slots()) * SLOT + 20;
    let is_divided = runs.iter().any(|run| run.division.is_some());
    let height = if is_divided { 120 } else { 90 };
    let title = escape(&title(gpu));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<title>{title}</title>\n<text x=\"10\" y=\"20\">{title}</text>\n"
    );
    for run in runs {
        let (x, width) = (10 + run.start * SLOT, run.size * SLOT);
        run.rectangle(&mut svg, (x, width), (30, 40));
        for part in run.division.iter().flat_map(|division| &division.runs) {
            let slices = run.division.as_ref().map_or(1, |division| division.slices);
            let edge = |slice: usize| slice * width / slices;
            let part_width = edge(part.start + part.size) - edge(part.start);
            part.rectangle(&mut svg, (x + edge(part.start), part_width), (74, 26));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

enum Kind {
    Free,
    Idle,
    Pinned,
}

/// Slots of a GPU, or compute slices of a GPU instance, that are one thing.
struct Run {
    start: usize,
    size: usize,
    name: String,
    kind: Kind,
    division: Option<Division>,
}

/// What a GPU instance is divided into, if it is not one compute instance.
struct Division {
    slices: usize,
    runs: Vec<Run>,
}

impl Run {
    fn new((start, size): (usize, usize), name: &str, pinned: bool) -> Self {
        let (name, kind) = if pinned {
            (format!("{name}*"), Kind::Pinned)
        } else {
            (name.to_owned(), Kind::Idle)
        };
        Self {
            start,
            size,
            name,
            kind,
            division: None,
        }
    }

    fn free(start: usize) -> Self {
        Self {
            start,
            size: 1,
            name: String::new(),
            kind: Kind::Free,
            division: None,
        }
    }

    /// How wide a slot has to be for what is written here. A run of n slots has n - 1 bars' worth of room more than n slots.
    fn cell(&self) -> usize {
        let name = self.name.chars().count() + 1;
        let division = self.division.iter().map(|Division { slices, runs }| {
            let least = runs
                .iter()
                .map(|part| (part.name.chars().count() + 1).div_ceil(part.size));
            slices * least.max().unwrap_or(1)
        });
        division.fold(name, usize::max).div_ceil(self.size).saturating_sub(1)
    }

    fn write(&self, text: &mut String, width: usize) {
        let _ = match self.kind {
            Kind::Free => write!(text, "{:.<width$}|", ""),
            Kind::Idle | Kind::Pinned => write!(text, "{:<width$}|", self.name),
        };
    }

    fn rectangle(&self, svg: &mut String, (x, width): (usize, usize), (y, height): (usize, usize)) {
        let width = width - 4; // a gap
        let (fill, ink, dash) = match self.kind {
            Kind::Free => ("none", "#666", " stroke-dasharray=\"4 3\""),
            Kind::Idle => ("#cfe8b0", "#222", ""),
            Kind::Pinned => ("#4a7a12", "#fff", ""),
        };
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" stroke=\"#666\"{dash}/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
            x + width / 2,
            y + height / 2 + 5,
            escape(&self.name),
        );
    }
}

/// Instances and free slots from the first slot to the last; what does not fit the board is left out.
fn runs(gpu: &GpuState) -> Vec<Run> {
    let mut held: Vec<&Held> = gpu.instances.iter().collect();
    held.sort();
    let run = |held: &Held| {
        let Instance { profile, placement } = &held.instance;
        let at = (usize::from(placement.start), usize::from(placement.size));
        Run {
            division: division(held),
            ..Run::new(at, profile.as_str(), held.pinned)
        }
    };
    fill(gpu.board.memory_slots().into(), held.into_iter().map(run))
}

fn division(held: &Held) -> Option<Division> {
    let slices = held.instance.profile.slices() as usize;
    if held.compute == Compute::Whole || slices == 0 {
        return None;
    }
    let mut parts = held.parts();
    parts.sort();
    let run = |part: Part| {
        let at = (part.start as usize, part.slices as usize);
        Run::new(at, &format!("{}c", part.slices), part.pinned)
    };
    let runs = fill(slices, parts.into_iter().map(run));
    Some(Division { slices, runs })
}

/// Those, by start, and what is free between them.
fn fill(slots: usize, taken: impl Iterator<Item = Run>) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut next = 0;
    for run in taken {
        let end = run.start + run.size;
        if run.start >= next && run.size > 0 && end <= slots {
            runs.extend((next..run.start).map(Run::free));
            runs.push(run);
            next = end;
        }
    }
    runs.extend((next..slots).map(Run::free));
    runs
}

fn title(gpu: &GpuState) -> String {
    let mode = match gpu.mode {
        Mode::Enabled => "",
        Mode::Disabled => ", MIG off",
        Mode::Unavailable => ", not available",
    };
    format!("{} ({}{mode})", gpu.name, gpu.board)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::expect;

    use super::*;
    use crate::mig::{Catalogue, Geometry};

    fn gpu(board: &str, instances: &[(&str, u8, bool)]) -> GpuState {
        let board = Arc::clone(Catalogue::builtin().board(board).unwrap());
        let geometry = |(name, start, pinned): &(&str, u8, bool)| {
            let placed = Geometry::new(&board, [(name.parse().unwrap(), *start)]).unwrap();
            Held::whole(placed.instances()[0].clone(), *pinned)
        };
        let instances = instances.iter().map(geometry).collect();
        GpuState {
            name: "a<b".into(),
            board,
            mode: Mode::Enabled,
            instances,
        }
    }

    #[test]
    fn long_names_widen_all_slots() {
        expect![[r"
            a<b (H100-80GB)
            |0          |1          |2          |3          |4          |5          |6          |7          |
            |1g.10gb+me*|...........|...........|...........|3g.40gb                                        |
        "]]
        .assert_eq(&draw_text(&gpu(
            "H100-80GB",
            &[("3g.40gb", 4, false), ("1g.10gb+me", 0, true)],
        )));
    }

    #[test]
    fn an_image_escapes_names_and_has_a_box_for_each_run() {
        let svg = draw_svg(&gpu("A30-24GB", &[("2g.12gb", 0, true)]));
        assert!(svg.contains("<title>a&lt;b (A30-24GB)</title>"));
        assert_eq!(svg.matches("<rect").count(), 3);
        assert_eq!(svg.matches("stroke-dasharray").count(), 2);
    }

    /// A half of an H100 with a compute instance in use and an idle one, a quarter with none, and one that is not divided.
    fn divided() -> GpuState {
        let mut gpu = gpu(
            "H100-80GB",
            &[("3g.40gb", 4, true), ("2g.20gb", 0, false), ("1g.10gb", 2, false)],
        );
        let part = |start, slices, pinned| Part { start, slices, pinned };
        gpu.instances[0].compute = Compute::Parts(vec![part(1, 1, false), part(0, 1, true)]);
        gpu.instances[1].compute = Compute::Parts(Vec::new());
        gpu
    }

    #[test]
    fn beneath_an_instance_that_is_divided_are_its_compute_instances() {
        expect![[r"
            a<b (H100-80GB)
            |0      |1      |2      |3      |4      |5      |6      |7      |
            |2g.20gb        |1g.10gb|.......|3g.40gb*                       |
            |.......|.......|       |       |1c*      |1c        |..........|
        "]]
        .assert_eq(&draw_text(&divided()));
        let whole = &mut divided();
        whole.instances = vec![whole.instances[0].clone()];
        whole.instances[0].compute = Compute::Parts(Vec::new());
        assert!(draw_text(whole).ends_with("|...|...|...|\n"), "{}", draw_text(whole));
    }

    #[test]
    fn every_compute_instance_of_a_whole_gpu_has_room_for_its_name() {
        let mut gpu = gpu("H100-80GB", &[("7g.80gb", 0, true)]);
        let part = |start| Part {
            start,
            slices: 1,
            pinned: true,
        };
        gpu.instances[0].compute = Compute::Parts((0..7).map(part).collect());
        expect![[r"
            a<b (H100-80GB)
            |0  |1  |2  |3  |4  |5  |6  |7  |
            |7g.80gb*                       |
            |1c*|1c* |1c*|1c* |1c*|1c* |1c* |
        "]]
        .assert_eq(&draw_text(&gpu));
    }

    #[test]
    fn an_image_has_a_box_for_each_compute_instance_and_each_free_slice() {
        let svg = draw_svg(&divided());
        assert_eq!(svg.matches("<rect").count(), 4 + 5);
        assert_eq!(svg.matches("y=\"74\"").count(), 5);
        assert_eq!(svg.matches("stroke-dasharray").count(), 1 + 3);
        assert!(svg.contains(">1c*</text>") && svg.contains(">1c</text>"), "{svg}");
        assert!(svg.contains("height=\"120\""), "room for the second row: {svg}");
    }
}

use std::fmt::Write as _;

use crate::mig::{GpuState, Held, Mode};

/// A GPU's memory slots as text, to scale: one line of names between bars, `*` after the name of what is in use.
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
    // A run of n slots has n - 1 bars' worth of room more than n cells.
    let needed = |run: &Run| (run.name.chars().count() + 1).div_ceil(run.size).saturating_sub(1);
    let cell = runs.iter().map(needed).max().unwrap_or(0).max(2);
    let mut text = format!("{}\n|", title(gpu));
    for slot in 0..slots {
        let _ = write!(text, "{slot:<cell$}|");
    }
    text.push_str("\n|");
    for run in &runs {
        let width = run.size * (cell + 1) - 1;
        let _ = match run.kind {
            Kind::Free => write!(text, "{:.<width$}|", ""),
            Kind::Idle | Kind::Pinned => write!(text, "{:<width$}|", run.name),
        };
    }
    text.push('\n');
    text
}

/// A GPU's memory slots as an SVG image, to scale, without scripts, fonts or anything else from outside.
///
/// Instances in use are filled dark, idle ones light; free slots are outlined with dashes.
pub fn draw_svg(gpu: &GpuState) -> String {
    const SLOT: usize = 90;
    let width = usize::from(gpu.board.memory_slots()) * SLOT + 20;
    let title = escape(&title(gpu));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"90\" viewBox=\"0 0 {width} 90\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<title>{title}</title>\n<text x=\"10\" y=\"20\">{title}</text>\n"
    );
    for run in runs(gpu) {
        let (x, width) = (10 + run.start * SLOT, run.size * SLOT - 4);
        let (fill, ink, dash) = match run.kind {
            Kind::Free => ("none", "#666", " stroke-dasharray=\"4 3\""),
            Kind::Idle => ("#cfe8b0", "#222", ""),
            Kind::Pinned => ("#4a7a12", "#fff", ""),
        };
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"30\" width=\"{width}\" height=\"40\" fill=\"{fill}\" stroke=\"#666\"{dash}/>\n\
             <text x=\"{}\" y=\"55\" text-anchor=\"middle\" fill=\"{ink}\">{}</text>",
            x + width / 2,
            escape(&run.name),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

enum Kind {
    Free,
    Idle,
    Pinned,
}

struct Run {
    start: usize,
    size: usize,
    name: String,
    kind: Kind,
}

/// Instances and free slots from the first slot to the last; what does not fit the board is left out.
fn runs(gpu: &GpuState) -> Vec<Run> {
    let slots = usize::from(gpu.board.memory_slots());
    let mut held: Vec<&Held> = gpu.instances.iter().collect();
    held.sort();
    let mut runs = Vec::new();
    let mut next = 0;
    let free = |start| Run {
        start,
        size: 1,
        name: String::new(),
        kind: Kind::Free,
    };
    for Held { instance, pinned, .. } in held {
        let (start, size) = (
            usize::from(instance.placement.start),
            usize::from(instance.placement.size),
        );
        if start < next || size == 0 || start + size > slots {
            continue;
        }
        runs.extend((next..start).map(free));
        let (name, kind) = match pinned {
            true => (format!("{}*", instance.profile), Kind::Pinned),
            false => (instance.profile.to_string(), Kind::Idle),
        };
        runs.push(Run {
            start,
            size,
            name,
            kind,
        });
        next = start + size;
    }
    runs.extend((next..slots).map(free));
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
}

//! Which devices a process sees.

/// A device by its UUID, as `GPU-…` or `MIG-…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate<'a> {
    pub(crate) uuid: &'a str,
    pub(crate) mig: bool,
}

/// Places of the devices that a process sees, in its order. `wanted` is `CUDA_VISIBLE_DEVICES`, where it is set: indices or
/// the beginnings of UUIDs; what follows one that is unknown is not seen, and with one that stands twice nothing is.
pub(crate) fn visible(all: &[Candidate<'_>], wanted: Option<&str>) -> Vec<usize> {
    let whole = all.iter().any(|candidate| !candidate.mig);
    // Without a wish, and for indices: the whole GPUs, or else one MIG device.
    let plain: Vec<usize> = (0..all.len())
        .filter(|at| all.get(*at).is_some_and(|candidate| !candidate.mig || !whole))
        .collect();
    let mut seen = Vec::new();
    match wanted {
        None => seen = plain,
        Some(wanted) => {
            for word in wanted.split(',').map(str::trim) {
                let found = match word.parse::<usize>() {
                    Ok(index) => plain.get(index).copied(),
                    Err(_) if word.starts_with("GPU-") || word.starts_with("MIG-") => {
                        let mut like =
                            (0..all.len()).filter(|at| all.get(*at).is_some_and(|it| it.uuid.starts_with(word)));
                        like.next().filter(|_| like.next().is_none())
                    }
                    Err(_) => None,
                };
                let Some(found) = found else { break };
                if seen.contains(&found) {
                    return Vec::new();
                }
                seen.push(found);
            }
        }
    }
    let first_mig = seen.iter().position(|at| all.get(*at).is_some_and(|it| it.mig));
    match first_mig {
        Some(0) => seen.truncate(1),
        Some(at) => seen.truncate(at),
        None => {}
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Candidate<'_>; 4] = [gpu("GPU-aa0"), mig("MIG-1"), mig("MIG-2"), gpu("GPU-ab0")];

    const fn gpu(uuid: &str) -> Candidate<'_> {
        Candidate { uuid, mig: false }
    }

    const fn mig(uuid: &str) -> Candidate<'_> {
        Candidate { uuid, mig: true }
    }

    #[track_caller]
    fn check(all: &[Candidate<'_>], wanted: Option<&str>, expected: &[usize]) {
        assert_eq!(visible(all, wanted), expected, "{wanted:?}");
    }

    #[test]
    fn without_a_wish_whole_gpus_are_seen_or_one_mig_device() {
        check(&ALL, None, &[0, 3]);
        check(&ALL[1..3], None, &[0]);
        check(&[], None, &[]);
    }

    #[test]
    fn a_list_chooses_by_index_or_by_the_beginning_of_a_uuid() {
        check(&ALL, Some("1,0"), &[3, 0]);
        check(&ALL, Some("GPU-ab, GPU-aa0"), &[3, 0]);
        check(&ALL, Some("MIG-2"), &[2]);
        check(&ALL, Some("MIG-2,MIG-1"), &[2]);
        check(&ALL[1..3], Some("0"), &[0]);
    }

    #[test]
    fn what_follows_an_unknown_one_is_not_seen() {
        check(&ALL, Some(""), &[]);
        check(&ALL, Some("-1,0"), &[]);
        check(&ALL, Some("1,7,0"), &[3]);
        check(&ALL, Some("GPU-a"), &[]);
        check(&ALL, Some("0,nvidia1"), &[0]);
        check(&ALL, Some("0,0"), &[]);
    }
}

use super::*;

fn table(name: &str) -> &'static MigTable {
    find(name).unwrap()
}

#[test]
fn every_table_file_is_a_table_and_places_fit_its_slots() {
    for text in data::MIG {
        let table: MigTable = serde_saphyr::from_str(text).unwrap();
        for profile in &table.profiles {
            let name = format!("{} {}", table.name, profile.profile);
            assert!(
                profile.starts.iter().all(|start| start + profile.size <= table.slots),
                "{name}"
            );
            assert!(profile.starts.is_sorted_by(|a, b| a + profile.size <= *b), "{name}");
            assert!(profile.starts.len() >= profile.instances as usize, "{name}");
            assert!(
                free_starts(&table, profile, &[]).len() == profile.starts.len(),
                "{name}"
            );
            let full = &table.profiles.iter().map(|other| other.memory_mib).max().unwrap();
            assert!(profile.memory_mib <= *full, "{name}");
        }
        let mut ids: Vec<u32> = table.profiles.iter().map(|profile| profile.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), table.profiles.len(), "{}", table.name);
    }
}

/// The names stand in the files as comments, from the vendor's own programs; here they are computed for each board.
#[test]
fn names_computed_from_memory_are_those_of_the_vendors_programs() {
    let mut checked = 0;
    for text in data::MIG {
        let table: MigTable = serde_saphyr::from_str(text).unwrap();
        let commented: Vec<&str> = text
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("memory_mib")?.split_once("# "))
            .map(|(_, name)| name.split(' ').next().unwrap_or(name))
            .collect();
        for board in crate::boards().filter(|board| board.mig.as_ref() == Some(&table.name)) {
            let profiles = table.profiles.iter();
            let computed: Vec<String> = profiles
                .map(|profile| profile.name(profile.slices, board.memory.total_bytes))
                .collect();
            if !commented.is_empty() {
                assert_eq!(computed, commented, "{}", board.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 12, "only {checked}");
}

/// What a line of the record says of a profile, from its constant on but for the name.
fn recorded(table: &MigTable, profile: &MigProfile) -> Vec<String> {
    let starts: Vec<String> = profile.starts.iter().map(u32::to_string).collect();
    let board = crate::boards()
        .find(|board| board.mig.as_ref() == Some(&table.name))
        .unwrap();
    let mut words = vec![
        profile.profile.to_string(),
        profile.name(profile.slices, board.memory.total_bytes),
    ];
    let numbers = [profile.id, profile.slices, profile.instances];
    words.extend(numbers.iter().map(u32::to_string));
    words.push(profile.memory_mib.to_string());
    let engines = [
        profile.multiprocessors,
        profile.copy_engines,
        profile.decoders,
        profile.encoders,
        profile.jpeg,
        profile.ofa,
        profile.size,
    ];
    words.extend(engines.iter().map(u32::to_string));
    words.push(starts.join(","));
    words
}

#[test]
fn profiles_and_places_are_those_that_drivers_tell() {
    let lines = include_str!("../../tests/upstream/mig-profiles.txt").lines();
    let lines: Vec<Vec<&str>> = lines
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
        .collect();
    assert!(lines.len() > 90, "only {}", lines.len());
    for line in &lines {
        let (board, words) = line.split_first().unwrap();
        let table = table(board);
        let profile = table.by_constant(words[0].parse().unwrap()).unwrap();
        for (ours, known) in recorded(table, profile).iter().zip(words) {
            assert!(*known == "-" || ours == known, "{line:?}: {ours}");
        }
        let of_board = lines.iter().filter(|other| other[0] == *board).count();
        assert_eq!(of_board, table.profiles.len(), "{board}");
    }
}

#[test]
fn a_name_has_a_compute_part_only_where_it_differs_and_no_memory_is_0gb() {
    let three = table("A100-40GB").by_constant(2).unwrap();
    assert_eq!(three.name(3, 40 << 30), "3g.20gb");
    assert_eq!(three.name(1, 40 << 30), "1c.3g.20gb");
    assert_eq!(three.name(3, 0), "3g.0gb");
}

#[test]
fn the_driver_fills_the_upper_half_first() {
    #[track_caller]
    fn check(table: &str, constant: u32, starts: &[u32], ids: &[u32]) {
        let table = find(table).unwrap();
        let profile = table.by_constant(constant).unwrap();
        let mut taken = Vec::new();
        while let Some(start) = preferred(table, profile, &free_starts(table, profile, &taken)) {
            taken.push((profile, start));
        }
        assert_eq!(taken.iter().map(|(_, start)| *start).collect::<Vec<_>>(), starts);
        let got: Vec<u32> = starts
            .iter()
            .map(|start| instance_id(table, *start, profile.size))
            .collect();
        assert_eq!(got, ids);
    }
    check("H100-80GB", 0, &[6, 4, 5, 0, 1, 2, 3], &[9, 7, 8, 11, 12, 13, 14]);
    check("H100-80GB", 1, &[4, 0, 2], &[3, 5, 6]);
    check("H100-80GB", 2, &[4, 0], &[1, 2]);
    check("H100-80GB", 3, &[0], &[2]);
    check("H100-80GB", 4, &[0], &[0]);
    check("H100-80GB", 7, &[6], &[9]);
    check("A30-24GB", 1, &[2, 0], &[1, 2]);
    check("RTX-PRO-6000-96GB", 0, &[6, 9, 0, 3], &[3, 4, 5, 6]);
}

#[test]
fn engines_forbid_what_slots_would_allow() {
    let table = table("RTX-PRO-6000-96GB");
    let (one, all, none) = (
        table.by_constant(0).unwrap(),
        table.by_constant(15).unwrap(),
        table.by_constant(13).unwrap(),
    );
    assert_eq!(free_starts(table, one, &[(all, 0)]), [] as [u32; 0]);
    assert_eq!(free_starts(table, none, &[(all, 0)]), [3, 6, 9]);
    assert_eq!(free_starts(table, all, &[(one, 0)]), [] as [u32; 0]);
}

#[test]
fn compute_instances_start_where_they_may() {
    #[track_caller]
    fn check(slices: u32, compute: u32, expected: &[u32]) {
        assert_eq!(compute_starts(slices, compute), expected);
    }
    check(3, 2, &[0]);
    check(4, 2, &[0, 2]);
    check(7, 2, &[0, 2, 4]);
    check(7, 3, &[0, 4]);
    check(7, 4, &[0]);
    check(7, 7, &[0]);
    check(2, 3, &[]);
}

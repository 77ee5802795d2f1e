//! Migrations that are cut short, and what may go on where they ended.

use super::*;
use crate::claim::claim;
use vellum_core::addr::Segment;
use vellum_frontend::unaligned::ByteDevice;
use vellum_medium::{Fault, FaultMedium, Plan};

/// Runs it with nobody to interrupt it.
fn run(args: &Args) -> Result<()> {
    migrated(args, &|| false)
}

fn args(source: &Path, target: &Path, layout: LayoutChoice) -> Args {
    Args {
        source: source.to_owned(),
        target: target.to_owned(),
        layout,
        size: None,
        over_provisioning: None,
        medium_size: None,
        force: false,
        encrypt: false,
        key: Key::none(),
        run: Run::default(),
    }
}

/// The state that an interrupted migration leaves, with its mark.
fn cut_short(args: &Args) -> State {
    let medium = claim_target(None, &args.target, &args.key).unwrap().medium;
    let target = volume_on(medium, false, Policy::default()).unwrap();
    unfinished::mark(By::Migrate, &target).unwrap();
    target.stop().unwrap();
    recorded(args)
}

/// The same without the mark.
fn recorded(args: &Args) -> State {
    let source = peek::superblock_of(&args.source, &args.key).unwrap().0;
    let state = State {
        source: hex_uuid(&source.uuid()),
        life: source.life().0,
        target: peek::uuid_of(&args.target).unwrap(),
        asked: TargetOptions::of(args),
        blocks_done: 0,
    };
    state.save(&State::path(&args.target)).unwrap();
    state
}

/// A directory for this test, with a source in it.
fn place(test: &str) -> (PathBuf, PathBuf) {
    let directory =
        std::env::temp_dir().join(format!("vellum-migrate-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let source = directory.join("a");
    volume::create(&source, &new(Layout::Log), &|| false).unwrap();
    (directory, source)
}

fn new(layout: Layout) -> NewVolume {
    NewVolume {
        over_provisioning: 70,
        layout,
        history: 0,
        ..NewVolume::of(16 << 20)
    }
}

/// Its copy would have the older contents, and not say so.
#[test]
fn a_source_whose_newest_blocks_cannot_be_read_is_refused() {
    let (directory, source) = place("unread");
    let superblock = peek::superblock_of(&source, &Key::none()).unwrap().0;
    // Where the log goes on.
    let at = superblock.segment_start(Segment(0)).0;
    let plan = Plan::default().with_every(Fault::ReadError, at..at + 1);
    let medium = opened::open(&source, true, &Key::none()).unwrap();
    let faulty = FaultMedium::new(medium, plan);
    let volume = volume_on(Box::new(faulty), true, Policy::default()).unwrap();
    let refused = undamaged(volume).err().unwrap().to_string();
    assert!(refused.contains("cannot read"), "{refused}");
    std::fs::remove_dir_all(directory).unwrap();
}

/// A kill at any moment in the beginning leaves nothing that the same command cannot continue from.
#[test]
fn an_unfinished_target_does_not_stop_a_migration() {
    let (directory, source) = place("cut");
    let target = directory.join("b");
    let args = args(&source, &target, LayoutChoice::Ordered);
    // While it was being made.
    std::fs::write(unfinished(&target), b"half a volume").unwrap();
    run(&args).unwrap();
    // It was made, but not named.
    cut_short(&args);
    std::fs::rename(&target, unfinished(&target)).unwrap();
    run(&args).unwrap();
    assert!(!unfinished(&target).exists() && !State::path(&target).exists());
    // Another volume.
    let error = run(&args).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_interrupted_migration_says_what_is_left_and_goes_on() {
    let (directory, source) = place("interrupted");
    let target = directory.join("b");
    let args = args(&source, &target, LayoutChoice::Ordered);
    let said = migrated(&args, &|| true).unwrap_err().to_string();
    let path = State::path(&target);
    let left = [&target, &path].map(|left| left.display().to_string());
    for told in ["interrupted: ", "same command", &left[0], &left[1]] {
        assert!(said.contains(told), "{told} is not in {said}");
    }
    assert!(path.exists() && target.exists());
    run(&args).unwrap();
    assert!(!path.exists());
    std::fs::remove_dir_all(&directory).unwrap();
}

/// What is written to half a copy is lost when the migration goes on.
#[test]
fn half_a_copy_is_only_for_the_migration_that_goes_on() {
    let (directory, source) = place("half");
    let target = directory.join("b");
    let args = args(&source, &target, LayoutChoice::Ordered);
    let found = peek::superblock_of(&source, &args.key).unwrap().0;
    let volume = opened::open(&source, true, &args.key).unwrap();
    let volume = volume_on(volume, true, Policy::default()).unwrap();
    begun(&args, &found, &State::path(&target), &volume).unwrap();
    drop(volume);
    for read_only in [false, true] {
        let refused = claim(&target, read_only, &args.key).err().unwrap();
        let told = ["half a copy", "same command", "b.migrating"];
        assert!(told.iter().all(|told| refused.to_string().contains(told)));
    }
    let onwards = self::args(&target, &directory.join("c"), LayoutChoice::Log);
    let refused = run(&onwards).unwrap_err().to_string();
    assert!(refused.contains("half a copy"), "{refused}");
    run(&args).unwrap();
    drop(claim(&target, false, &args.key).unwrap());
    // Somebody took half of it for the whole.
    recorded(&args);
    let refused = run(&args).unwrap_err().to_string();
    assert!(refused.contains("not marked as half a copy"), "{refused}");
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_copy_of_a_deduplicated_volume_fits_with_dedup() {
    let (directory, source) = place("shared");
    let medium =
        vellum_medium::FileMedium::open(&source, vellum_medium::OpenOptions::default()).unwrap();
    let bytes = ByteDevice::from(
        volume_on(Box::new(medium), false, Policy::default()).unwrap() as Arc<dyn BlockDevice>,
    );
    let same = vec![7; 8 << 20];
    bytes.write(0, &same, false).unwrap();
    bytes.flush().unwrap();
    drop(bytes);
    let target = directory.join("b");
    let small = Args {
        medium_size: Some(Size(6 << 20)),
        ..args(&source, &target, LayoutChoice::Ordered)
    };
    let error = run(&small).unwrap_err().to_string();
    let told = ["--medium-size", "b.migrating", "--with dedup=on"];
    assert!(told.iter().all(|told| error.contains(told)), "{error}");
    std::fs::remove_file(&target).unwrap();
    std::fs::remove_file(State::path(&target)).unwrap();
    let mut with = Run::default();
    with.add("dedup=on".parse().unwrap());
    run(&Args { run: with, ..small }).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_migration_resumes_only_with_the_same_options() {
    let (directory, source) = place("options");
    let target = directory.join("b");
    let first = args(&source, &target, LayoutChoice::Ordered);
    run(&first).unwrap();
    let path = State::path(&target);
    assert!(!path.exists(), "it has ended");

    let state = cut_short(&first);
    assert_eq!(State::load(&path).unwrap(), Some(state));
    let other = args(&source, &target, LayoutChoice::Shadow);
    let error = run(&other).unwrap_err().to_string();
    assert!(
        error.contains("another --layout") && error.contains("--layout ordered"),
        "{error}"
    );
    let other = Args {
        over_provisioning: Some(30),
        ..args(&source, &target, LayoutChoice::Ordered)
    };
    let error = run(&other).unwrap_err().to_string();
    assert!(error.contains("another --over-provisioning"), "{error}");
    run(&first).unwrap();
    assert!(!path.exists(), "it has gone on");
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Somebody makes a file of the target's name while the target is made.
#[test]
fn a_target_that_appears_meanwhile_is_not_replaced() {
    let (directory, source) = place("appears");
    let target = directory.join("b");
    let appears = |_| Ok(std::fs::write(&target, b"precious")?);
    let error = make(&target, &new(Layout::Ordered), appears).unwrap_err();
    assert!(format!("{error:#}").contains("has just"), "{error:#}");
    assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    // It goes on when the name is free again.
    assert!(unfinished(&target).exists());
    std::fs::remove_file(&target).unwrap();
    name(&target).unwrap();
    assert!(target.exists() && !unfinished(&target).exists());
    drop(source);
    std::fs::remove_dir_all(directory).unwrap();
}

//! The repository itself, under test.

use xtask::workspace::Workspace;
use xtask::{
    coverage, dependencies, guide, imports, links, promise, root, shape, text, trips, words,
};

fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn imports_point_one_way() {
    none(imports::check(&Workspace::read(&root()).unwrap(), &root()).unwrap());
}

#[test]
fn files_are_tidy() {
    none(text::check(&root()).unwrap());
}

#[test]
fn links_lead_somewhere() {
    none(links::check(&root()).unwrap());
}

#[test]
fn the_guide_is_whole_and_explains_its_terms() {
    none(guide::check(&root()).unwrap());
}

#[test]
fn what_comes_from_outside_is_allowed() {
    none(dependencies::check(&Workspace::read(&root()).unwrap(), &root()).unwrap());
}

#[test]
fn what_no_life_reaches_has_not_become_more() {
    none(coverage::check_list(&root()).unwrap());
}

#[test]
fn promised_tests_exist() {
    none(promise::check(&root()).unwrap());
}

#[test]
fn trips_go_through_the_source() {
    none(trips::check(&root()).unwrap());
}

#[test]
fn words_stand_for_what_is_there() {
    none(words::check(&root()).unwrap());
}

#[test]
fn the_source_keeps_its_shape() {
    none(shape::check(&root()).unwrap());
}

//! Each mistake in `fail` is refused by one error that says what to write instead, and the file of the same name in `pass`, which
//! does that, compiles. `TRYBUILD=overwrite cargo test -p inboxed-ui` refreshes the errors.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The cures are modules of this test, so that they compile in one crate.
macro_rules! cures {
    ($($name:ident)*) => {
        #[allow(dead_code, clippy::all, clippy::pedantic, reason = "cures are compiled, not run")]
        #[path = "pass"]
        mod pass {
            $(mod $name;)*
        }

        const COMPILED: &[&str] = &[$(stringify!($name)),*];
    };
}

cures! {
    acknowledged_twice
    acknowledged_without_proof
    ambiguous_key
    bad_consumer
    bad_duration
    bad_on_conflict
    body_not_send
    broker_message_id_in_key
    clock_in_key
    conflicting_option
    connection_of_no_inbox
    delivery_count_in_key
    delivery_tag_in_key
    empty_key
    error_type
    event_on_enum
    event_without_key
    float_in_key
    generic_handler
    instant_in_key
    key_alphabet
    key_closure
    key_expression_without_message
    key_format_options
    key_not_a_field
    key_part_around_float
    key_part_same_text
    key_part_with_fields
    key_unclosed_brace
    key_without_message
    map_in_key
    message_list
    no_key
    no_message
    no_return_type
    no_transaction
    not_a_function
    not_async
    option_in_key
    option_without_name
    option_without_value
    other_database
    other_parameter_in_key
    parameter_named_like_handler
    pool_parameter
    random_number_in_key
    random_uuid_in_key
    receipt_handle_in_key
    repeated_option
    second_transaction
    self_receiver
    serde_default
    serde_default_container
    serde_skip
    sqlx_transaction_parameter
    state_missing
    system_time_in_key
    type_not_a_key_part
    unknown_field
    unknown_option
    unsafe_function
    unusable_parameter
    vec_in_key
    wrong_return_type
}

#[test]
fn each_mistake_is_refused() {
    let cases = trybuild::TestCases::new();
    for name in names("fail", "rs") {
        cases.compile_fail(format!("fail/{name}.rs"));
    }
}

#[test]
fn each_mistake_has_a_cure_that_compiles_and_a_page() {
    let mistakes = names("fail", "rs");
    assert_eq!(mistakes, names("pass", "rs"), "a mistake and its cure are files of the same name");
    assert_eq!(mistakes, COMPILED.iter().map(ToString::to_string).collect(), "each cure stands in `cures!` above");
    let mut pages = names("../../docs/errors", "md");
    assert!(pages.remove("README"), "the index of the pages");
    assert_eq!(mistakes, pages, "each mistake has a page in docs/errors");
    let index = read("../../docs/errors/README.md");
    let unlisted = mistakes.iter().filter(|name| !index.contains(&format!("({name}.md)"))).collect::<Vec<_>>();
    assert!(unlisted.is_empty(), "not in the index: {unlisted:?}");
}

#[test]
fn each_mistake_is_one_error_with_its_cure() {
    let mistakes = names("fail", "rs");
    assert!(mistakes.len() >= 24 && mistakes == names("fail", "stderr"), "each mistake has its text");
    for name in mistakes {
        let text = read(&format!("fail/{name}.stderr"));
        let errors = text.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(errors, 1, "{name}: {text}");
        assert!(text.contains("help: "), "{name} doesn't say what to write instead: {text}");
        assert!(!text.contains("warning"), "{name} warns beside its error: {text}");
    }
}

#[test]
fn the_pages_are_short_and_show_both_sides() {
    for name in names("../../docs/errors", "md").into_iter().filter(|name| name != "README") {
        let page = read(&format!("../../docs/errors/{name}.md"));
        assert!(page.lines().count() < 30, "{name} is longer than a page");
        for part in ["# ", "Before:", "After:"] {
            assert!(page.contains(part), "{name} lacks {part:?}");
        }
    }
}

fn names(folder: &str, extension: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    paths.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

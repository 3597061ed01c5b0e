//! Error numbers as the pipeline answers them.

use super::super::class_of_code;
use crate::error::Class;

#[test]
fn transactions_that_met_run_again_at_once() {
    for number in [1020, 1213, 1614, 3101] {
        assert_eq!(class_of_code(number), Some(Class::Contention), "{number}");
    }
}

#[test]
fn a_database_that_cannot_serve_costs_no_attempt() {
    for number in [1040, 1053, 1205, 1290, 1317, 1836, 1927, 4031] {
        assert_eq!(class_of_code(number), Some(Class::Unavailable), "{number}");
    }
}

#[test]
fn the_bodys_own_mistakes_are_its_failures() {
    // Duplicate key, data too long, no such table, syntax, NULL in a column without; our own deadline.
    for number in [1062, 1406, 1146, 1064, 1048, 1969, 3024] {
        assert_eq!(class_of_code(number), None, "{number}");
    }
}

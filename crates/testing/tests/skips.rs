//! A skip is reported where skips are counted, and is an error under CI. Each case runs in a
//! process of its own, with its own environment.

use std::{env, fs, path::Path, process::Command};

use freshet_testing::{Missing, skip};

/// What that process is to skip.
const CASE: &str = "FRESHET_TESTING_CASE";

#[test]
fn a_skip_is_counted_and_an_error_under_ci() {
    match env::var(CASE).as_deref() {
        Ok("tool") => return skip(Missing::Tool, "a test", "no tool"),
        Ok(_) => return skip(Missing::Hardware, "a test", "no device"),
        Err(_) => {}
    }
    let file = env::temp_dir().join(format!("freshet-skips-{}", std::process::id()));
    let passes = |case: &str, ci: &str, file: &Path| {
        let mut other = Command::new(env::current_exe().unwrap());
        other.args(["--exact", "a_skip_is_counted_and_an_error_under_ci"]);
        other.env(CASE, case).env("CI", ci).env("FRESHET_SKIPS", file).output().unwrap().status.success()
    };
    assert!(passes("tool", "", &file) && passes("tool", "false", &file));
    assert!(passes("hardware", "true", &file));
    assert!(!passes("tool", "true", &file));
    let lines = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(lines, "a test: no tool\na test: no tool\na test: no device\n");
    // The count would miss it.
    assert!(!passes("tool", "", Path::new("/nowhere/skips")));
}

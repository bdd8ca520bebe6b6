//! Thirty rounds of `freshet-lab losses`: no acknowledged commit is lost unforced, whatever nodes
//! have lost.

use std::process::{Command, Stdio};

/// Rounds of a family: its name, and seeds. Commit 23686f38 fails in all families.
const ROUNDS: [(&str, &str); 7] = [
    ("walk", "0,2,60,67,84,1013,1041,4246"),
    ("lagging", "3,5,9,13,21,29"),
    ("newcomers", "200,201,203"),
    ("mirrored", "94,100,103,109"),
    ("twice", "103,104,108,111"),
    ("silent", "101,103,104"),
    ("refused", "100,101"),
];

#[test]
fn no_acknowledged_commit_is_lost_whatever_nodes_have_lost() {
    let directory = tempfile::tempdir().unwrap();
    for (kind, seeds) in ROUNDS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freshet-lab"));
        command.args(["losses", "--jobs", "5", "--kind", kind, "--seeds", seeds, "--dir"]).arg(directory.path());
        let done = command.stdin(Stdio::null()).output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() {
            let kept = directory.keep();
            panic!("{kind}, in {}: {output}{}", kept.display(), String::from_utf8_lossy(&done.stderr));
        }
        assert!(output.contains(&format!("{} rounds", seeds.split(',').count())), "{output}");
    }
}

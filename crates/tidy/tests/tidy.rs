//! The rules, on the project itself.

use freshet_tidy::{ratchet, rules, source};

#[test]
fn habits_are_kept() {
    let root = source::root();
    let offences = rules::check(&root, &source::all(&root).unwrap());
    let wrong = ratchet::compare(&ratchet::read(&root).unwrap(), &ratchet::counts(&offences), &offences);
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

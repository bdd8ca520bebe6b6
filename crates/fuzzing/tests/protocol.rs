//! Whatever a client says, the server stands it: conversations of clients, changed at random.
//! docs/testing.md says how to run this for longer.

mod search;

use freshet_fuzzing::generate::{Statements, conversation, copies, everything};

#[test]
fn conversations() {
    let statements = Statements::new();
    let mut search = search::Search::begin("protocol");
    search.case(&[&[255], &everything().concat()[..]].concat(), freshet_fuzzing::Case::protocol);
    while search.goes_on() {
        let data = conversation(&statements, &mut search.random);
        search.case(&data, freshet_fuzzing::Case::protocol);
    }
}

/// COPY in all formats and encodings.
#[test]
fn data_of_copies() {
    let mut search = search::Search::begin("copies");
    while search.goes_on() {
        let data = copies(&mut search.random);
        search.case(&data, freshet_fuzzing::Case::protocol);
    }
}

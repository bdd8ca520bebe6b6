//! All that a node, a backup, an archive and a restore make is their user's alone, in a process
//! whose umask forbids nothing. The only test of its process, since the umask is the process's.

mod common;

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use common::{churn, config, definition, soon};
use freshet_engine::{
    CheckpointKind, Consent, Domain, FabricKind, Node,
    node::archive::{self, Archive, ArchiveConfig, Moment, RestoreConfig},
};

/// Lists what below a directory is open to other users; returns how many files there are.
fn look(directory: &Path, open: &mut Vec<String>) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        if found.mode() & 0o077 != 0 {
            open.push(format!("{} {:o}", path.display(), found.mode() & 0o7777));
        }
        files += if found.is_dir() { look(&path, open) } else { 1 };
    }
    files
}

#[test]
fn what_a_node_makes_is_its_users_alone() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut settings = config(Some(&path("above/primary")));
    settings.domain = Domain::Pmem;
    settings.log.dir = vec![path("log/0"), path("log/1")];
    settings.log.streams = 2;
    settings.log.segment_bytes = 64 << 10;
    settings.log.buffer_file = Some(path("buffer"));
    settings.checkpoint.dir = vec![path("rows")];
    settings.fabric.kind = FabricKind::Shm;
    let primary = Node::start(settings, |_| {}).unwrap();
    let table = primary.database().create_table(&definition()).unwrap().clone();
    churn(primary.database(), &table, 0, 2_000);
    primary.checkpoint(CheckpointKind::Fuzzy).unwrap();
    churn(primary.database(), &table, 2_000, 3_000);

    // A standby that begins from the checkpoint, in persistent memory; its buffer is moved when it
    // takes over.
    let mut settings = config(Some(&path("standby")));
    settings.join = Some(primary.address().to_owned());
    settings.domain = Domain::Pmem;
    settings.fabric.kind = FabricKind::Shm;
    let standby = Node::start(settings, |_| {}).unwrap();
    let end = churn(primary.database(), &table, 3_000, 3_100);
    standby.wait_visible(end, soon()).unwrap();

    let of = |name: &str| ArchiveConfig {
        token_file: None,
        directory: path(name),
        node: primary.address().to_owned(),
        peers: Vec::new(),
        buffer_bytes: 4 << 20,
    };
    archive::backup(&of("backup")).unwrap();
    let archiving = Archive::start(&of("archive")).unwrap();
    let end = churn(primary.database(), &table, 3_100, 3_200);
    archiving.wait(end).unwrap();
    archiving.stop().unwrap();
    archive::restore(&RestoreConfig {
        backup: path("archive"),
        archive: None,
        streams: Vec::new(),
        directory: path("restored"),
        moment: Moment::End,
    })
    .unwrap();
    standby.promote(Consent::Nothing).unwrap();
    let mut open = Vec::new();
    let files = look(directory.path(), &mut open);
    assert!(open.is_empty(), "{open:#?}");
    assert!(files > 30, "{files} files are not all that was made");
}

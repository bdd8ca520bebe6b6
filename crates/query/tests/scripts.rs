//! The scripts in `tests/sql`, a file for each feature, each against a primary; what is in
//! `standby` there then against its standby.

use std::time::Instant;

use crate::common::{SOON, SqlNode, config, scripts};
use freshet_engine::NodeConfig;

#[test]
fn all_scripts_hold_on_primary_and_standby() {
    for script in scripts::all() {
        println!("{}", script.display());
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let primary = SqlNode::start(NodeConfig { ..config(Some(home.path())) });
        scripts::run(&primary, &script);
        let after = scripts::directory().join("standby").join(script.file_name().unwrap());
        if after.exists() {
            let join = Some(primary.node.address().to_owned());
            let standby = SqlNode::start(NodeConfig { join, ..config(Some(other.path())) });
            let end = primary.node.database().core().snapshots.current();
            standby.node.wait_visible(end, Some(Instant::now() + SOON)).unwrap();
            scripts::run(&standby, &after);
        }
    }
}

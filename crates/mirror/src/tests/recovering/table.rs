//! Table 1 of Active-Memory: what becomes of a batch, by when the coordinator fails. Two mirrors
//! recover, with all that they do for that but revoking; what each holds is compared with the
//! history.

use super::*;

/// What has come to a mirror of the second batch, and whether its mark has.
type Got = (Landed, bool);

/// Up to where two mirrors keep that have got this.
fn keep(feed: &Feed, got: [Got; 2]) -> [Lsn; 2] {
    got.map(|(landed, is_marked)| {
        let memory = feed.fails(landed);
        if is_marked {
            store(&memory, Place { region: 0, offset: MARK }, &feed.end().0.to_le_bytes());
        }
        feed.recovers(&memory, Keep::Whole).end
    })
}

/// By the paper's rule both undo it. Here those that have got everything keep it: a client may know
/// of the commit.
fn aborts(feed: &Feed, got: [Got; 2]) {
    let all = writes(feed);
    let kept =
        got.map(|(landed, _)| if matches!(landed, Landed::Writes(it) if it == all) { feed.end() } else { feed.mark });
    assert_eq!(keep(feed, got), kept, "{got:?}");
}

fn commits(feed: &Feed, got: [Got; 2], end: Lsn) {
    assert_eq!(keep(feed, got), [end; 2], "{got:?}");
}

/// Each step of the second batch that another mirror may be at, while nothing is marked.
fn others(feed: &Feed) -> [Got; 5] {
    let (undo, all) = (undo_writes(feed), writes(feed));
    let steps =
        [Landed::Writes(0), Landed::Torn(0, 1), Landed::Writes(undo), Landed::Torn(undo + 1, 1), Landed::Writes(all)];
    steps.map(|landed| (landed, false))
}

#[test]
fn case_1_before_step_1() {
    let mut feed = two_batches();
    feed.lists.clear();
    commits(&feed, [(Landed::Writes(0), false); 2], feed.mark);
}

#[test]
fn case_2a_during_step_1_no_log() {
    let feed = two_batches();
    for other in others(&feed) {
        aborts(&feed, [(Landed::Writes(0), false), other]);
    }
}

#[test]
fn case_2b_during_step_1_corrupt_log() {
    let feed = two_batches();
    assert!(undo_writes(&feed) > 2, "it has follow-ups");
    let untouched = read(regions(&feed.done), feed.mark).unwrap();
    for whole in 0..undo_writes(&feed) {
        // All lines but one, and one alone.
        for lines in (0..4).flat_map(|line| [!(1 << line), 1 << line]).chain([0]) {
            let memory = feed.fails(Landed::Torn(whole, lines));
            assert!(read(regions(&memory), feed.mark).unwrap() == untouched);
        }
        for other in others(&feed) {
            aborts(&feed, [(Landed::Torn(whole, 1), false), other]);
        }
    }
}

#[test]
fn case_2c_during_step_1_logged() {
    let feed = two_batches();
    for whole in undo_writes(&feed)..writes(&feed) {
        for other in others(&feed) {
            aborts(&feed, [(Landed::Writes(whole), false), other]);
            aborts(&feed, [(Landed::Torn(whole, 1), false), other]);
        }
    }
}

#[test]
fn case_3_between_the_steps_logged_everywhere() {
    let feed = two_batches();
    aborts(&feed, [(Landed::Writes(writes(&feed)), false); 2]);
}

/// The other one takes its mark back.
#[test]
fn case_4a_during_step_2_logged() {
    let feed = two_batches();
    let landed = Landed::Writes(writes(&feed));
    aborts(&feed, [(landed, false), (landed, true)]);
}

#[test]
fn case_4b_during_step_2_commit_ready() {
    let feed = two_batches();
    let landed = Landed::Writes(writes(&feed));
    aborts(&feed, [(landed, true), (landed, false)]);
    commits(&feed, [(landed, true); 2], feed.end());
}

/// The coordinator has heard of the marks, and has told no client.
#[test]
fn case_5a_after_step_2_uncommitted() {
    let mut feed = two_batches();
    feed.marks(1);
    let to = feed.mark;
    assert!(feed.lists.is_empty());
    commits(&feed, [(Landed::Writes(0), false); 2], to);
}

/// It has told clients, and undo entries and places of long rows are used again.
#[test]
fn case_5b_after_step_2_committed() {
    let mut feed = two_batches();
    feed.marks(1);
    let to = feed.mark;
    let row = |byte: u8| Some(vec![byte; 5000]);
    assert!(feed.post(&[(Fid(1), Rid(2), row(1)), (Fid(1), Rid(0), None), (Fid(1), Rid(1), row(2))], false));
    for whole in 0..writes(&feed) {
        commits(&feed, [(Landed::Writes(whole), false), (Landed::Torn(whole, 1), false)], to);
    }
}

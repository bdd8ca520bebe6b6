use super::*;

fn control() -> Control {
    Control {
        cluster: ClusterId(0x0102),
        node: NodeId(9),
        segment_size: 64 << 20,
        streams: 1,
        terms: vec![(Term(1), Lsn(0), NodeId(9), 1), (Term(3), Lsn(4096), NodeId(8), 2)],
        latest_term: (Term(4), Some(NodeId(9))),
        in_sync: Some(vec![1, 0xAB, 0]),
        led: Some(Term(3)),
        log: Some(LogPlace::Elsewhere),
        journal: Some(12),
        life: Some((7, Lsn(81_300), Some(u64::MAX))),
        incarnation: Some(u64::MAX - 1),
        former: vec![7, u64::MAX],
        reached: Some(vec![Lsn(81_300), Lsn(7)]),
        lease_ms: 400,
        writes: 17,
        joins: true,
        witness: true,
        format: READS.writes(),
    }
}

#[test]
fn it_is_read_as_it_was_written_and_one_process_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    assert!(matches!(LogDirectory::open(&path), Err(ControlError::NoLog(_))));
    let made = LogDirectory::create(&path, control()).unwrap();
    assert!(matches!(LogDirectory::open(&path), Err(ControlError::Locked(_))));
    made.update(|control| control.terms.push((Term(4), Lsn(8192), NodeId(9), 3))).unwrap();
    drop(made);
    assert!(matches!(LogDirectory::create(&path, control()), Err(ControlError::Exists(_))));
    let opened = LogDirectory::open(&path).unwrap().control();
    assert_eq!(opened.term(), Term(4));
    assert_eq!(opened.terms[..2], control().terms);
    assert_eq!(opened.cluster, ClusterId(0x0102));
}

/// A log is made in a directory of its own, with all that leads there.
#[test]
fn what_others_have_in_a_directory_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new").join("log");
    LogDirectory::check_unused(&path).unwrap();
    assert!(!path.exists());
    make_directory(&path).unwrap();
    make_directory(&path).unwrap();
    // What an interrupted start leaves, and places where something else is mounted.
    fs::write(path.join(UNFINISHED), "half").unwrap();
    fs::write(path.join(LOCK), "").unwrap();
    fs::create_dir(path.join("lost+found")).unwrap();
    fs::create_dir(path.join("device")).unwrap();
    LogDirectory::check_unused(&path).unwrap();
    fs::write(path.join("device").join("file"), "").unwrap();
    let Err(ControlError::Foreign { found, guess: "", .. }) = LogDirectory::create(&path, control()) else {
        panic!("there is something in it");
    };
    assert_eq!(found, Path::new("device"));
    fs::remove_dir_all(path.join("device")).unwrap();
    for (name, expected) in [("PG_VERSION", "PostgreSQL"), ("00000000000000000000.segment", "control file is gone")] {
        fs::write(path.join(name), "15").unwrap();
        let message = LogDirectory::create(&path, control()).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(expected), "{message}");
        fs::remove_file(path.join(name)).unwrap();
    }
    drop(LogDirectory::create(&path, control()).unwrap());
    fs::write(path.join("more"), "").unwrap();
    assert!(matches!(LogDirectory::create(&path, control()), Err(ControlError::Exists(_))));
}

/// A disk that is full, or a crash, at the first start: the second one finds nothing in its
/// way.
#[test]
fn the_making_of_streams_can_be_interrupted_anywhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let made = LogDirectory::create(&path, Control { streams: 3, log: None, reached: None, ..control() }).unwrap();
    let names = ["stream-0", "stream-1", "stream-2"].map(|name| path.join(name));
    for (number, name) in names.iter().enumerate() {
        fs::create_dir(name).unwrap();
        // Whatever is written here finds no space left on the device.
        let unfinished = name.join("stream.new");
        std::os::unix::fs::symlink("/dev/full", &unfinished).unwrap();
        let error = made.open_store(&[]).unwrap_err().to_string();
        assert!(error.contains(&format!("stream-{number}")), "{error}");
        fs::remove_file(&unfinished).unwrap();
        // What a crash leaves of it.
        fs::write(&unfinished, b"freshet str").unwrap();
    }
    assert_eq!(made.open_store(&[]).unwrap().streams(), 3);
    assert_eq!(made.open_store(&[]).unwrap().streams(), 3);
    fs::rename(names[0].join("stream"), names[1].join("stream")).unwrap();
    let error = made.open_store(&[]).unwrap_err();
    assert!(matches!(&error, StoreError::Stream { .. }), "{error}");
}

/// Before the log was begun a crash, or a loss of what is there, leaves a new node; from then
/// on the log is missed.
#[test]
fn a_log_that_was_begun_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    for (streams, named) in [(1, false), (1, true), (2, false), (2, true)] {
        let path = directory.path().join(format!("{streams}-{named}"));
        let own = Control { streams, log: None, reached: None, ..control() };
        let node = LogDirectory::create(&path, own).unwrap();
        let places: Vec<_> = (0..streams).map(|n| path.join(format!("given-{n}"))).collect();
        let given = if named { &places[..] } else { &[] };
        let below = |n| if streams == 1 { path.clone() } else { path.join(format!("stream-{n}")) };
        let place = |n: usize| if named { places[n].clone() } else { below(n) };
        let empty = |n: usize| {
            let files = fs::read_dir(place(n)).unwrap().map(|entry| entry.unwrap());
            let ours = |name: &str| name == "stream" || name == "watermark" || name.ends_with(".segment");
            let log = files.filter(|file| ours(file.file_name().to_str().unwrap()));
            log.for_each(|file| fs::remove_file(file.path()).unwrap());
        };
        for begins in [false, true] {
            drop(node.open_store(given).unwrap());
            let store = node.open_store(given).unwrap();
            if begins {
                store.resume(Lsn(1000)).unwrap();
            }
            drop(store);
            (0..streams).for_each(empty);
        }
        let store = node.open_store(given).unwrap();
        store.resume(Lsn(0)).unwrap();
        drop(store);
        node.log_has_begun(given).unwrap();
        node.log_has_begun(given).unwrap();
        drop(node.open_store(given).unwrap());
        let elsewhere: Vec<_> = (0..streams).map(|n| path.join(format!("other-{n}"))).collect();
        let wrong = node.open_store(&elsewhere).unwrap_err();
        match named {
            true => assert!(matches!(wrong, StoreError::Directory(ControlError::LogGone { .. })), "{wrong}"),
            false => assert!(matches!(wrong, StoreError::Directory(ControlError::Place { .. })), "{wrong}"),
        }
        assert!(!elsewhere[0].exists());
        if named {
            let missing = node.open_store(&[]).unwrap_err();
            assert!(matches!(missing, StoreError::Directory(ControlError::Place { .. })), "{missing}");
        }
        empty(streams - 1);
        match node.open_store(given).unwrap_err() {
            StoreError::Directory(ControlError::LogGone { missing, .. }) => assert_eq!(missing, place(streams - 1)),
            error => panic!("{error}"),
        }
    }
}

/// As of 24 November 2026, from which format 2 differs without another number.
#[test]
fn the_first_control_files_are_read_for_a_restore() {
    let text = "freshet control 2\ncluster 000102030405060708090a0b0c0d0e0f\nnode 0011223344556677\nsegment-size \
                67108864\nstreams 1\nheard 1 0011223344556677\nterm 1 0 0011223344556677\nin-sync 0101\nLED \
                1\nlog here\n";
    let text = &text.replace("LED", &["rei", "gned"].concat());
    let control = Control::decode(&seal(text.clone()), Path::new("control")).unwrap();
    assert_eq!((control.terms[0].3, control.led, control.format), (0, Some(Term(1)), 2));
    let later = Control::decode(&seal(text.replacen("control 2", "control 6", 1)), Path::new("control"));
    assert!(matches!(later, Err(ControlError::Damaged { .. })), "a later one has the number: {later:?}");
    // A node does not start there: it could not read the in-sync set.
    let directory = tempfile::tempdir().unwrap();
    private::keep_directory(directory.path()).unwrap();
    let file = directory.path().join(CONTROL);
    private::replace(&file, &directory.path().join(UNFINISHED), seal(text.clone()).as_bytes()).unwrap();
    let error = LogDirectory::open(directory.path()).unwrap_err();
    assert!(matches!(error, ControlError::Earlier { found: 2, .. }), "{error}");
    assert!(LogDirectory::open_source(directory.path()).is_ok());
}

#[test]
fn every_flipped_bit_is_noticed() {
    let text = control().encode();
    let file = Path::new("control");
    assert_eq!(Control::decode(&text, file).unwrap(), control());
    for bit in 0..text.len() * 8 {
        let mut bytes = text.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(text) = String::from_utf8(bytes) {
            assert!(Control::decode(&text, file).is_err(), "bit {bit}: {text}");
        }
    }
    for length in 0..text.len() {
        assert!(Control::decode(&text[..length], file).is_err());
    }
}

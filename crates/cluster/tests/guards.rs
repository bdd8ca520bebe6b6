//! Each guard that `tests/mutate/run` removes is where the list says.

#[test]
fn the_list_of_guards_is_that_of_the_code() {
    let list = include_str!("../../../tests/mutate/guards.txt");
    let mut count = 0;
    for guard in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [name, file, text] = guard.splitn(4, " | ").take(3).collect::<Vec<_>>()[..] else { panic!("{guard}") };
        let text = text.replace("\\|", "|").replace("\\n", "\n");
        let (name_of_crate, file) = file.split_once('/').unwrap();
        let path = format!("{}/../{name_of_crate}/src/{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(path).unwrap();
        assert_eq!(source.matches(&text).count(), 1, "{name}: {text:?} in {file}");
        count += 1;
    }
    assert!(count > 100, "{count}");
}

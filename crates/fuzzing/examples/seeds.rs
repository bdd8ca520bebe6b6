//! Writes the corpus as files, one for each seed: `seeds statements DIRECTORY`, `seeds protocol
//! DIRECTORY`.

use std::{env, fs, io, path::Path};

use freshet_fuzzing::generate::{Random, Statements, conversation, everything, statements};

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(target), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("which target's seeds (statements, protocol), and where to?"));
    };
    let seeds: Vec<Vec<u8>> = match target.as_str() {
        "statements" => statements().into_iter().map(String::into_bytes).collect(),
        "protocol" => {
            let (all, mut random) = (Statements::new(), Random::new(1));
            let whole = [&[255], &everything().concat()[..]].concat();
            std::iter::once(whole).chain((0..200).map(|_| conversation(&all, &mut random))).collect()
        }
        other => return Err(io::Error::other(format!("there is no target {other}"))),
    };
    fs::create_dir_all(&directory)?;
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(Path::new(&directory).join(format!("{number:04}")), seed)?;
    }
    println!("{} seeds", seeds.len());
    Ok(())
}

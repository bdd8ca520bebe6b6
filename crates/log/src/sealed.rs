//! Text that says whether it is whole, for small files that people may have to read in an
//! emergency: the last line is the CRC-32C of all bytes before it.

/// The text, with its checksum.
pub fn seal(mut text: String) -> String {
    let crc = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("crc {crc:08x}\n"));
    text
}

/// The text without its checksum.
///
/// # Errors
/// What is wrong with it, if it is not what was sealed.
pub fn open(text: &str) -> Result<&str, &'static str> {
    let at = text.rfind("crc ").ok_or("it has no checksum")?;
    let sealed = &text[..at];
    if text == seal(sealed.to_owned()) { Ok(sealed) } else { Err("its checksum does not hold") }
}

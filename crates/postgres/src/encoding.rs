//! The encodings in which clients may speak. Here everything is UTF-8; what a client says is
//! converted when it comes, and what it is told when it is written.

use std::borrow::Cow;

use encoding_rs::{DecoderResult, Encoding as Table};

use crate::report::{Report, SqlState};

/// How an encoding is converted.
#[derive(Debug)]
enum Way {
    /// Not at all: it is UTF-8, or bytes that are taken for it.
    Same,
    /// A byte is the character with its number, but for these.
    Latin(&'static [(u8, char)]),
    /// Of one byte for each character. Bytes that would be control characters are none.
    Bytes(&'static Table),
    /// The same, with control characters.
    Controls(&'static Table),
    /// Of one byte or several for each character.
    Several(&'static Table),
    /// The same, where both bytes of a character are from 0xA1 on.
    High(&'static Table),
    /// There is no table.
    Never,
}

#[derive(Debug)]
struct Known {
    name: &'static str,
    /// What else it is called: small letters and digits only.
    others: &'static [&'static str],
    way: Way,
}

/// An encoding by one of PostgreSQL's names.
#[derive(Clone, Copy, Debug)]
pub struct Encoding(&'static Known);

/// ISO 8859-9 is Latin 1 with these letters.
const TURKISH: &[(u8, char)] = &[(0xd0, 'Ğ'), (0xdd, 'İ'), (0xde, 'Ş'), (0xf0, 'ğ'), (0xfd, 'ı'), (0xfe, 'ş')];

const fn known(name: &'static str, others: &'static [&'static str], way: Way) -> Known {
    Known { name, others, way }
}

static KNOWN: &[Known] = &[
    known("UTF8", &["utf8", "unicode"], Way::Same),
    known("SQL_ASCII", &["sqlascii"], Way::Same),
    known("LATIN1", &["latin1", "iso88591"], Way::Latin(&[])),
    known("LATIN2", &["latin2", "iso88592"], Way::Controls(encoding_rs::ISO_8859_2)),
    known("LATIN3", &["latin3", "iso88593"], Way::Controls(encoding_rs::ISO_8859_3)),
    known("LATIN4", &["latin4", "iso88594"], Way::Controls(encoding_rs::ISO_8859_4)),
    known("LATIN5", &["latin5", "iso88599"], Way::Latin(TURKISH)),
    known("LATIN6", &["latin6", "iso885910"], Way::Controls(encoding_rs::ISO_8859_10)),
    known("LATIN7", &["latin7", "iso885913"], Way::Controls(encoding_rs::ISO_8859_13)),
    known("LATIN8", &["latin8", "iso885914"], Way::Controls(encoding_rs::ISO_8859_14)),
    known("LATIN9", &["latin9", "iso885915"], Way::Controls(encoding_rs::ISO_8859_15)),
    known("LATIN10", &["latin10", "iso885916"], Way::Controls(encoding_rs::ISO_8859_16)),
    known("ISO_8859_5", &["iso88595"], Way::Controls(encoding_rs::ISO_8859_5)),
    known("ISO_8859_6", &["iso88596"], Way::Controls(encoding_rs::ISO_8859_6)),
    known("ISO_8859_7", &["iso88597"], Way::Controls(encoding_rs::ISO_8859_7)),
    known("ISO_8859_8", &["iso88598"], Way::Controls(encoding_rs::ISO_8859_8)),
    known("KOI8R", &["koi8r", "koi8"], Way::Bytes(encoding_rs::KOI8_R)),
    known("KOI8U", &["koi8u"], Way::Bytes(encoding_rs::KOI8_U)),
    known("WIN866", &["win866", "windows866", "alt"], Way::Bytes(encoding_rs::IBM866)),
    known("WIN874", &["win874", "windows874"], Way::Bytes(encoding_rs::WINDOWS_874)),
    known("WIN1250", &["win1250", "windows1250"], Way::Bytes(encoding_rs::WINDOWS_1250)),
    known("WIN1251", &["win1251", "windows1251", "win"], Way::Bytes(encoding_rs::WINDOWS_1251)),
    known("WIN1252", &["win1252", "windows1252"], Way::Bytes(encoding_rs::WINDOWS_1252)),
    known("WIN1253", &["win1253", "windows1253"], Way::Bytes(encoding_rs::WINDOWS_1253)),
    known("WIN1254", &["win1254", "windows1254"], Way::Bytes(encoding_rs::WINDOWS_1254)),
    known("WIN1255", &["win1255", "windows1255"], Way::Bytes(encoding_rs::WINDOWS_1255)),
    known("WIN1256", &["win1256", "windows1256"], Way::Bytes(encoding_rs::WINDOWS_1256)),
    known("WIN1257", &["win1257", "windows1257"], Way::Bytes(encoding_rs::WINDOWS_1257)),
    known(
        "WIN1258",
        &["win1258", "windows1258", "abc", "tcvn", "tcvn5712", "vscii"],
        Way::Bytes(encoding_rs::WINDOWS_1258),
    ),
    known("EUC_JP", &["eucjp"], Way::Several(encoding_rs::EUC_JP)),
    known("EUC_CN", &["euccn"], Way::High(encoding_rs::GBK)),
    known("EUC_KR", &["euckr"], Way::High(encoding_rs::EUC_KR)),
    known("SJIS", &["sjis", "shiftjis", "mskanji", "win932", "windows932"], Way::Several(encoding_rs::SHIFT_JIS)),
    known("BIG5", &["big5", "win950", "windows950"], Way::Several(encoding_rs::BIG5)),
    known("GBK", &["gbk", "win936", "windows936"], Way::Several(encoding_rs::GBK)),
    known("UHC", &["uhc", "win949", "windows949"], Way::Several(encoding_rs::EUC_KR)),
    known("GB18030", &["gb18030"], Way::Several(encoding_rs::GB18030)),
    known("EUC_TW", &["euctw"], Way::Never),
    known("EUC_JIS_2004", &["eucjis2004"], Way::Never),
    known("SHIFT_JIS_2004", &["shiftjis2004"], Way::Never),
    known("JOHAB", &["johab"], Way::Never),
    known("MULE_INTERNAL", &["muleinternal"], Way::Never),
];

impl PartialEq for Encoding {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Encoding {}

impl Encoding {
    /// UTF-8, which nothing is converted for.
    pub const UTF8: Self = Self(&const { known("UTF8", &[], Way::Same) });

    /// An encoding by its name. Only letters and digits count.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let letters = name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase());
        let name: String = letters.collect();
        KNOWN.iter().find(|known| known.others.contains(&name.as_str())).map(Self)
    }

    /// PostgreSQL's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether clients can speak it.
    #[must_use]
    pub fn is_spoken(self) -> bool {
        !matches!(self.0.way, Way::Never)
    }

    /// Whether a byte of ASCII may be a part of another character.
    #[must_use]
    pub fn hides_ascii(self) -> bool {
        matches!(self.0.name, "SJIS" | "BIG5" | "GBK" | "UHC" | "GB18030" | "JOHAB" | "SHIFT_JIS_2004")
    }

    /// Whether nothing is converted.
    #[must_use]
    pub fn is_utf8(self) -> bool {
        matches!(self.0.way, Way::Same)
    }

    /// What a client's bytes say.
    ///
    /// # Errors
    /// 22021 where they are no characters, 22P05 where these are not in UTF-8.
    pub fn decode(self, bytes: &[u8]) -> Result<Cow<'_, str>, Report> {
        match &self.0.way {
            Way::Same | Way::Never => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|cause| {
                let bad = &bytes[cause.valid_up_to()..];
                invalid("UTF8", &bad[..cause.error_len().unwrap_or(bad.len()).min(bad.len())])
            }),
            _ if bytes.is_ascii() => Ok(String::from_utf8_lossy(bytes)),
            Way::Latin(others) => {
                let letter = |byte: &u8| {
                    let other = others.iter().find(|(known, _)| known == byte);
                    other.map_or(char::from(*byte), |(_, letter)| *letter)
                };
                Ok(Cow::Owned(bytes.iter().map(letter).collect()))
            }
            _ => {
                let mut stream = Stream::new(self);
                let mut text = String::new();
                stream.feed(bytes, true, &mut text)?;
                Ok(Cow::Owned(text))
            }
        }
    }

    /// Appends a text as a client reads it.
    ///
    /// # Errors
    /// 22P05 for a character that it does not have.
    pub fn encode(self, text: &str, into: &mut Vec<u8>) -> Result<(), Report> {
        if self.is_utf8() || text.is_ascii() {
            into.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        for letter in text.chars() {
            if !self.letter(letter, into) {
                return Err(untranslatable("UTF8", self.name(), letter.encode_utf8(&mut [0; 4]).as_bytes()));
            }
        }
        Ok(())
    }

    /// The same; there are question marks for what it does not have.
    pub fn encode_what_can_be(self, text: &str, into: &mut Vec<u8>) {
        if self.is_utf8() || text.is_ascii() {
            into.extend_from_slice(text.as_bytes());
            return;
        }
        for letter in text.chars() {
            if !self.letter(letter, into) {
                into.push(b'?');
            }
        }
    }

    /// Appends a character; says whether there is one.
    fn letter(self, letter: char, into: &mut Vec<u8>) -> bool {
        if let Ok(byte) = u8::try_from(letter)
            && byte.is_ascii()
        {
            into.push(byte);
            return true;
        }
        let table = match &self.0.way {
            Way::Same | Way::Never => {
                into.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                return true;
            }
            Way::Latin(others) => {
                let other = others.iter().find(|(_, known)| *known == letter).map(|(byte, _)| *byte);
                let own = u8::try_from(letter).ok().filter(|byte| others.iter().all(|(known, _)| known != byte));
                into.extend(other.or(own));
                return other.or(own).is_some();
            }
            Way::Bytes(table) | Way::Controls(table) | Way::Several(table) | Way::High(table) => table,
        };
        if is_control(letter) && matches!(self.0.way, Way::Bytes(_)) {
            return false;
        }
        let mut text = [0; 4];
        let (bytes, _, failed) = table.encode(letter.encode_utf8(&mut text));
        let low = matches!(self.0.way, Way::High(_)) && bytes.iter().any(|byte| *byte < 0xa1);
        if failed || low {
            return false;
        }
        into.extend_from_slice(&bytes);
        true
    }

    /// A message's body with its names and texts in UTF-8; nothing if it is the same.
    pub(crate) fn recode(self, kind: u8, body: &[u8]) -> Result<Option<Vec<u8>>, Report> {
        let (before, strings) = match kind {
            b'Q' | b'E' | b'f' => (0, 1),
            b'P' | b'B' => (0, 2),
            b'D' | b'C' => (1, 1),
            _ => return Ok(None),
        };
        let mut end = before;
        for _ in 0..strings {
            // What is not whole is found when it is decoded.
            let rest = body.get(end..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == 0) else { return Ok(None) };
            end += length + 1;
        }
        if body[..end].is_ascii() {
            return Ok(None);
        }
        let mut recoded = body[..before].to_vec();
        // No encoding has a zero within a character.
        recoded.extend_from_slice(self.decode(&body[before..end])?.as_bytes());
        recoded.extend_from_slice(&body[end..]);
        Ok(Some(recoded))
    }
}

fn is_control(letter: char) -> bool {
    ('\u{80}'..='\u{9f}').contains(&letter)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("0x{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// The error 22021: bytes that are no text in their encoding.
pub(crate) fn invalid(encoding: &str, bytes: &[u8]) -> Report {
    let message = format!("invalid byte sequence for encoding \"{encoding}\": {}", hex(bytes));
    Report::error(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
}

/// The error 22P05: a character that the other encoding lacks.
fn untranslatable(from: &str, to: &str, bytes: &[u8]) -> Report {
    let message = format!(
        "character with byte sequence {} in encoding \"{from}\" has no equivalent in encoding \"{to}\"",
        hex(bytes)
    );
    Report::error(SqlState::UNTRANSLATABLE_CHARACTER, message)
}

/// What a client sends piece by piece, cut anywhere.
pub struct Stream {
    encoding: Encoding,
    decoder: Option<encoding_rs::Decoder>,
}

impl Stream {
    /// A stream of text in this encoding.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        let decoder = match &encoding.0.way {
            Way::Bytes(table) | Way::Controls(table) | Way::Several(table) | Way::High(table) => {
                Some(table.new_decoder_without_bom_handling())
            }
            Way::Same | Way::Latin(_) | Way::Never => None,
        };
        Self { encoding, decoder }
    }

    /// Appends what the next piece says; `last` if it was the last one.
    ///
    /// # Errors
    /// As for [`Encoding::decode`].
    pub fn feed(&mut self, mut piece: &[u8], last: bool, text: &mut String) -> Result<(), Report> {
        let Some(decoder) = &mut self.decoder else {
            text.push_str(&self.encoding.decode(piece)?);
            return Ok(());
        };
        let name = self.encoding.name();
        let begun = text.len();
        let whole = piece;
        loop {
            text.reserve(decoder.max_utf8_buffer_length_without_replacement(piece.len()).unwrap_or(piece.len() * 3));
            let (result, read) = decoder.decode_to_string_without_replacement(piece, text, last);
            piece = &piece[read..];
            match result {
                DecoderResult::InputEmpty => break,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(length, after) => {
                    let end = (whole.len() - piece.len()).saturating_sub(usize::from(after));
                    let bad = &whole[end.saturating_sub(usize::from(length))..end];
                    return Err(match self.encoding.0.way {
                        Way::Bytes(_) | Way::Controls(_) => untranslatable(name, "UTF8", bad),
                        _ => invalid(name, bad),
                    });
                }
            }
        }
        let strange = |letter: &char| match self.encoding.0.way {
            Way::Bytes(_) => is_control(*letter),
            Way::High(_) => !letter.is_ascii() && !self.encoding.letter(*letter, &mut Vec::new()),
            _ => false,
        };
        match text[begun..].chars().find(strange) {
            None => Ok(()),
            Some(letter) => {
                let mut bytes = Vec::new();
                if let Way::Bytes(table) | Way::High(table) = &self.encoding.0.way {
                    bytes.extend_from_slice(&table.encode(letter.encode_utf8(&mut [0; 4])).0);
                }
                Err(untranslatable(name, "UTF8", &bytes))
            }
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stream").field(&self.encoding.name()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Encoding {
        Encoding::named(name).unwrap()
    }

    #[test]
    fn names_count_by_letters_and_digits() {
        for (name, known) in [
            ("utf-8", "UTF8"),
            ("Unicode", "UTF8"),
            ("ISO-8859-1", "LATIN1"),
            ("windows-1252", "WIN1252"),
            ("Shift_JIS", "SJIS"),
            ("koi8", "KOI8R"),
            ("'sql ascii'", "SQL_ASCII"),
        ] {
            assert_eq!(of(name).name(), known, "{name}");
        }
        assert!(Encoding::named("").is_none() && Encoding::named("x").is_none());
        assert!(!of("mule_internal").is_spoken());
    }

    #[test]
    fn texts_go_both_ways() {
        for (name, text, bytes) in [
            ("LATIN1", "äß\u{80}", &b"\xe4\xdf\x80"[..]),
            ("LATIN5", "ğı", b"\xf0\xfd"),
            ("LATIN9", "€", b"\xa4"),
            ("WIN1252", "€ä", b"\x80\xe4"),
            ("WIN1251", "Привет", b"\xcf\xf0\xe8\xe2\xe5\xf2"),
            ("KOI8R", "Привет", b"\xf0\xd2\xc9\xd7\xc5\xd4"),
            ("EUC_JP", "日本", b"\xc6\xfc\xcb\xdc"),
            ("SJIS", "日本ソ", b"\x93\xfa\x96\x7b\x83\x5c"),
            ("GBK", "中文", b"\xd6\xd0\xce\xc4"),
            ("EUC_CN", "中文", b"\xd6\xd0\xce\xc4"),
            ("BIG5", "中文", b"\xa4\xa4\xa4\xe5"),
            ("EUC_KR", "한국", b"\xc7\xd1\xb1\xb9"),
            ("UHC", "똠", b"\x8c\x63"),
            ("GB18030", "😀", b"\x94\x39\xfc\x36"),
        ] {
            let encoding = of(name);
            assert_eq!(encoding.decode(bytes).unwrap(), text, "{name}");
            let mut encoded = Vec::new();
            encoding.encode(text, &mut encoded).unwrap();
            assert_eq!(encoded, bytes, "{name}");
            let mut stream = Stream::new(encoding);
            let mut read = String::new();
            for byte in bytes {
                stream.feed(std::slice::from_ref(byte), false, &mut read).unwrap();
            }
            stream.feed(b"", true, &mut read).unwrap();
            assert_eq!(read, text, "{name}, byte by byte");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let state = |name: &str, bytes: &[u8]| of(name).decode(bytes).unwrap_err().state().to_string();
        assert_eq!(state("WIN1252", b"a\x81"), "22P05");
        assert_eq!(state("EUC_JP", b"a\xff"), "22021");
        assert_eq!(state("SJIS", b"\x93"), "22021");
        assert_eq!(state("UTF8", b"\xc3"), "22021");
        let refused = of("LATIN1").encode("a€", &mut Vec::new()).unwrap_err();
        assert_eq!(refused.state().as_str(), "22P05");
        let expected =
            "character with byte sequence 0xe2 0x82 0xac in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\"";
        assert_eq!(refused.message(), expected);
        assert!(of("LATIN5").encode("þ", &mut Vec::new()).is_err());
        assert!(of("EUC_KR").encode("똠", &mut Vec::new()).is_err() && of("EUC_KR").decode(b"\x8c\x63").is_err());
        let mut shown = Vec::new();
        of("LATIN1").encode_what_can_be("a€ä", &mut shown);
        assert_eq!(shown, b"a?\xe4");
    }

    #[test]
    fn only_names_and_texts_of_messages_are_converted() {
        let latin = of("LATIN1");
        assert_eq!(latin.recode(b'Q', b"select 1\0"), Ok(None));
        assert_eq!(latin.recode(b'Q', b"\xe4\0"), Ok(Some("ä\0".as_bytes().to_vec())));
        assert_eq!(
            latin.recode(b'P', b"\xe4\0b\0\0\xff"),
            Ok(Some([&"äb"[..2], "\0b\0\0"].concat().into_bytes().into_iter().chain([0xff]).collect()))
        );
        assert_eq!(latin.recode(b'd', b"\xe4\0"), Ok(None));
        assert_eq!(latin.recode(b'P', b"\xe4"), Ok(None));
    }
}

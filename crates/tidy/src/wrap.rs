//! Wraps comments.
//!
//! Only paragraphs with a line that is too long are filled again, as Markdown has them: code,
//! tables, headings and lines with columns of their own stay as they are.

use crate::{rules::COMMENT_WIDTH, source::Source};

/// The text of a file of Rust with its comments wrapped.
pub fn comments(source: &Source) -> String {
    let mut out = String::with_capacity(source.text.len());
    // The comment lines read last: what is before their text, and their texts.
    let mut prefix = "";
    let mut block: Vec<&str> = Vec::new();
    let mut at = 0;
    for line in source.text.split_inclusive('\n') {
        let comment = &source.comments[at..at + line.len()];
        at += line.len();
        let found = split(line.trim_end_matches('\n'), comment);
        if found.is_none_or(|(before, _)| before != prefix) {
            write_block(prefix, &block, &mut out);
            block.clear();
        }
        match found {
            Some((before, text)) => {
                prefix = before;
                block.push(text);
            }
            None => out.push_str(line),
        }
    }
    write_block(prefix, &block, &mut out);
    out
}

/// What is before the text of a line that is a comment, and the text.
fn split<'l>(line: &'l str, comment: &str) -> Option<(&'l str, &'l str)> {
    let start = line.find("//").filter(|start| line[..*start].trim().is_empty())?;
    // In a string it is none.
    comment[start..].starts_with("//").then_some(())?;
    let sign = ["///", "//!", "//"].into_iter().find(|sign| line[start..].starts_with(sign))?;
    Some(line.split_at(start + sign.len()))
}

fn write_block(prefix: &str, block: &[&str], out: &mut String) {
    let plain = block.iter().all(|text| text.is_empty() || text.starts_with(' '));
    let texts: Vec<&str> = block.iter().map(|text| text.strip_prefix(' ').unwrap_or(text)).collect();
    let width = COMMENT_WIDTH.saturating_sub(prefix.chars().count() + 1);
    let filled = if plain { fill(&texts, width) } else { block.iter().map(|&text| text.to_owned()).collect() };
    for text in filled {
        out.push_str(prefix);
        if !text.is_empty() && plain {
            out.push(' ');
        }
        out.push_str(&text);
        out.push('\n');
    }
}

/// Lines of one paragraph.
#[derive(Default)]
struct Paragraph<'t> {
    lines: Vec<&'t str>,
    /// The columns before its second line.
    hang: usize,
}

/// Fills paragraphs that have a line of more than `width` columns.
fn fill(lines: &[&str], width: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut open = Paragraph::default();
    let mut fenced = false;
    for &line in lines {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let fence = text.starts_with("```");
        let marker = marker(text);
        let continues = !open.lines.is_empty() && marker.is_none();
        if fenced || fence || is_laid_out(text) || indent > 0 && marker.is_none() && !continues {
            close(&mut open, width, &mut out);
            out.push(line.to_owned());
        } else if continues {
            if open.lines.len() == 1 {
                open.hang = indent;
            }
            open.lines.push(line);
        } else {
            close(&mut open, width, &mut out);
            open = Paragraph { lines: vec![line], hang: indent + marker.unwrap_or(0) };
        }
        fenced ^= fence;
    }
    close(&mut open, width, &mut out);
    out
}

/// Whether a line is no part of a paragraph, or has columns of its own.
fn is_laid_out(text: &str) -> bool {
    text.is_empty()
        || text.starts_with(['|', '#', '<', '>'])
        || text.starts_with('[') && text.contains("]: ")
        || text.contains("   ")
}

/// The columns of what an item of a list begins with.
fn marker(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length = match text.as_bytes().get(digits)? {
        b'-' | b'*' | b'+' if digits == 0 => 1,
        b'.' | b')' if digits > 0 => digits + 1,
        _ => return None,
    };
    text[length..].starts_with(' ').then_some(length + 1)
}

fn close(open: &mut Paragraph<'_>, width: usize, out: &mut Vec<String>) {
    let Paragraph { lines, hang } = std::mem::take(open);
    if lines.iter().all(|line| line.chars().count() <= width) {
        out.extend(lines.into_iter().map(str::to_owned));
        return;
    }
    let text = lines[0].trim_start();
    let first = lines[0].len() - text.len() + marker(text).unwrap_or(0);
    let mut line = lines[0][..first].to_owned();
    let mut is_empty = true;
    for unit in
        units(lines[0][first..].split_whitespace().chain(lines[1..].iter().flat_map(|line| line.split_whitespace())))
    {
        if !is_empty && line.chars().count() + 1 + unit.chars().count() > width {
            out.push(std::mem::replace(&mut line, " ".repeat(hang)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&unit);
        is_empty = false;
    }
    out.push(line);
}

/// Words, with those that would mean something else at the beginning of a line at the end of the
/// word before.
fn units<'t>(words: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    for word in words {
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let starts_list = matches!(word, "-" | "*" | "+") || digits > 0 && matches!(&word[digits..], "." | ")");
        match units.last_mut() {
            Some(last) if starts_list || word.starts_with(['#', '|', '>', '=']) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => units.push(word.to_owned()),
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str) -> String {
        comments(&Source::new("crates/a/src/b.rs", text.to_owned()))
    }

    #[test]
    fn long_paragraphs_are_filled_and_others_stay() {
        let long = "some words ".repeat(10);
        let text = format!(
            "    /// Short.\n    /// {long}\n    /// and the rest.\n    ///\n    /// Two\n    /// lines.\nfn a() {{}}\n"
        );
        let wide = "some words ".repeat(7);
        let expected = format!(
            "    /// Short. {wide}some\n    /// words some words some words and the rest.\n\
             \x20   ///\n    /// Two\n    /// lines.\nfn a() {{}}\n"
        );
        assert_eq!(wrapped(&text), expected);
        assert_eq!(wrapped(&expected), expected);
    }

    #[test]
    fn what_is_laid_out_stays() {
        let long = "word ".repeat(25).trim_end().to_owned();
        let text = format!(
            "//! ```text\n//! {long}\n//! ```\n//! | {long} |\n//!     {long}\n\
             //! # {long}\n//!   a {long}\nlet s = \"\n    // {long}\";\nlet t = 1; // {long}\n//----- {long}\n"
        );
        assert_eq!(wrapped(&text), text);
    }

    #[test]
    fn items_hang_and_no_line_becomes_one() {
        let long = "0123456789 ".repeat(8);
        let text = format!("// - {long}abcdefg - {long}\n//   end\n// 10. {long}{long}\n// next\n");
        let long = long.trim_end();
        let cut = &long[..long.len() - 11];
        let expected =
            format!("// - {long}\n//   abcdefg - {cut}\n//   0123456789 end\n// 10. {long}\n// {long} next\n");
        assert_eq!(wrapped(&text), expected);
    }
}

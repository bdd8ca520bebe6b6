//! Messages as clients write them, and what servers answer, cut into messages.

/// A message with its kind and length.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// A packet of the start-up, with its number.
pub fn packet(code: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 8).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
}

/// The number of the packet that asks for TLS.
pub const TLS: u32 = 80_877_103;
/// The number of the packet that asks for encryption by GSSAPI.
pub const GSS: u32 = 80_877_104;
/// The number of the packet that cancels a statement.
pub const CANCEL: u32 = 80_877_102;

/// The packet that asks for a session.
pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in parameters {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    packet(3 << 16, &body)
}

/// A string of statements; it need not be UTF-8.
pub fn query(sql: &[u8]) -> Vec<u8> {
    message(b'Q', &[sql, b"\0"].concat())
}

/// A statement to be prepared, with the types of its first parameters.
pub fn parse(name: &str, sql: &[u8], types: &[u32]) -> Vec<u8> {
    let mut body = [name.as_bytes(), b"\0", sql, b"\0"].concat();
    body.extend_from_slice(&(types.len() as u16).to_be_bytes());
    types.iter().for_each(|ty| body.extend_from_slice(&ty.to_be_bytes()));
    message(b'P', &body)
}

/// Values for a prepared statement, all in this format (0 for text, 1 for binary), results as text.
pub fn bind(portal: &str, statement: &str, format: u16, values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = format!("{portal}\0{statement}\0\0\u{1}").into_bytes();
    body.extend_from_slice(&format.to_be_bytes());
    body.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for value in values {
        match value {
            None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(value) => {
                body.extend_from_slice(&(value.len() as u32).to_be_bytes());
                body.extend_from_slice(value);
            }
        }
    }
    body.extend_from_slice(&[0, 0]);
    message(b'B', &body)
}

/// Asks what a statement (`S`) or a portal (`P`) is.
pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[kind], name.as_bytes(), b"\0"].concat())
}

/// Forgets a statement (`S`) or a portal (`P`).
pub fn close(kind: u8, name: &str) -> Vec<u8> {
    message(b'C', &[&[kind], name.as_bytes(), b"\0"].concat())
}

/// Runs a portal for this many rows; 0 for all.
pub fn execute(portal: &str, limit: u32) -> Vec<u8> {
    message(b'E', &[portal.as_bytes(), b"\0", &limit.to_be_bytes()].concat())
}

/// The end of a part of the extended protocol.
pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

/// Cuts what a server has sent since the start-up into messages, each with its kind; `None` when
/// that cannot be done.
pub fn cut(mut response: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut answers = Vec::new();
    while let Some((kind, rest)) = response.split_first() {
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_sub(4)?;
        let (body, rest) = rest.split_at_checked(length)?;
        answers.push((*kind, body));
        response = rest;
    }
    Some(answers)
}

/// The field of an error or a notice with this letter.
pub fn field(body: &[u8], letter: u8) -> Option<String> {
    let mut fields = body.split(|byte| *byte == 0);
    let found = fields.find(|field| field.first() == Some(&letter))?;
    Some(String::from_utf8_lossy(&found[1..]).into_owned())
}

//! The inputs form of the log, as another node may send it.

use freshet_base::{Lsn, RecordKind};
use freshet_replay::form::{Decoder, Form};

/// Reads `data` as a batch in the inputs form, behind the LSN at which it begins in eight bytes.
///
/// # Panics
/// When what is read contradicts itself.
pub fn forms(data: &[u8]) {
    let Some((at, form)) = data.split_first_chunk() else { return };
    // As far as a log can come.
    let mut decoder = Decoder::new(form, Lsn(u64::from_le_bytes(*at) >> 1));
    loop {
        let at = decoder.at();
        let end = match decoder.next_form() {
            Ok(Some(Form::Bytes(bytes))) => at.plus(bytes.len() as u64),
            Ok(Some(Form::Skip(header, _))) => {
                assert_eq!(header.lsn, at);
                header.end()
            }
            Ok(Some(Form::Inputs(inputs))) => {
                assert_eq!(inputs.header.lsn, at);
                assert_eq!(usize::from(inputs.header.record_count), inputs.written.len() + 1);
                for key in inputs.keys() {
                    assert_eq!(inputs.written[key.record].kind, RecordKind::Insert);
                }
                inputs.header.end()
            }
            Ok(None) | Err(_) => return,
        };
        assert_eq!(decoder.at(), end, "blocks follow one another");
    }
}

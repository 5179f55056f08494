//! The wire format of Protobuf, as far as needed to split a message into fields without rebuilding
//! it.

use prost_reflect::{Kind, MessageDescriptor};

/// Calls `each` with the number and the bytes of every field, in the order of the message.
pub(super) fn fields(body: &[u8], mut each: impl FnMut(u32, &[u8])) -> Result<(), &'static str> {
    let mut rest = body;
    while !rest.is_empty() {
        let start = rest;
        let (number, wire_type) = key(&mut rest)?;
        skip(&mut rest, number, wire_type)?;
        each(number, &start[..start.len() - rest.len()]);
    }
    Ok(())
}

/// The same message with the entries of each map sorted by their bytes, because their writer emits
/// them in any order.
pub(super) fn sort_maps(message: &MessageDescriptor, body: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut sorted: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut failed = None;
    fields(body, |number, bytes| {
        let nested = message.get_field(number).and_then(|field| match field.kind() {
            Kind::Message(nested) if !field.is_group() => Some(nested),
            _ => None,
        });
        let field = match nested {
            None => Ok(bytes.to_vec()),
            Some(nested) => content(bytes).and_then(|inner| {
                let mut field = Vec::with_capacity(bytes.len());
                put_bytes(&mut field, number, &sort_maps(&nested, inner)?);
                Ok(field)
            }),
        };
        match field {
            Ok(field) => sorted.push((number, field)),
            Err(reason) => failed = Some(reason),
        }
    })?;
    if let Some(reason) = failed {
        return Err(reason);
    }
    let is_map = |number| message.get_field(number).is_some_and(|field| field.is_map());
    sorted.sort_by(|(a, left), (b, right)| match a.cmp(b) {
        std::cmp::Ordering::Equal if is_map(*a) => left.cmp(right),
        order => order,
    });
    Ok(sorted.into_iter().flat_map(|(_, field)| field).collect())
}

/// Writes a text, unless it is the default.
pub(super) fn put_text(to: &mut Vec<u8>, number: u32, text: &str) {
    if !text.is_empty() {
        put_bytes(to, number, text.as_bytes());
    }
}

/// Writes a number, unless it is the default.
pub(super) fn put_int64(to: &mut Vec<u8>, number: u32, value: i64) {
    if value != 0 {
        put_varint(to, u64::from(number) << 3);
        put_varint(to, value.cast_unsigned());
    }
}

/// Writes a `google.protobuf.Timestamp`, whose fraction is never negative.
pub(super) fn put_timestamp(to: &mut Vec<u8>, number: u32, nanos: i128) {
    const SECOND: i128 = 1_000_000_000;
    let part = |value: i128| i64::try_from(value).expect("a timestamp has years of four digits");
    let mut at = Vec::with_capacity(16);
    put_int64(&mut at, 1, part(nanos.div_euclid(SECOND)));
    put_int64(&mut at, 2, part(nanos.rem_euclid(SECOND)));
    put_bytes(to, number, &at);
}

/// Writes an entry of a map from text to text.
pub(super) fn put_entry(to: &mut Vec<u8>, number: u32, key: &str, value: &str) {
    let mut entry = Vec::with_capacity(key.len() + value.len() + 8);
    put_text(&mut entry, 1, key);
    put_text(&mut entry, 2, value);
    put_bytes(to, number, &entry);
}

fn put_bytes(to: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(to, u64::from(number) << 3 | LENGTH);
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const GROUP: u64 = 3;
const GROUP_END: u64 = 4;
const FIXED32: u64 = 5;

const CUT_SHORT: &str = "the message is cut short";

/// The maximum nesting of groups, the same as in other implementations.
const MAX_DEPTH: usize = 100;

fn skip(rest: &mut &[u8], number: u32, wire_type: u64) -> Result<(), &'static str> {
    // Open groups are kept in a list instead of recursing: a hostile message must not exhaust the
    // stack.
    let mut open = Vec::new();
    let (mut number, mut wire_type) = (number, wire_type);
    loop {
        match wire_type {
            VARINT => drop(varint(rest)?),
            FIXED64 => advance(rest, 8)?,
            FIXED32 => advance(rest, 4)?,
            LENGTH => {
                let len = varint(rest)?;
                advance(rest, usize::try_from(len).map_err(|_| CUT_SHORT)?)?;
            }
            GROUP if open.len() == MAX_DEPTH => return Err("groups are nested too deeply"),
            GROUP => open.push(number),
            GROUP_END if open.pop() == Some(number) => {}
            GROUP_END => return Err("a group ends that has not begun"),
            _ => return Err("a field has an unknown wire type"),
        }
        if open.is_empty() {
            return Ok(());
        }
        (number, wire_type) = key(rest)?;
    }
}

fn content(field: &[u8]) -> Result<&[u8], &'static str> {
    let mut rest = field;
    let (_, wire_type) = key(&mut rest)?;
    if wire_type != LENGTH {
        return Err("a message has the wire type of a number");
    }
    varint(&mut rest)?;
    Ok(rest)
}

fn key(rest: &mut &[u8]) -> Result<(u32, u64), &'static str> {
    let key = varint(rest)?;
    match u32::try_from(key).map(|key| key >> 3) {
        Ok(number) if number > 0 => Ok((number, key & 7)),
        _ => Err("a field has a number that is not one"),
    }
}

fn varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first().ok_or(CUT_SHORT)?;
        *rest = tail;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return if shift == 63 && byte > 1 { Err("a number is too large") } else { Ok(value) };
        }
    }
    Err("a number is too long")
}

fn advance(rest: &mut &[u8], by: usize) -> Result<(), &'static str> {
    *rest = rest.get(by..).ok_or(CUT_SHORT)?;
    Ok(())
}

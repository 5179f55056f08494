//! Mutations of fuzzed inputs.

/// Some input, changed in a few places.
pub fn mutate(random: &mut Random, seeds: &[&Vec<u8>]) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(10) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 => input.truncate(at),
            2 => {
                let token = TOKENS[random.below(TOKENS.len())];
                input.splice(at..at, token.iter().copied());
            }
            3 => {
                let other = seeds[random.below(seeds.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            4 => {
                let end = (at + random.below(16)).min(input.len());
                input.drain(at..end);
            }
            5 => {
                let end = (at + random.below(64)).min(input.len());
                let part = input[at..end].to_vec();
                for _ in 0..random.below(20) {
                    input.splice(at..at, part.iter().copied());
                }
            }
            6 => replace_number(random, &mut input),
            7 => replace_string(random, &mut input),
            8 if random.below(8) == 0 => {
                let bomb: &[u8] =
                    [b"[".as_slice(), b"{\"a\":", b"0,", b"\x0b", b"."][random.below(5)];
                let bomb = bomb.repeat(1 + random.below(20_000));
                input.splice(at..at, bomb);
            }
            _ => {
                let byte = random.next() as u8;
                input.insert(at, byte);
            }
        }
    }
    input
}

/// Puts a number where a number is.
fn replace_number(random: &mut Random, input: &mut Vec<u8>) {
    const NUMBERS: &[&str] = &[
        "0",
        "-0",
        "-1",
        "1",
        "2",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "1.0",
        "18446744073709551616",
        "1e999",
        "0.30000000000000004",
        "null",
        "true",
        "\"1\"",
    ];
    let digits: Vec<usize> = (0..input.len()).filter(|&at| input[at].is_ascii_digit()).collect();
    let Some(&at) = digits.get(random.below(digits.len().max(1))) else { return };
    let number = NUMBERS[random.below(NUMBERS.len())];
    input.splice(at..=at, number.bytes());
}

/// Puts a token in place of what is between two quotes.
fn replace_string(random: &mut Random, input: &mut Vec<u8>) {
    let quotes: Vec<usize> = (0..input.len()).filter(|&at| input[at] == b'"').collect();
    let pick = random.below(quotes.len().max(1));
    let (Some(&from), Some(&to)) = (quotes.get(pick), quotes.get(pick + 1)) else { return };
    let token = TOKENS[random.below(TOKENS.len())];
    input.splice(from + 1..to, token.iter().copied());
}

/// Words that mean something to one of the targets.
const TOKENS: &[&[u8]] = &[
    b"null",
    b"{}",
    b"[]",
    b"\"\"",
    b"true",
    b"false",
    b",",
    b":",
    b"\\u0000",
    b"\\ud800",
    b"\"",
    b"\xff\xfe",
    b"%",
    b"%4",
    b"%C3%A9",
    b"%ff",
    b"\n",
    b"\n\n",
    b"eventId",
    b"eventType",
    b"eventVersion",
    b"metadata",
    b"payload",
    b"actorId",
    b"actor",
    b"producedBy",
    b"source",
    b"outbox",
    b"aiProvenance",
    b"aggregateType",
    b"aggregateId",
    b"aggregateVersion",
    b"traceparent",
    b"tracestate",
    b"fromOfflineReplay",
    b"contentType",
    b"application/json",
    b"text/plain",
    b"application/cloudevents+json",
    b"specversion",
    b"1.0",
    b"type",
    b"id",
    b"time",
    b"datacontenttype",
    b"data",
    b"data_base64",
    b"tenantid",
    b"correlationid",
    b"causationid",
    b"eventversion",
    b"actortype",
    b"actorid",
    b"aggregatetype",
    b"subject",
    b"aggregateversion",
    b"offlinereplay",
    b"aiprovenance",
    b"extensions",
    b"typedextensions",
    b"producerservice",
    b"/services/",
    b"/services/a%20b",
    b"user",
    b"platform",
    b"application/xml",
    b"2026-01-01T00:00:00Z",
    b"-009999-01-01T00:00:00Z",
    b".v2",
    b".v0",
    b".v4294967296",
    b"ce-",
    b"ce_",
    b"ce-id: 7\n",
    b"ce_id: 7\n",
    b"ce-type: a.v3\n",
    b"ce-typedextensions: ",
    b"content-type: ",
    b"content-type: text/plain\n",
    b"@topic: ",
    b"chapar-tenant",
    b"chapar-metadata",
    b"chapar-extensions",
    b"chapar-ordering-key",
    b"chapar-no-ordering-key",
    b"chapar-aggregate-type",
    b"chapar-aggregate-version",
    b"chapar-empty-idempotency-key",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x0a\xff\xff\xff\x7f",
    b"\x0b\x0c",
    b"\x0b",
    b"\x0c",
    b"\x72\x00",
    b"\x72\x04\x0a\x00\x12\x00",
    b"\x60\x00",
    b"\x5a\x00",
    b"\x5a\x02\x10\x01",
    b"melmastoon",
    b"_",
    b"-",
    b".",
    b"..",
    b"\xc3\xbc",
];

/// A generator whose seed can be printed.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

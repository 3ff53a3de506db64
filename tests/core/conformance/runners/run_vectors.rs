//! Asks a command the requests of a vector file, and compares its answers with the engine's.
//!
//!     rustc --edition 2021 -O run_vectors.rs && ./run_vectors VECTORS FILES COMMAND [ARGUMENT...]
//!
//! FILES is ../vectors/images/files.jsonl. The protocol is that of ../README.md, "Running them".
//! Identities and block hashes are not compared here; ../run_vectors.py does. The standard library
//! is all it needs.

use std::collections::HashMap;
use std::io::Write;
use std::process::{exit, Command, Stdio};

/// A JSON value. Numbers and texts keep their spelling, escapes included.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Plain(String), // null, true, false or a number
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(key, _)| key == name).map(|(_, v)| v),
            _ => None,
        }
    }

    fn list(&self) -> &[Json] {
        if let Json::List(values) = self {
            values
        } else {
            &[]
        }
    }

    fn text(&self) -> &str {
        if let Json::Text(text) | Json::Plain(text) = self {
            text
        } else {
            ""
        }
    }

    fn number(&self) -> u64 {
        self.text()
            .parse()
            .unwrap_or_else(|_| fail(format!("{self:?} is no number")))
    }

    fn write(&self, into: &mut String) {
        match self {
            Json::Plain(text) => into.push_str(text),
            Json::Text(text) => *into += &format!("\"{text}\""),
            Json::List(values) => {
                into.push('[');
                for (at, value) in values.iter().enumerate() {
                    into.push_str(if at > 0 { "," } else { "" });
                    value.write(into);
                }
                into.push(']');
            }
            Json::Object(members) => {
                into.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    *into += &format!("{}\"{key}\":", if at > 0 { "," } else { "" });
                    value.write(into);
                }
                into.push('}');
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> u8 {
        while self
            .text
            .as_bytes()
            .get(self.at)
            .is_some_and(u8::is_ascii_whitespace)
        {
            self.at += 1;
        }
        *self.text.as_bytes().get(self.at).unwrap_or(&0)
    }

    /// Whether the next character is this one, which is then passed.
    fn passes(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    fn quoted(&mut self) -> String {
        let start = self.at + 1;
        self.at = start;
        while self.text.as_bytes()[self.at] != b'"' {
            self.at += 1 + usize::from(self.text.as_bytes()[self.at] == b'\\');
        }
        self.at += 1;
        self.text[start..self.at - 1].to_owned()
    }

    fn value(&mut self) -> Json {
        match self.peek() {
            b'"' => Json::Text(self.quoted()),
            b'[' => {
                let mut values = Vec::new();
                self.at += 1;
                while !self.passes(b']') {
                    values.push(self.value());
                    self.passes(b',');
                }
                Json::List(values)
            }
            b'{' => {
                let mut members = Vec::new();
                self.at += 1;
                while !self.passes(b'}') {
                    self.peek();
                    let key = self.quoted();
                    self.passes(b':');
                    members.push((key, self.value()));
                    self.passes(b',');
                }
                Json::Object(members)
            }
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.find([',', ']', '}']).unwrap_or(rest.len());
                self.at += end;
                if end == 0 {
                    fail(format!("malformed JSON: {:.200}", self.text));
                }
                Json::Plain(rest[..end].trim_end().to_owned())
            }
        }
    }
}

fn fail(message: String) -> ! {
    eprintln!("{message}");
    exit(1)
}

/// The values of a JSON Lines file; only a line feed ends a line.
fn lines(content: &str) -> Vec<Json> {
    let full = content.split('\n').filter(|line| !line.is_empty());
    full.map(|text| Reader { text, at: 0 }.value()).collect()
}

fn read(path: &str) -> Vec<Json> {
    lines(&std::fs::read_to_string(path).unwrap_or_else(|error| fail(format!("{path}: {error}"))))
}

/// A request with each text "file:NAME" replaced by the data URL of that file.
fn with_files(value: &Json, urls: &HashMap<String, String>) -> Json {
    match value {
        Json::Text(text) => {
            let url = text.strip_prefix("file:").and_then(|name| urls.get(name));
            Json::Text(url.unwrap_or(text).clone())
        }
        Json::List(values) => Json::List(values.iter().map(|v| with_files(v, urls)).collect()),
        Json::Object(members) => {
            let replaced = members
                .iter()
                .map(|(key, v)| (key.clone(), with_files(v, urls)));
            Json::Object(replaced.collect())
        }
        Json::Plain(_) => value.clone(),
    }
}

/// A vector without its answer.
fn request(case: &Json, urls: &HashMap<String, String>) -> Json {
    let Json::Object(members) = with_files(case, urls) else {
        fail("no object".to_owned())
    };
    let asked = members
        .into_iter()
        .filter(|(key, _)| key != "tags" && key != "expect");
    Json::Object(asked.collect())
}

type Range<'a> = (u64, u64, &'a str, Vec<(u64, u64)>);

/// The ranges by offset, without the runs of one whose positions are all features.
fn ordered(ranges: &Json) -> Vec<Range<'_>> {
    let mut plain: Vec<Range> = Vec::new();
    for range in ranges.list() {
        let field = |name| range.get(name).map_or(0, Json::number);
        let runs = range.get("embed_runs").map_or(&[][..], Json::list);
        let mut runs: Vec<_> = runs
            .iter()
            .map(|run| (run.list()[0].number(), run.list()[1].number()))
            .collect();
        if runs == [(1, field("length"))] {
            runs.clear();
        }
        let modality = range.get("modality").map_or("", Json::text);
        plain.push((field("offset"), field("length"), modality, runs));
    }
    plain.sort_by_key(|range| range.0);
    plain
}

/// What is wrong with an answer; nothing if it is right.
fn wrong(answer: &Json, expected: &Json) -> Option<String> {
    let exact = match answer.get("exact").map(Json::text) {
        Some("true") => true,
        Some("false") => false,
        _ => return Some("no `exact`".to_owned()),
    };
    if let Some(refusal) = expected.get("refused") {
        let why = format!("SILENT: exact, but the engine refuses: {}", refusal.text());
        return exact.then_some(why);
    }
    if !exact {
        let reason = answer.get("reason").map_or("", Json::text);
        if reason == "unsupported_processor_kwargs" {
            return None; // which need not be followed
        }
        return Some(format!("inexact ({reason}), but the engine answers"));
    }
    if let Some(ids) = answer.get("token_ids") {
        let ours: Vec<u64> = ids.list().iter().map(Json::number).collect();
        let runs = expected
            .get("token_runs")
            .map_or(&[][..], Json::list)
            .iter()
            .map(Json::list);
        let theirs: Vec<u64> = runs
            .flat_map(|run| std::iter::repeat(run[0].number()).take(run[1].number() as usize))
            .collect();
        if ours != theirs {
            let same = ours
                .iter()
                .zip(&theirs)
                .take_while(|(one, other)| one == other)
                .count();
            let lengths = format!("{} of them, the engine has {}", ours.len(), theirs.len());
            return Some(format!(
                "SILENT: other token IDs from index {same} on ({lengths})"
            ));
        }
    }
    let none = Json::List(Vec::new());
    let ours = answer.get("placeholders").map(ordered)?;
    let theirs = ordered(expected.get("placeholders").unwrap_or(&none));
    (ours != theirs).then(|| format!("SILENT: ranges {ours:?}, the engine has {theirs:?}"))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [vectors, files, command, more @ ..] = &arguments[..] else {
        fail("usage: run_vectors VECTORS FILES COMMAND [ARGUMENT...]".to_owned())
    };
    let named = |file: &Json, name| file.get(name).map_or("", Json::text).to_owned();
    let urls = read(files)
        .iter()
        .map(|file| (named(file, "name"), named(file, "url")))
        .collect();
    let vectors = read(vectors);
    let (meta, cases) = vectors
        .split_first()
        .unwrap_or_else(|| fail("an empty file".to_owned()));
    let mut requests = String::new();
    for case in cases {
        request(case, &urls).write(&mut requests);
        requests.push('\n');
    }
    let mut child = Command::new(command)
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| fail(format!("{command}: {error}")));
    let mut stdin = child.stdin.take().unwrap();
    // In a thread of its own, because the command may answer before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(requests.as_bytes()));
    let output = child
        .wait_with_output()
        .unwrap_or_else(|error| fail(error.to_string()));
    let _ = writer.join(); // a command that ended early is seen by the number of its answers
    let answers = lines(&String::from_utf8_lossy(&output.stdout));
    if !output.status.success() || answers.len() != cases.len() {
        fail(format!(
            "{}: {} answers to {} requests",
            output.status,
            answers.len(),
            cases.len()
        ));
    }
    let mut failed = 0;
    for (case, answer) in cases.iter().zip(&answers) {
        if let Some(why) = case
            .get("expect")
            .and_then(|expected| wrong(answer, expected))
        {
            failed += 1;
            println!("{}: {why}", named(case, "id"));
        }
    }
    let engine = format!(
        "{} {}",
        named(meta, "backend"),
        named(meta, "backend_version")
    );
    if failed > 0 {
        fail(format!(
            "not conformant with {engine}: {failed} of {} wrong",
            cases.len()
        ));
    }
    println!(
        "conformant with {engine}: {} of {}",
        cases.len(),
        cases.len()
    );
}

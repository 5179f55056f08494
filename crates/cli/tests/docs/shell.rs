//! The blocks of the documents, and the commands in them. Shared with the unit test that parses
//! every command.

use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block of a document.
pub(crate) struct Block {
    /// The document and the line, for messages.
    pub(crate) place: String,
    /// The document, from the root of the repository.
    pub(crate) page: String,
    /// What stands behind the fence.
    pub(crate) kind: String,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Markdown file under a folder.
pub(crate) fn markdown(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(markdown(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// All documents that are for users, by name. Decisions and the changelog tell what was.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut pages = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    pages.extend(markdown(&root().join("docs")));
    let named = pages.into_iter().map(|page| {
        let text = fs::read_to_string(&page).unwrap();
        (page.strip_prefix(root()).unwrap_or(&page).display().to_string(), text)
    });
    named.filter(|(name, _)| !name.starts_with("docs/decisions")).collect()
}

/// The blocks of all documents, in order.
pub(crate) fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (page, text) in pages() {
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(kind), None) => {
                    open = Some(Block {
                        place: format!("{page}:{}", number + 1),
                        page: page.clone(),
                        kind: kind.to_owned(),
                        text: String::new(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block is not closed");
    }
    blocks
}

/// The calls of `chapar` in the shell blocks of all documents, with their place.
pub(crate) fn documented() -> Vec<(String, String)> {
    let shell = blocks().into_iter().filter(|block| block.kind == "sh");
    shell
        .flat_map(|block| {
            let place = block.place;
            calls(&block.text).into_iter().map(move |call| (place.clone(), call))
        })
        .collect()
}

/// The lines of a piece of shell, continued lines joined and comments left out.
pub(crate) fn lines(shell: &str) -> Vec<String> {
    let joined = shell.replace("\\\n", " ");
    let line = |line: &str| line.split(" # ").next().unwrap_or_default().trim().to_owned();
    joined.lines().map(line).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The calls of `chapar` in a piece of shell, without redirections, and with `cargo run … --`
/// replaced by the program.
pub(crate) fn calls(shell: &str) -> Vec<String> {
    let call = |line: String| {
        let without = |line: &str, sign| line.split(sign).next().unwrap_or_default().to_owned();
        let line = [" > ", " < ", " | "].iter().fold(line, |line, sign| without(&line, sign));
        let line = line.trim().to_owned();
        let line = match line.strip_prefix("cargo run --release") {
            Some(rest) => {
                format!("chapar{}", rest.split_once("-- ").map(|(_, args)| format!(" {args}"))?)
            }
            None => line,
        };
        // The dots stand for what the reader knows.
        let line = line.replace("postgres://…", "postgres://localhost/hotel").replace(":…@", ":x@");
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        line.starts_with("chapar ").then_some(line)
    };
    lines(shell).into_iter().filter_map(call).collect()
}

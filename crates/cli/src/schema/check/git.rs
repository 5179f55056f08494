//! A system at a Git revision, read with the installed `git`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// A temporary copy of the system's contracts at a revision; deleted on drop.
pub(super) struct Tree {
    copy: TempDir,
    system: PathBuf,
}

impl Tree {
    /// Copies the contracts of a system out of a revision.
    ///
    /// Objects are read directly and not as an archive: attributes such as `export-ignore` could
    /// omit contracts.
    pub(super) fn checkout(root: &Path, revision: &str, system: &str) -> Result<Tree> {
        let commit = commit(root, revision)?;
        let system = Path::new("systems").join(system);
        let folder = system.display().to_string().replace('\\', "/");
        // Relative to the root, which need not be the top of the repository.
        let list = git(root, &["ls-tree", "-r", "-z", &commit, "--", &folder])?;
        let mut files = Vec::new();
        for line in list.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let line = std::str::from_utf8(line).context("a path in the revision is not UTF-8")?;
            let Some((entry, path)) = line.split_once('\t') else { continue };
            let fields: Vec<&str> = entry.split(' ').collect();
            // Links and submodules contain no contracts.
            if let [mode, "blob", object] = fields[..]
                && mode.starts_with("100")
                && [".toml", ".json", ".proto"].iter().any(|ending| path.ends_with(ending))
            {
                files.push((object.to_owned(), PathBuf::from(path)));
            }
        }
        let copy = tempfile::tempdir().context("no temporary folder")?;
        write_all(root, copy.path(), &files)?;
        Ok(Tree { copy, system })
    }

    /// The folder of the system, if the revision has it.
    pub(super) fn system(&self) -> Option<PathBuf> {
        let folder = self.copy.path().join(&self.system);
        folder.is_dir().then_some(folder)
    }
}

/// The default revision to compare with: the base of the pull request, else the main branch of the
/// origin, else the last commit. None without Git.
pub(crate) fn base(root: &Path) -> Option<String> {
    let pulled = std::env::var("GITHUB_BASE_REF").ok().filter(|name| !name.is_empty());
    let pulled = pulled.map(|name| format!("origin/{name}"));
    let known = ["origin/HEAD", "origin/main", "origin/master", "HEAD"].map(str::to_owned);
    pulled.into_iter().chain(known).find(|revision| commit(root, revision).is_ok())
}

fn commit(root: &Path, revision: &str) -> Result<String> {
    let inside = git(root, &["rev-parse", "--is-inside-work-tree"]);
    inside.with_context(|| format!("{} is not in a Git repository", root.display()))?;
    // Reject a leading `-`: git would parse it as an option.
    ensure!(
        !revision.is_empty() && !revision.starts_with('-'),
        "{revision:?} is neither a revision nor a file"
    );
    let named = format!("{revision}^{{commit}}");
    let found = git(root, &["rev-parse", "--verify", "--quiet", &named]).ok();
    let found = found.and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(commit) = found else {
        bail!(
            "{revision:?} is neither a revision of this repository nor a bundle file; \
             in a shallow clone, fetch it first"
        );
    };
    Ok(commit.trim().to_owned())
}

fn git(root: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("git").arg("-C").arg(root).args(args).stdin(Stdio::null()).output();
    let output = output.context("git cannot be started")?;
    if !output.status.success() {
        bail!("git {}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Reads all objects through one process, which is much faster than one for each.
fn write_all(root: &Path, copy: &Path, files: &[(String, PathBuf)]) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let mut child = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("git cannot be started")?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
        bail!("cannot open the pipes of git");
    };
    let mut stdout = BufReader::new(stdout);
    for (object, path) in files {
        // One at a time: requesting all first would fill both pipes.
        writeln!(stdin, "{object}").and_then(|()| stdin.flush()).context("git cat-file ended")?;
        let mut head = String::new();
        stdout.read_line(&mut head).context("git cat-file ended")?;
        let size = head.trim().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
        let size = size.with_context(|| format!("{} is not there: {head}", path.display()))?;
        let mut bytes = Vec::new();
        // A newline follows each object.
        stdout.by_ref().take(size + 1).read_to_end(&mut bytes).context("git cat-file ended")?;
        ensure!(bytes.pop() == Some(b'\n'), "{} was cut off", path.display());
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        ensure!(plain, "{} leads out of the revision", path.display());
        let target = copy.join(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(target, bytes)?;
    }
    drop(stdin);
    child.wait().context("git cat-file did not end")?;
    Ok(())
}

// Included by the build scripts of both programs.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rustc-env=PEERLOCK_COMMIT={}", commit().unwrap_or_else(|| "unknown".into()));
    println!("cargo:rustc-env=PEERLOCK_DATE={}", git(&["log", "-1", "--format=%cs"]).unwrap_or_default());
    for directory in ["../../crates", "../../lab"] {
        println!("cargo:rerun-if-changed={directory}");
    }
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", "../../crates", "../../lab"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, with changes") })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}

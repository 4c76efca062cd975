//! What is made from the command line: completions, manual pages, the version.

use std::fs;
use std::process::{Command, Output, Stdio};

fn peerlock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peerlock")).args(arguments).output().expect("the program runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = peerlock(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_shell_learns_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = printed(&["completions", shell]);
        for command in ["run", "agent", "acquire", "show", "simulate"] {
            assert!(text.contains(command), "{shell} does not know {command}");
        }
    }
    assert_eq!(peerlock(&["completions", "tcsh"]).status.code(), Some(64));
}

/// What is printed for bash is a script that bash can read, and it completes.
#[test]
fn bash_completes_a_command() {
    let script = format!(
        "{}\nCOMP_WORDS=(peerlock sim) COMP_CWORD=1; _peerlock peerlock sim peerlock; echo \"${{COMPREPLY[@]}}\"",
        printed(&["completions", "bash"])
    );
    let output = Command::new("bash").args(["--norc", "-c", &script]).stdin(Stdio::null()).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "simulate", "{output:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("deep/man1");
    printed(&["man", pages.to_str().expect("a path")]);
    let mut names: Vec<String> = fs::read_dir(&pages)
        .expect("it was made")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    for name in ["peerlock.1", "peerlock-run.1", "peerlock-agent.1", "peerlock-man.1"] {
        assert!(names.iter().any(|it| it == name), "{name} is not among {names:?}");
    }
    assert!(names.iter().all(|name| !name.contains("child")), "{names:?}");
    let run = fs::read_to_string(pages.join("peerlock-run.1")).expect("it is there");
    assert!(run.contains(".TH peerlock-run 1") && run.contains("no\\-agent"), "{run}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let output = peerlock(&["man", "/dev/null/man1"]);
    assert_eq!(output.status.code(), Some(74), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/null/man1"), "{output:?}");
}

#[test]
fn the_version_names_the_program_and_the_commit() {
    let version = printed(&["--version"]);
    assert!(version.starts_with("peerlock 0.") && version.contains('('), "{version}");
}

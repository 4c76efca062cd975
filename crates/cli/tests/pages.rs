//! Output derived from the command line definition: completions, manual pages, version, errors. Also project pages.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
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
fn completions_of_each_shell_contain_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = printed(&["completions", shell]);
        for command in ["run", "agent", "acquire", "show", "doctor"] {
            assert!(text.contains(command), "{command} is missing for {shell}");
        }
    }
    assert_eq!(peerlock(&["completions", "tcsh"]).status.code(), Some(64));
}

#[test]
fn bash_completes_a_command() {
    let script = format!(
        "{}\nCOMP_WORDS=(peerlock doc) COMP_CWORD=1; _peerlock peerlock doc peerlock; echo \"${{COMPREPLY[@]}}\"",
        printed(&["completions", "bash"])
    );
    let output = Command::new("bash").args(["--norc", "-c", &script]).stdin(Stdio::null()).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "doctor", "{output:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let pages = dir.path().join("deep/man1");
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
    for page in &names {
        let text = fs::read_to_string(pages.join(page)).expect("it is there").replace("\\-", "-");
        let named =
            text.lines().filter_map(|line| line.strip_suffix("(1)")).filter(|name| name.starts_with("peerlock"));
        for name in named {
            assert!(names.contains(&format!("{name}.1")), "{page} names {name}");
        }
    }
    let run = fs::read_to_string(pages.join("peerlock-run.1")).expect("it is there");
    assert!(run.contains(".TH peerlock-run 1") && run.contains("no\\-agent"), "{run}");
}

#[test]
fn manual_page_has_the_usual_sections_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    printed(&["man", dir.path().to_str().expect("a path")]);
    let page = |name: &str| fs::read_to_string(dir.path().join(name)).expect("it is there").replace("\\-", "-");
    for (name, sections) in [
        ("peerlock-run.1", &["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "FILES"][..]),
        ("peerlock-run.1", &["FILES", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]),
        ("peerlock-secret.1", &["SYNOPSIS", "SUBCOMMANDS", "NOTES", "ENVIRONMENT", "EXIT STATUS", "SEE ALSO"]),
        ("peerlock-resize.1", &["SYNOPSIS", "OPTIONS", "ENVIRONMENT", "FILES", "EXIT STATUS", "SEE ALSO"]),
        ("peerlock.1", &["SYNOPSIS", "SUBCOMMANDS", "ENVIRONMENT", "FILES", "EXIT STATUS", "SEE ALSO"]),
    ] {
        let page = page(name);
        let heads: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let places: Vec<usize> = sections
            .iter()
            .map(|section| heads.iter().position(|head| head.trim_matches('"') == *section))
            .map(|place| place.unwrap_or_else(|| panic!("{name} lacks one of {sections:?}: {heads:?}")))
            .collect();
        assert!(places.is_sorted() && !heads.contains(&"EXTRA"), "{name}: {heads:?}");
        assert!(page.contains(&format!("\"peerlock {}\"", env!("CARGO_PKG_VERSION"))), "{name}: its version");
    }
    let run = page("peerlock-run.1");
    let synopsis = run.split(".SH ").find(|section| section.starts_with("SYNOPSIS")).expect("a synopsis");
    for words in [
        "\\fBpeerlock run\\fR\n",
        "[\\fB-n\\fR \\fISLOTS\\fR]",
        "[\\fB--try\\fR]",
        "\n\\fINAME\\fR\n\\fB--\\fR \\fICOMMAND\\fR...",
    ] {
        assert!(synopsis.contains(words), "{words}: {synopsis}");
    }
    assert!(!synopsis.contains("--help"), "{synopsis}");
    assert!(run.contains("\n.nf\npeerlock run backup -- rsync -a /home backup:  "), "columns are kept: {run}");
    assert!(page("peerlock-acquire.1").contains("\n\\fB--ttl\\fR \\fIDURATION\\fR\n"), "it is required");
    assert!(page("peerlock-drain.1").contains("\\fBpeerlock-agent\\fR(1)"), "a command that the text names");
}

#[test]
fn manual_pages_are_accepted_by_man() {
    let dir = tempfile::tempdir().expect("a directory");
    printed(&["man", dir.path().to_str().expect("a path")]);
    for page in fs::read_dir(dir.path()).expect("it was made") {
        let page = page.expect("an entry").path();
        let groff = Command::new("groff").args(["-Kutf8", "-man", "-Tutf8", "-ww", "-z"]).arg(&page).output();
        let Ok(groff) = groff else {
            assert!(std::env::var_os("PEERLOCK_CI").is_none(), "groff is missing");
            return;
        };
        assert!(groff.status.success() && groff.stderr.is_empty(), "{}: {groff:?}", page.display());
    }
}

#[test]
fn directory_that_cannot_be_created_is_named() {
    let output = peerlock(&["man", "/dev/null/man1"]);
    assert_eq!(output.status.code(), Some(74), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/null/man1"), "{output:?}");
}

#[test]
fn version_has_program_number_and_commit() {
    let version = printed(&["--version"]);
    assert!(version.starts_with("peerlock 0.") && version.contains('('), "{version}");
}

#[test]
fn command_has_the_names_of_other_programs() {
    for (alias, name) in [("list", "ls"), ("status", "doctor"), ("lock", "run"), ("unlock", "release")] {
        assert_eq!(printed(&[alias, "--help"]), printed(&[name, "--help"]), "{alias}");
        assert!(!printed(&["--help"]).contains(&format!("  {alias}")), "{alias} is hidden");
    }
    assert_eq!(printed(&["version"]), printed(&["--version"]));
}

#[test]
fn mistyped_word_gets_a_suggestion() {
    for (typed, expected) in [
        ("rnu ls -- true", Some("'run'")),
        ("shwo r", Some("'show'")),
        ("relase r", Some("a similar subcommand exists: 'release'")),
        ("lst", Some("'ls'")),
        ("secret shwo", Some("'show'")),
        ("wxyz r", None),
        ("run --tyr r -- true", Some("'--try'")),
        ("run --nothing-like-it r -- true", None),
        ("run r true", Some("after `--`")),
        ("lock r true", Some("after `--`")),
    ] {
        let output = peerlock(&typed.split(' ').collect::<Vec<_>>());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{typed}: {stderr}");
        assert!(expected.is_none_or(|expected| stderr.contains(expected)), "{typed}: {stderr}");
        assert!(
            expected.is_some() || !stderr.contains("similar") && !stderr.contains("as a value"),
            "{typed}: {stderr}"
        );
    }
}

#[test]
fn arguments_that_are_not_text_are_refused() {
    for words in [&[&b"run"[..], b"\xff", b"--", b"true"][..], &[b"show", b"\xff", b"--jsn"], &[b"\xff", b"x"]] {
        let words = words.iter().map(|word| OsStr::from_bytes(word));
        let output = Command::new(env!("CARGO_BIN_EXE_peerlock")).args(words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(64), "{output:?}");
    }
}

/// As with other output, a closed pipe is no error and a full disk is one.
#[test]
fn help_into_a_closed_pipe_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
    let output = command.arg("--help").stdout(writer).stderr(Stdio::piped()).output().expect("it runs");
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    let full = fs::File::options().write(true).open("/dev/full").expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
    let output = command.arg("--help").stdout(full).stderr(Stdio::piped()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(74));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
}

#[test]
fn architecture_diagram_shows_every_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let drawn = page.split("```").find(|block| block.contains(" supervise ") && block.contains('│'));
    let is = drawn.expect("ARCHITECTURE.md has a diagram");
    let entries = ["crates", "lab"].map(|part| fs::read_dir(root.join(part)).expect("the crates"));
    for entry in entries.into_iter().flatten().map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("a name");
        if !entry.path().join("Cargo.toml").exists() {
            continue;
        }
        let is_there = is.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
        assert!(is_there, "{name} is not in the diagram");
    }
}

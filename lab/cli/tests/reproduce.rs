//! `peerlock-lab reproduce`.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use assert_cmd::Command;
use tempfile::tempdir;

fn reproduce(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("peerlock-lab").unwrap();
    command.arg("reproduce").args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn figures_are_listed() {
    let run = reproduce(&["--list"]).assert().success();
    let list = text(&run.get_output().stdout);
    assert!(list.starts_with("fair-k/fig2 "), "{list}");
    assert!(list.contains("fair-k/fig5") && list.contains("beyond/"), "{list}");
    let run = reproduce(&["--list", "beyond"]).assert().success();
    assert!(!text(&run.get_output().stdout).contains("fair-k/"));
}

#[test]
fn unknown_figure_is_a_usage_error_with_suggestions() {
    let run = reproduce(&["fig4"]).assert().code(64);
    assert_eq!(
        text(&run.get_output().stderr),
        "peerlock-lab: there is no figure \"fig4\"; did you mean one of fair-k/fig4, e2e/fig4a, e2e/fig4b, e2e/fig4c?\n"
    );
}

#[test]
fn unwritable_directory_is_refused_at_once() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let run = reproduce(&["fair-k/fig4", "--quick", "--out"]).arg(&file).assert().code(73);
    let error = text(&run.get_output().stderr);
    assert!(
        error.starts_with("peerlock-lab: cannot write ") && error.contains("choose another directory with --out"),
        "{error}"
    );
}

#[test]
fn finished_figure_is_not_run_again() {
    let out = tempdir().unwrap();
    let run = |resumed: &str| {
        let run = reproduce(&["fair-k/fig4", "--quick", "--out"]).arg(out.path()).assert().success();
        let output = run.get_output();
        assert_eq!(text(&output.stderr), "", "no progress bar without a terminal");
        let page = out.path().join("report.html");
        let expected = format!("{resumed}{}: 6 of 6 published numbers and promises are as claimed\n", page.display());
        assert_eq!(text(&output.stdout), expected);
    };
    run("");
    run("resumed: 4 of 4 points were already there\n");
    let run = std::fs::read_to_string(out.path().join("run.toml")).unwrap();
    assert!(
        run.contains("quick = true\n") && run.contains("commit = \"") && run.contains("fair-k/fig4 --quick"),
        "{run}"
    );
    assert!(out.path().join("fair-k/fig4.svg").exists());
}

/// The name of the output directory is not UTF-8.
#[test]
fn figure_without_claims_is_drawn() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let out = dir.path().join(OsStr::from_bytes(b"out\xff"));
    let mine = "title = \"Waits\"\norigin = \"Our own\"\nshows = \"Waits.\"\n\
                [x]\nparameter = \"slots\"\nvalues = [1, 2]\nlabel = \"slots\"\nscale = \"linear\"\n\
                [base]\npeers = 5\nentries = 5\nwarm-up = 1\ntrials = 2\n\
                [[panel]]\ntitle = \"LAN\"\nlabel = \"mean wait, s\"\nscale = \"linear\"\nmetric = \"whole-mean\"\n\
                [[curve]]\nlabel = \"Fair-K\"\nprotocol = \"fair-k\"\n";
    std::fs::write(&file, mine).unwrap();
    let run = reproduce(&["--out"]).arg(&out).arg(&file).assert().success();
    let page = out.join("report.html");
    assert_eq!(text(&run.get_output().stdout), format!("{}: nothing to compare with\n", page.display()));
}

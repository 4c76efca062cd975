//! `acquire`, `renew` and `release`, as a script uses them.

use crate::common::{Dir, Running};

/// A script with `peerlock` on its path.
fn script(dir: &Dir, lines: &str) -> (i32, String, String) {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_peerlock")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", lines])
        .env("PEERLOCK_DATA_DIR", dir.path("data"))
        .env("PEERLOCK_RUNTIME_DIR", dir.path(""))
        .env("PATH", path);
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Running::start(&mut shell).ends()
}

#[test]
fn a_script_acquires_renews_and_releases() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let (code, out, said) = script(
        &dir,
        "grant=$(peerlock acquire --ttl 1h \"it's\") || exit\n\
         eval \"$grant\"\n\
         echo $PEERLOCK_NAME $PEERLOCK_SLOT; test $PEERLOCK_FENCING -gt 0 && test -z \"$PEERLOCK_TOKEN\" \
         || exit\n\
         peerlock acquire --try --ttl 1s \"it's\"; echo $?\n\
         peerlock renew --json \"it's\" | tr -d 0-9\n\
         peerlock release \"it's\"; echo $?\n\
         peerlock release \"it's\"; echo $?\n\
         peerlock acquire --try --ttl 1h --json \"it's\" | head -c 1",
    );
    assert_eq!(code, 0, "{said}");
    let expected = ["it's 0", "75", "{\"ttl_ms\":}", "0", "76", "{"];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{said}");
}

#[test]
fn what_nobody_renews_goes_on_to_others() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let acquire = |ttl: &str| {
        let (code, out, said) = script(&dir, &format!("peerlock acquire --json -n 1 --ttl {ttl} r"));
        assert_eq!(code, 0, "{said}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["fencing"].as_u64().unwrap()
    };
    let first = acquire("200ms");
    assert_eq!(acquire("1h"), first + 1);
}

#[test]
fn who_does_not_say_which_is_asked() {
    let dir = Dir::new();
    for (lines, words) in [
        ("peerlock renew r", "PEERLOCK_GRANT"),
        ("peerlock release r", "PEERLOCK_GRANT"),
        ("peerlock acquire r", "--ttl"),
        ("PEERLOCK_AGENT=nowhere peerlock ls", "PEERLOCK_AGENT"),
    ] {
        let (code, _, said) = script(&dir, lines);
        assert_eq!(code, 64, "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// `peerlock ls | head -0`: the reader has seen enough, and that is no error.
#[test]
fn a_pipe_that_is_closed_is_no_error() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let (_, out, said) = script(&dir, "{ sleep 0.1; peerlock ls; echo code $? >&2; } | true");
    assert_eq!((out.as_str(), said.as_str()), ("", "code 0\n"));
}

/// The name of the grant is gone, and with it the only way to give it back: so that is done before the command fails.
#[test]
fn a_grant_that_could_not_be_printed_is_given_back() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    for lines in [
        "peerlock acquire --ttl 1h r >/dev/full; echo code $? >&2",
        "{ sleep 0.1; peerlock acquire --ttl 1h r; echo code $? >&2; } | true",
    ] {
        let (_, _, said) = script(&dir, lines);
        assert!(said.ends_with("code 74\n"), "{lines}: {said}");
        let (code, _, said) = script(&dir, "peerlock acquire --try --ttl 200ms r");
        assert_eq!(code, 0, "{lines}: {said}");
        dir.run("r", "true").ends_with(0);
    }
}

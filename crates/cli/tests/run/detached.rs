//! `acquire`, `renew` and `release` in scripts.

use crate::common::{Dir, Running, with_program_on_path};

fn script(dir: &Dir, lines: &str) -> (i32, String, String) {
    let mut shell = with_program_on_path(dir.in_environment("sh"));
    Running::start(shell.args(["-c", lines])).ends()
}

#[test]
fn script_acquires_renews_and_releases() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let (code, out, stderr) = script(
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
    assert_eq!(code, 0, "{stderr}");
    let expected = ["it's 0", "75", "{\"ttl_ms\":}", "it's is released", "0", "76", "{"];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{stderr}");
}

#[test]
fn expired_grant_is_granted_again() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let acquire = |ttl: &str| {
        let (code, out, stderr) = script(&dir, &format!("peerlock acquire --json -n 1 --ttl {ttl} r"));
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["fencing"].as_u64().unwrap()
    };
    let first = acquire("200ms");
    assert_eq!(acquire("1h"), first + 1);
}

#[test]
fn missing_arguments_are_named() {
    let dir = Dir::new();
    for (lines, words) in [
        ("peerlock renew r", "PEERLOCK_GRANT"),
        ("peerlock release r", "PEERLOCK_GRANT"),
        ("peerlock acquire r", "--ttl"),
        ("PEERLOCK_AGENT=nowhere peerlock ls", "PEERLOCK_AGENT"),
    ] {
        let (code, _, stderr) = script(&dir, lines);
        assert_eq!(code, 64, "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn closed_pipe_is_no_error() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let (_, out, stderr) = script(&dir, "{ sleep 0.1; peerlock ls; echo code $? >&2; } | true");
    assert_eq!((out.as_str(), stderr.as_str()), ("", "code 0\n"));
}

/// Without the grant ID, no later command can release the slot.
#[test]
fn unprinted_grant_is_released() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    for lines in [
        "peerlock acquire --ttl 1h r >/dev/full; echo code $? >&2",
        "{ sleep 0.1; peerlock acquire --ttl 1h r; echo code $? >&2; } | true",
    ] {
        let (_, _, stderr) = script(&dir, lines);
        assert!(stderr.ends_with("code 74\n"), "{lines}: {stderr}");
        let (code, _, stderr) = script(&dir, "peerlock acquire --try --ttl 200ms r");
        assert_eq!(code, 0, "{lines}: {stderr}");
        dir.run("r", "true").ends_with(0);
    }
}

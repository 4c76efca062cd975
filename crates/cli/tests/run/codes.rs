//! A command under `run` behaves as without it: exit code, environment, input and output.

use std::io::Write as _;
use std::process::Stdio;

use crate::common::{Dir, Running};

#[test]
fn exit_code_is_that_of_the_command() {
    let dir = Dir::new();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137), ("kill $$", 143)] {
        let mut run = dir.run("r", script);
        run.ends_with(code);
        assert_eq!(run.notifies("ended"), code, "{script}");
    }
}

#[test]
fn unrunnable_program_has_the_exit_code_of_a_shell() {
    let dir = Dir::new();
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126), ("", 127)] {
        let mut command = dir.peerlock("run r --");
        let mut run = Running::start(command.arg(program));
        let (ended, _, stderr) = run.ends();
        assert_eq!(ended, code, "{stderr}");
        assert!(stderr.contains(&format!("cannot run {program:?}")), "{stderr}");
    }
}

#[test]
fn command_gets_its_grant_in_the_environment() {
    let dir = Dir::new();
    let mut run = dir.run("-n 2 two", "env | grep ^PEERLOCK_ | sort; date +%s");
    let out = run.ends_with(0);
    let value = |name: &str| out.lines().find_map(|line| line.strip_prefix(&format!("PEERLOCK_{name}="))).unwrap();
    assert_eq!(value("NAME"), "two");
    let granted = run.notifies("granted");
    assert_eq!(value("FENCING"), granted["fencing"].to_string());
    assert_eq!(value("SLOT"), granted["slot"].to_string());
    let now: f64 = out.lines().last().unwrap().parse().unwrap();
    let deadline: f64 = value("DEADLINE").parse().unwrap();
    assert!(deadline > now && deadline < now + 30.0, "{deadline} at {now}");
}

#[test]
fn nested_run_does_not_wait_for_its_own_slot() {
    let dir = Dir::new();
    let inner = |options: &str| format!("\"$PEERLOCK\" run {options} -- echo ran; exit 0");
    let run = |script: &str| {
        let mut command = dir.peerlock("run outer -- sh -c");
        let (code, out, stderr) =
            Running::start(command.arg(script).env("PEERLOCK", env!("CARGO_BIN_EXE_peerlock"))).ends();
        assert_eq!(code, 0, "{stderr}");
        (out, stderr)
    };
    let (out, stderr) = run(&inner("outer"));
    assert!(out.is_empty() && stderr.contains("would wait for itself"), "{out}{stderr}");
    let (out, stderr) = run("\"$PEERLOCK\" run other -- sh -c '\"$PEERLOCK\" run outer -- echo ran'; exit 0");
    assert!(out.is_empty() && stderr.contains("would wait for itself"), "{out}{stderr}");
    assert_eq!(run(&inner("another")).0, "ran\n");
    let (out, stderr) = run(&inner("--try outer"));
    assert!(out.is_empty() && stderr.contains("was not acquired"), "{out}{stderr}");
}

#[test]
fn run_adds_nothing_to_input_and_output() {
    let dir = Dir::new();
    let mut command = dir.peerlock("run r -- cat");
    let mut process = command.stdin(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(b"one\ntwo").unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"one\ntwo");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "not a terminal");
    assert!(output.status.success());
}

#[test]
fn invalid_options_exit_with_64_and_run_nothing() {
    let dir = Dir::new();
    for (options, words) in [
        ("r", "COMMAND"),
        ("-n 0 r -- touch run", "0 slots"),
        ("-w soon r -- touch run", "not a duration"),
        ("-w 1s --try r -- touch run", "cannot be used with"),
        ("--ttl 10ms r -- touch run", "cannot be kept"),
        ("--ttl 10s --grace 5s r -- touch run", "cannot be kept"),
        ("--on-lost other r -- touch run", "other"),
        ("--agent /a/b r -- touch run", "cannot be used with"),
        ("--join 127.0.0.1:1 r -- touch run", "cannot be used with"),
        ("-E 256 r -- touch run", "256"),
        ("r touch run", "after `--`: peerlock run NAME -- touch"),
        ("--lable me r -- touch run", "'--label'"),
    ] {
        let mut command = dir.peerlock(&format!("run --listen 127.0.0.1:0 --alone {options}"));
        let (code, _, stderr) = Running::start(command.current_dir(dir.path("."))).ends();
        assert_eq!(code, 64, "{options}: {stderr}");
        assert!(stderr.contains(words), "{options}: {stderr}");
    }
    let (_agent, _) = dir.agent("");
    let name = "x".repeat(256);
    for (options, words) in [
        ("-n 0 r", "0 slots"),
        ("--ttl 10ms r", "cannot be kept"),
        ("--ttl 10s --grace 5s r", "cannot be kept"),
        (name.as_str(), "longer than 255 bytes"),
    ] {
        let mut command = dir.peerlock(&format!("run {options} -- touch run"));
        let (code, _, stderr) = Running::start(command.current_dir(dir.path("."))).ends();
        assert_eq!(code, 64, "{options}: {stderr}");
        assert!(stderr.contains(words), "{options}: {stderr}");
    }
    for (option, text, words) in [
        ("r --label", "a\u{1b}[31m", "control characters"),
        ("--label x", "back\u{200b}up", "cannot be seen"),
        ("--label x", " backup", "white space"),
        ("r --join", "", "--join"),
    ] {
        let options = format!("run {option}");
        let mut command = dir.peerlock(&options);
        let (code, _, stderr) = Running::start(command.arg(text).args(["--", "touch", "run"])).ends();
        assert_eq!(code, 64, "{text:?}: {stderr}");
        assert!(stderr.contains(words), "{text:?}: {stderr}");
    }
    // Without --alone or --join, this would silently be a cluster of its own.
    for option in ["--no-agent", "--listen 127.0.0.1:0", "--secret-file x", "--data-dir x"] {
        let (code, _, stderr) = Running::start(&mut dir.peerlock(&format!("run {option} r -- touch run"))).ends();
        assert_eq!(code, 64, "{option}: {stderr}");
        assert!(stderr.contains("--alone"), "{option}: {stderr}");
    }
    for option in ["--join 127.0.0.1:1", "--listen 127.0.0.1:0", "--secret-file x", "--alone"] {
        let mut command = dir.peerlock(&format!("run --agent /a/b {option} r -- true"));
        let (code, _, stderr) = Running::start(&mut command).ends();
        assert_eq!(code, 64, "{option}: {stderr}");
    }
    assert!(!dir.path("run").exists());
}

#[test]
fn agent_with_an_unusable_socket_or_filter_is_refused() {
    let dir = Dir::new();
    let far = dir.path(&"a".repeat(108));
    for (http, log, words) in [(far, "info", "too long for a socket"), (dir.socket(), "][garbage", "PEERLOCK_LOG")] {
        let mut command = dir.peerlock(&format!("agent --listen 127.0.0.1:0 --http unix:{}", http.display()));
        let (code, _, stderr) = Running::start(command.env("PEERLOCK_LOG", log)).ends();
        assert_eq!(code, 64, "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn unusable_files_are_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = Dir::new();
    let secret = dir.path("secret");
    std::fs::write(&secret, "0123456789abcdef".repeat(4)).unwrap();
    for (mode, code, words) in [(0o644, 66, "chmod 600"), (0o600, 0, "")] {
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(mode)).unwrap();
        let (ended, _, stderr) = dir.peer(&format!("--alone --secret-file {} r", secret.display()), "true").ends();
        assert_eq!(ended, code, "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    let (code, _, stderr) = dir.peer("--alone --secret-file /no/such/file r", "true").ends();
    assert_eq!(code, 66, "{stderr}");
    let (code, _, stderr) = dir.peer("--alone --data-dir /proc/no/such r", "true").ends();
    assert_eq!(code, 73, "{stderr}");
    // With an agent, --data-dir is no option of `run`, so the advice names the variables.
    for variable in ["PEERLOCK_DATA_DIR", "PEERLOCK_RUNTIME_DIR"] {
        let mut command = dir.peerlock("run r -- true");
        let (code, _, stderr) = Running::start(command.env(variable, "/proc/no/such")).ends();
        assert!(
            code == 73 && stderr.contains(variable) && !stderr.contains("--data-dir"),
            "{variable}: {code} {stderr}"
        );
    }
}

/// Each attempt ends within its own limit, not after the 30 s of a start.
#[test]
fn dead_agent_is_reported_alike_by_option_and_variable() {
    let dir = Dir::new();
    let dead = dir.path("none.sock");
    let each = "for options in --try '-w 2s' ''; do \"$PEERLOCK\" run $options r -- true; echo $?; done";
    let script = |agent: &str| {
        let mut command = dir.in_environment("sh");
        command.args(["-c", &each.replace("$options", &format!("{agent} $options"))]);
        command.env("PEERLOCK", env!("CARGO_BIN_EXE_peerlock"));
        command
    };
    let (_, by_option, stderr) = Running::start(&mut script(&format!("--agent {}", dead.display()))).ends();
    assert_eq!(by_option, "69\n69\n69\n", "{stderr}");
    let by_variable = Running::start(script("").env("PEERLOCK_AGENT", &dead)).ends();
    assert_eq!((by_variable.1, by_variable.2), (by_option, stderr));
}

#[test]
fn program_not_found_is_127_also_if_stderr_is_full() {
    let dir = Dir::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = dir.peerlock("run r -- /no/such/program").stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(127));
}

//! Replacing the cluster secret while agents run and hold slots.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Dir, Running, eventually};

impl Dir {
    fn ends(&self, arguments: &str) -> (i32, String) {
        let (code, out, err) = Running::start(&mut self.peerlock(arguments)).ends();
        (code, out + &err)
    }

    fn does(&self, arguments: &str) -> String {
        let (code, output) = self.ends(arguments);
        assert_eq!(code, 0, "{arguments}: {output}");
        output
    }

    fn secret_view(&self) -> Value {
        serde_json::from_str(&self.does("secret show --json")).unwrap()
    }

    /// Waits until the agent accepts this many secrets, and `behind` of the `others` connected hosts have not proved
    /// the first.
    fn accepts(&self, secrets: usize, behind: usize, others: usize) {
        eventually("the proved secrets", || {
            let observed = self.secret_view();
            let len = |field: &str| observed[field].as_array().map(Vec::len);
            let peers: Value = serde_json::from_str(&self.does("peers --json")).unwrap();
            let up = peers.as_array()?.iter().filter(|peer| peer["up"] == true && peer["is_me"] == false).count();
            (len("fingerprints") == Some(secrets) && len("behind") == Some(behind) && up == others).then_some(())
        });
    }

    fn copy_secret_to(&self, other: &Self) {
        fs::create_dir_all(other.path("data")).unwrap();
        fs::copy(self.path("data/secret"), other.path("data/secret")).unwrap();
    }
}

#[test]
fn secret_rotation_keeps_jobs_and_members_with_the_file() {
    let [one, two, three] = std::array::from_fn(|_| Dir::new());
    let (first, address) = one.agent("");
    [&two, &three].iter().for_each(|other| one.copy_secret_to(other));
    let (second, _) = two.agent(&format!("--join {address}"));
    let (mut third, _) = three.agent(&format!("--join {address}"));
    [&one, &two, &three].iter().for_each(|machine| machine.accepts(1, 0, 2));
    let mut command = two.peerlock("run long -- sh -c");
    let script = "echo > in; while ! test -e go; do sleep 0.01; done; exit 7";
    let mut job = Running::start(command.arg(script).current_dir(two.path("")));
    two.written("in");
    let all_are_served = || {
        for machine in [&one, &two, &three] {
            machine.does("run r -- true");
        }
    };

    let good = fs::read(one.path("data/secret")).unwrap();
    fs::write(one.path("data/secret"), "guess").unwrap();
    first.send(Signal::SIGHUP);
    first.line(|line| line.contains("the previous ones remain in use").then_some(()));
    let (code, output) = one.ends("secret reload");
    assert!(code == 69 && output.contains("can be guessed"), "{code} {output}");
    fs::write(one.path("data/secret"), good).unwrap();
    assert!(!one.does("secret reload").is_empty());

    let output = one.does("secret rotate");
    assert!(output.contains("secret reload") && output.contains("secret finish"), "{output}");
    one.accepts(2, 2, 2);
    all_are_served();
    let (code, output) = one.ends("secret rotate");
    assert!(code == 64 && output.contains("already"), "{code} {output}");
    let (code, output) = one.ends("secret finish");
    assert!(code == 75 && output.contains("has proved only the old one"), "{code} {output}");
    assert!(one.ends("doctor").1.contains("proved only the old one"));

    third.send(Signal::SIGTERM);
    third.ends_with(0);
    one.copy_secret_to(&two);
    second.send(Signal::SIGHUP);
    [&one, &two].iter().for_each(|machine| machine.accepts(2, 0, 1));
    let (code, output) = one.ends("secret finish");
    assert!(code == 75 && output.contains("is not connected"), "{code} {output}");
    // The third host returns with the old secret, which is still accepted.
    let (mut third, _) = three.agent("");
    one.accepts(2, 1, 2);
    all_are_served();
    assert!(one.does("secret show").contains("(old)"));
    third.send(Signal::SIGTERM);
    third.ends_with(0);
    for machine in [&one, &two] {
        assert!(machine.does("secret finish --force").contains("no longer accepted"));
        machine.accepts(1, 0, 1);
    }
    let (third, _) = three.agent("");
    third.line(|line| line.contains("the cluster secrets differ").then_some(()));
    assert_eq!(three.ends("run -w 1s r -- true").0, 69);
    one.accepts(1, 0, 1);
    one.copy_secret_to(&three);
    assert!(!three.does("secret reload").is_empty());
    [&one, &two, &three].iter().for_each(|machine| machine.accepts(1, 0, 2));
    all_are_served();
    assert!(one.does("secret finish").contains("nothing to finish"));
    fs::write(two.path("go"), "").unwrap();
    job.ends_with(7);
}

/// Two hosts that do not vote need no link, so neither knows which secret the other uses.
#[test]
fn host_without_a_link_has_an_unknown_secret() {
    let [one, two, three] = std::array::from_fn(|_| Dir::new());
    let (_first, address) = one.agent("");
    let peers: Value = serde_json::from_str(&one.does("peers --json")).unwrap();
    one.does(&format!("voters --set {}", peers[0]["peer"].as_str().unwrap()));
    [&two, &three].iter().for_each(|other| one.copy_secret_to(other));
    let (_second, _) = two.agent(&format!("--join {address}"));
    let (_third, _) = three.agent(&format!("--join {address}"));
    [&one, &two, &three].iter().for_each(|machine| machine.accepts(1, 0, 2));
    one.does("secret rotate");
    one.copy_secret_to(&two);
    two.does("secret reload");
    one.accepts(2, 1, 2);
    two.accepts(2, 0, 2);
    assert!(two.does("secret show").contains("? (no link from here"));
    let (code, output) = two.ends("secret finish");
    assert!(code == 75 && output.contains("has no link with this host"), "{code} {output}");
    let (code, output) = one.ends("secret finish");
    assert!(code == 75 && output.contains("has proved only the old one"), "{code} {output}");
    one.copy_secret_to(&three);
    three.does("secret reload");
    one.accepts(2, 0, 2);
    one.does("secret finish");
    for other in [&two, &three] {
        let (code, output) = other.ends("secret finish");
        assert!(code == 75 && output.contains("--force"), "{code} {output}");
        assert_eq!(other.secret_view()["fingerprints"].as_array().map(Vec::len), Some(2), "nothing is changed");
    }
    for other in [&two, &three] {
        other.does("secret finish --force");
        other.accepts(1, 0, 2);
        assert_eq!(fs::read_to_string(other.path("data/secret")).unwrap().lines().count(), 1);
    }
    [&one, &two, &three].iter().for_each(|machine| assert!(machine.does("run r -- echo ran").contains("ran")));
}

#[test]
fn secret_commands_without_an_agent_edit_the_file() {
    let dir = Dir::new();
    dir.secret("one");
    let file = || fs::read_to_string(dir.path("data/secret")).unwrap();
    let before = file();
    assert_eq!(dir.ends("secret show").0, 69);
    assert_eq!(dir.ends("secret reload").0, 69);
    assert_eq!(dir.ends("secret show --agent 127.0.0.1:9").0, 64);
    dir.does("secret rotate");
    assert!(file().ends_with(&before) && file().lines().count() == 2, "{}", file());
    let (code, output) = dir.ends("secret finish");
    assert!(code == 75 && output.contains("No agent"), "{code} {output}");
    dir.does("secret finish --force");
    assert!(file().lines().count() == 1 && file() != before, "{}", file());
    assert_eq!(dir.ends("secret rotate --secret-file nowhere").0, 66);
    assert!(dir.started().is_none(), "no agent is started");
}

#[test]
fn sighup_reloads_the_token() {
    let dir = Dir::new();
    let token = |text: &str| {
        fs::write(dir.path("token"), text).unwrap();
        fs::set_permissions(dir.path("token"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    };
    token("0123456789abcdef");
    let (agent, _) = dir.agent(&format!("--http 127.0.0.1:0 --token-file {}", dir.path("token").display()));
    let at = agent.line(|line| Some(line.split("http://").nth(1)?.split('"').next()?.to_owned()));
    let asks = |file: &str| {
        let arguments = format!("ls --agent {at} --token-file {}", dir.path(file).display());
        Running::start(&mut dir.peerlock(&arguments)).ends().0
    };
    fs::copy(dir.path("token"), dir.path("old")).unwrap();
    assert_eq!(asks("token"), 0);
    token("fedcba9876543210");
    agent.send(Signal::SIGHUP);
    agent.line(|line| line.contains("reloaded secret and token").then_some(()));
    assert_eq!((asks("token"), asks("old")), (0, 77));
}

#[test]
fn secret_new_writes_a_file_once() {
    let dir = Dir::new();
    let path = dir.path("etc/secret");
    let new = || Running::start(&mut dir.peerlock(&format!("secret new {}", path.display()))).ends();
    let (code, out, output) = new();
    assert_eq!(code, 0, "{output}");
    assert!(out.contains("Copy the file to every other machine") && out.contains(&path.display().to_string()), "{out}");
    let made = std::fs::read_to_string(&path).unwrap();
    assert!(made.trim().len() == 64 && !out.contains(made.trim()), "{out}");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap()) & 0o777, 0o600);
    let (code, _, output) = new();
    assert!(code == 73 && output.contains("secret rotate"), "{code} {output}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), made, "the file is unchanged");
    let (_agent, _) = dir.agent(&format!("--secret-file {}", path.display()));
    let missing = dir.path("missing");
    let other = Dir::new();
    let mut agent = other.peerlock(&format!("agent --listen 127.0.0.1:0 --secret-file {}", missing.display()));
    let (code, _, output) = Running::start(&mut agent).ends();
    assert!(code == 66 && output.contains("peerlock secret new"), "{code} {output}");
}

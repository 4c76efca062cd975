//! Processes under test, which are killed at the end of the test in any case.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::dir::line;
pub use crate::dir::{Dir, eventually};
use crate::secret::secret_of;

impl Dir {
    /// Returns a command of peerlock that uses this directory, and no default path of the machine.
    pub fn peerlock(&self, arguments: &str) -> Command {
        let mut command = self.in_environment(env!("CARGO_BIN_EXE_peerlock"));
        command.args(arguments.split_whitespace());
        command
    }

    /// Returns a command of any program, in the environment of [`Dir::peerlock`].
    pub fn in_environment(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("PEERLOCK_DATA_DIR", self.path("data")).env("PEERLOCK_RUNTIME_DIR", self.path(""));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn peer(&self, options: &str, script: &str) -> Running {
        self.run(&format!("--listen 127.0.0.1:0 --no-agent {options}"), script)
    }

    /// Starts a `run` that holds its slot until the file `go` exists. Returns when its command runs.
    pub fn holder(&self, options: &str) -> Running {
        let script = format!("echo > {}; {}", self.path("held").display(), self.until("go"));
        let holder = self.run(options, &script);
        self.written("held");
        holder
    }

    pub fn run(&self, options: &str, script: &str) -> Running {
        Running::start(self.peerlock(&format!("run --json {options}")).args(["--", "sh", "-c", script]))
    }

    pub fn secret(&self, name: &str) {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        fs::create_dir_all(self.path("data")).unwrap();
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(self.path("data/secret"));
        file.as_mut().unwrap().write_all(secret_of(name).as_bytes()).unwrap();
    }

    /// Returns the options to join this directory's agent, which is at `address`.
    pub fn join(&self, address: &str) -> String {
        format!("--secret-file {} --join {address}", self.path("data/secret").display())
    }

    pub fn started(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.path("data/agent.lock")).ok()?;
        let (pid, rest) = text.split_once('\n')?;
        rest.starts_with("ends by itself").then(|| Pid::from_raw(pid.parse().unwrap()))
    }

    pub fn until(&self, file: &str) -> String {
        format!("while ! test -e {}; do sleep 0.01; done", self.path(file).display())
    }

    pub fn touch(&self, file: &str) {
        fs::write(self.path(file), "").unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.path("agent.sock")
    }

    pub fn agent(&self, options: &str) -> (Running, String) {
        let socket = self.socket();
        let options = format!("agent --listen 127.0.0.1:0 --http unix:{} {options}", socket.display());
        let agent = Running::start(&mut self.peerlock(&options));
        let line = agent.line(|line| line.contains(" peer started host=").then(|| line.to_owned()));
        let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        agent.line(|line| line.contains("ready").then_some(()));
        (agent, address)
    }

    pub fn agent_answers(&self) {
        eventually("an agent", || UnixStream::connect(self.socket()).ok());
    }

    pub fn show(&self, name: &str) -> Value {
        let output = self.peerlock(&format!("show --json {name}")).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    pub fn written(&self, name: &str) -> String {
        line(&self.path(name))
    }
}

pub fn wrapped(before: &[&str], command: &Command) -> Command {
    let mut whole = Command::new(before[0]);
    whole.args(&before[1..]).arg(command.get_program()).args(command.get_args());
    whole.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    whole.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    whole
}

pub fn with_shell(lines: &str, command: &Command) -> Command {
    wrapped(&["sh", "-c", &format!("{lines}; exec \"$@\""), "sh"], command)
}

pub fn with_program_on_path(mut command: Command) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_peerlock")).parent().unwrap();
    command.env("PATH", format!("{}:{}", program.display(), std::env::var("PATH").unwrap()));
    command
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Some(agent) = self.started() {
            let _gone = kill(agent, Signal::SIGKILL);
        }
    }
}

pub struct Running {
    process: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut process = command.spawn().unwrap();
        let (out, err) = (Arc::default(), Arc::default());
        let mut readers = Vec::new();
        if let Some(stream) = process.stdout.take() {
            readers.push(listen(stream, &out));
        }
        if let Some(stream) = process.stderr.take() {
            readers.push(listen(stream, &err));
        }
        Self { process, out, err, readers }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    pub fn send(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn line<T>(&self, mut find: impl FnMut(&str) -> Option<T>) -> T {
        let observed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("the line", || self.err.lock().unwrap().lines().find_map(&mut find))
        }));
        observed.unwrap_or_else(|_| panic!("it printed only:\n{}", self.err.lock().unwrap()))
    }

    pub fn notifies(&self, name: &str) -> Value {
        self.line(|line| serde_json::from_str::<Value>(line).ok()?.get(name).cloned())
    }

    pub fn waits_behind(&self, ahead: u64) {
        self.line(|line| {
            let object = serde_json::from_str::<Value>(line).ok()?;
            (object["waiting"]["ahead"] == ahead).then_some(())
        });
    }

    pub fn stdout(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    pub fn stderr(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits for the exit. Returns exit code (or negative signal), standard output and standard error.
    pub fn ends(&mut self) -> (i32, String, String) {
        let status = eventually("its end", || self.process.try_wait().unwrap());
        // A child process may still have the output open: returns the output so far.
        eventually("the end of its output", || self.readers.iter().all(|reader| reader.is_finished()).then_some(()));
        let code = status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap();
        (code, self.out.lock().unwrap().clone(), self.err.lock().unwrap().clone())
    }

    pub fn ends_with(&mut self, expected: i32) -> String {
        let (code, out, err) = self.ends();
        assert_eq!(code, expected, "{out}\n{err}");
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

fn listen(stream: impl Read + Send + 'static, into: &Arc<Mutex<String>>) -> std::thread::JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while let Ok(1..) = lines.read_until(b'\n', &mut line) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

pub fn is_gone(pid: &str) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')),
        Err(_) => true,
    }
}

//! Starts child processes and sends them commands.

use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Error;
use crate::child::SECRET;

pub const PATIENCE: Duration = Duration::from_secs(120);
pub const FAILED: &str = "failed ";
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub struct Launcher<'a> {
    pub program: &'a Path,
    pub secret: String,
}

/// A running child, killed on drop.
pub struct Worker {
    system: String,
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Launcher<'_> {
    pub fn command(&self, part: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.arg("bench-child").args(part).env(SECRET, &self.secret).kill_on_drop(true);
        // Ctrl-C must only reach the parent: a child that exits first would be reported as failed.
        command.process_group(0);
        command
    }

    pub async fn start(&self, part: &[&str]) -> Result<(Worker, Vec<String>), Error> {
        let system = format!("process `{}`", part.join(" "));
        let failed = |why: &str| Error::Child { system: system.clone(), why: why.to_owned() };
        let mut child = self.command(part).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let commands = child.stdin.take().ok_or_else(|| failed("it has no standard input"))?;
        let answers = child.stdout.take().ok_or_else(|| failed("it has no standard output"))?;
        let mut worker = Worker { system, child, commands, answers: BufReader::new(answers).lines() };
        let lines = worker.answer().await?;
        Ok((worker, lines))
    }
}

impl Worker {
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns why it exited, if it did: its error, or the exit status.
    async fn ended(&mut self) -> Option<Error> {
        let status = self.child.try_wait().ok().flatten()?;
        while let Ok(Ok(Some(line))) = timeout(LOOK_EVERY, self.answers.next_line()).await {
            if let Some(why) = line.strip_prefix(FAILED) {
                return Some(self.failed(why));
            }
        }
        Some(self.failed(&format!("it exited ({status})")))
    }

    pub async fn kill(mut self) -> Result<(), Error> {
        Ok(self.child.kill().await?)
    }

    pub async fn ask(&mut self, what: &str) -> Result<Vec<String>, Error> {
        self.send(what).await?;
        self.answer().await
    }

    pub async fn send(&mut self, what: &str) -> Result<(), Error> {
        let written = self.commands.write_all(format!("{what}\n").as_bytes()).await;
        written.map_err(|error| self.failed(&error.to_string()))
    }

    pub async fn answer(&mut self) -> Result<Vec<String>, Error> {
        self.answer_within(PATIENCE).await
    }

    pub async fn answer_within(&mut self, patience: Duration) -> Result<Vec<String>, Error> {
        let answer = timeout(patience, self.read()).await;
        answer.unwrap_or_else(|_| Err(self.failed(&format!("no answer for {patience:?}"))))
    }

    async fn read(&mut self) -> Result<Vec<String>, Error> {
        let mut answer = Vec::new();
        loop {
            match self.answers.next_line().await {
                Ok(Some(line)) if line == "end" => return Ok(answer),
                Ok(Some(line)) => match line.strip_prefix(FAILED) {
                    Some(why) => return Err(self.failed(why)),
                    None => answer.push(line),
                },
                Ok(None) => return Err(self.failed("it exited")),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }

    pub fn numbers<const N: usize>(&self, answer: &[String]) -> Result<Vec<[u64; N]>, Error> {
        let line = |line: &String| {
            let numbers: Option<Vec<u64>> = line.split(' ').map(|number| number.parse().ok()).collect();
            numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| self.failed(line))
        };
        answer.iter().map(line).collect()
    }

    pub fn failed(&self, why: &str) -> Error {
        Error::Child { system: self.system.clone(), why: why.to_owned() }
    }
}

/// Waits for the answers of all workers. Fails if one of them exits, since the others may depend on it.
pub async fn answers(workers: &mut [Worker], patience: Duration) -> Result<Vec<Vec<String>>, Error> {
    let mut answers = Vec::new();
    for number in 0..workers.len() {
        let (current, later) = workers.split_at_mut(number + 1);
        let mut answer = pin!(current[number].answer_within(patience));
        answers.push(loop {
            match timeout(LOOK_EVERY, &mut answer).await {
                Ok(answer) => break answer?,
                Err(_) => {
                    for worker in &mut *later {
                        worker.ended().await.map_or(Ok(()), Err)?;
                    }
                }
            }
        });
    }
    Ok(answers)
}

pub fn first(lines: &[String]) -> &str {
    lines.first().map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const PROGRAM: &str = "#!/bin/sh\necho end\nread line\ncase $2 in dies) exit 3;; \
                           fails) echo failed the reason; exit 3;; *) exec sleep 60;; esac\n";

    async fn failure(parts: &[&str], patience: Duration) -> String {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let launcher = Launcher { program: &program, secret: String::new() };
        let mut workers = Vec::new();
        for part in parts {
            let mut worker = launcher.start(&[*part]).await.unwrap().0;
            worker.send("something").await.unwrap();
            workers.push(worker);
        }
        answers(&mut workers, patience).await.unwrap_err().to_string()
    }

    /// One test, since a program that another thread holds open for writing cannot be executed.
    #[tokio::test]
    async fn exited_worker_is_named_and_silent_worker_times_out() {
        for (parts, patience, expected) in [
            (&["waits", "waits", "dies"][..], PATIENCE, "process `dies` failed: it exited (exit status: 3)"),
            (&["waits", "fails"], PATIENCE, "process `fails` failed: the reason"),
            (&["waits"], Duration::from_millis(20), "process `waits` failed: no answer for 20ms"),
        ] {
            let error = failure(parts, patience).await;
            assert!(error.starts_with(expected), "{error}");
        }
    }
}

//! The children, as the parent sees them.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Error;
use crate::child::SECRET;

/// How children are started.
pub struct Crew<'a> {
    /// Whose hidden command they are.
    pub program: &'a Path,
    pub secret: String,
}

/// A child at work. It ends when this is dropped.
pub struct Worker {
    who: String,
    child: Child,
    told: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Crew<'_> {
    /// How a child with this part is started.
    pub fn command(&self, part: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.arg("bench-child").args(part).env(SECRET, &self.secret).kill_on_drop(true);
        command
    }

    /// Starts a child, and waits until it is ready. The second is what it says of itself.
    pub async fn start(&self, part: &[&str]) -> Result<(Worker, Vec<String>), Error> {
        let who = format!("the part `{}`", part.join(" "));
        let failed = |why: &str| Error::Child { who: who.clone(), why: why.to_owned() };
        let mut child = self.command(part).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let told = child.stdin.take().ok_or_else(|| failed("it has no standard input"))?;
        let answers = child.stdout.take().ok_or_else(|| failed("it has no standard output"))?;
        let mut worker = Worker { who, child, told, answers: BufReader::new(answers).lines() };
        let words = worker.answer().await?;
        Ok((worker, words))
    }
}

impl Worker {
    /// The number of its process, while that runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it, and returns when it is gone.
    pub async fn kill(mut self) -> Result<(), Error> {
        Ok(self.child.kill().await?)
    }

    /// Tells it something, and waits for the answer.
    pub async fn ask(&mut self, what: &str) -> Result<Vec<String>, Error> {
        self.tell(what).await?;
        self.answer().await
    }

    /// Tells it something. The answer must be waited for.
    pub async fn tell(&mut self, what: &str) -> Result<(), Error> {
        let written = self.told.write_all(format!("{what}\n").as_bytes()).await;
        written.map_err(|error| self.failed(&error.to_string()))
    }

    pub async fn answer(&mut self) -> Result<Vec<String>, Error> {
        let mut answer = Vec::new();
        loop {
            match self.answers.next_line().await {
                Ok(Some(line)) if line == "end" => return Ok(answer),
                Ok(Some(line)) => match line.strip_prefix("failed ") {
                    Some(why) => return Err(self.failed(why)),
                    None => answer.push(line),
                },
                Ok(None) => return Err(self.failed("it has ended")),
                Err(error) => return Err(self.failed(&error.to_string())),
            }
        }
    }

    /// Numbers, as many on each line as there should be.
    pub fn numbers<const N: usize>(&self, answer: &[String]) -> Result<Vec<[u64; N]>, Error> {
        let line = |line: &String| {
            let numbers: Option<Vec<u64>> = line.split(' ').map(|number| number.parse().ok()).collect();
            numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| self.failed(line))
        };
        answer.iter().map(line).collect()
    }

    /// That it did not do what it should.
    pub fn failed(&self, why: &str) -> Error {
        Error::Child { who: self.who.clone(), why: why.to_owned() }
    }
}

/// The first of the lines that a child has said.
pub fn said(words: &[String]) -> &str {
    words.first().map_or("", String::as_str)
}

//! Where an answer comes from: an option, a prompt, or a default.

use std::{
    fmt::Display,
    io::{BufRead, Write},
};

use anyhow::{Context as _, bail};

use crate::output::Usage;

/// Asks on a terminal, until the answer can be understood.
pub(super) struct Questions<R, W> {
    from: R,
    to: W,
}

impl<R: BufRead, W: Write> Questions<R, W> {
    pub(super) fn new(from: R, to: W) -> Self {
        Self { from, to }
    }

    fn ask<T, E: Display>(
        &mut self,
        question: &str,
        default: Option<&str>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> anyhow::Result<T> {
        loop {
            match default {
                Some("") => write!(self.to, "{question} [nothing]: ")?,
                Some(default) => write!(self.to, "{question} [{default}]: ")?,
                None => write!(self.to, "{question}: ")?,
            }
            self.to.flush()?;
            let mut line = String::new();
            let length = self.from.read_line(&mut line).context("cannot read")?;
            if length == 0 {
                bail!("the answers ended before the questions; nothing was written");
            }
            let answer = match (line.trim(), default) {
                ("", Some(default)) => default,
                ("", None) => continue,
                (answer, _) => answer,
            };
            match read(answer) {
                Ok(answer) => return Ok(answer),
                Err(error) => writeln!(self.to, "  {error}")?,
            }
        }
    }
}

/// The answer of an option, else to a prompt, else the default.
///
/// # Errors
/// [`Usage`] where there is none of them; the terminal's.
pub(super) fn decide<R: BufRead, W: Write, T, E: Display>(
    questions: &mut Option<&mut Questions<R, W>>,
    given: Option<T>,
    question: &str,
    default: Option<&str>,
    read: impl Fn(&str) -> Result<T, E>,
) -> anyhow::Result<T> {
    match (given, questions, default) {
        (Some(given), ..) => Ok(given),
        (None, Some(questions), default) => questions.ask(question, default, read),
        (None, None, Some(default)) => {
            read(default).map_err(|error| Usage(format!("{question}: {error}")).into())
        }
        (None, None, None) => Err(Usage(format!("not told: {question}")).into()),
    }
}

/// The same for any number of answers, in one line with spaces between them.
pub(super) fn decide_list<R: BufRead, W: Write, T, E: Display>(
    questions: &mut Option<&mut Questions<R, W>>,
    given: Vec<T>,
    question: &str,
    default: &str,
    read: impl Fn(&str) -> Result<T, E>,
) -> anyhow::Result<Vec<T>> {
    let given = (!given.is_empty()).then_some(given);
    let read = |text: &str| text.split_whitespace().map(&read).collect();
    decide(questions, given, question, Some(default), read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_asked_again_and_an_empty_line_takes_the_default() {
        let mut shown = Vec::new();
        let mut questions = Questions::new(&b"x\n\n7 8\n"[..], &mut shown);
        let asked = &mut Some(&mut questions);
        let read = |text: &str| text.parse::<u8>();
        let number = decide(asked, None, "How many", Some("5"), read).unwrap();
        let list = decide_list(asked, Vec::new(), "Which", "", read).unwrap();
        assert_eq!((number, list), (5, vec![7, 8]));
        assert_eq!(decide(asked, Some(1), "Not asked", None, read).unwrap(), 1);
        assert!(decide(asked, None, "Too late", None, read).is_err());
        let shown = String::from_utf8(shown).unwrap();
        assert_eq!(shown.matches("How many [5]: ").count(), 2, "{shown}");
        assert!(shown.contains("  invalid digit") && !shown.contains("Not asked"));
    }

    #[test]
    fn without_questions_what_has_no_default_must_be_given() {
        let nobody: &mut Option<&mut Questions<&[u8], Vec<u8>>> = &mut None;
        let read = |text: &str| text.parse::<u8>();
        assert_eq!(decide(nobody, None, "n", Some("5"), read).unwrap(), 5);
        let error = decide(nobody, None, "Where (--remote)", None, read).unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("--remote"));
    }
}

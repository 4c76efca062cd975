//! The built-in experiment files.

use std::fs;
use std::path::Path;

use peerlock_console::near;

use crate::Error;
use crate::figure::Figure;

macro_rules! files {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!("../experiments/", $id, ".toml")))),*]
    };
}

const FILES: &[(&str, &str)] = files! {
    "fair-k/fig2"
    "fair-k/fig3"
    "fair-k/fig4"
    "fair-k/fig5"
    "fair-k/fig6"
    "sigma/fig2"
    "sigma/fig3"
    "sigma/fig7"
    "sigma/fig8"
    "sigma/messages"
    "e2e/fig3a"
    "e2e/fig3a-per-peer"
    "e2e/retry"
    "e2e/fig3b"
    "e2e/fig4a"
    "e2e/fig4b"
    "e2e/fig4c"
    "e2e/fig5"
    "coordinator/fig2"
    "coordinator/fig2-per-peer"
    "coordinator/fig3"
    "faults/table"
    "faults/catastrophe"
    "faults/partition"
    "beyond/hold-times"
    "beyond/long-holds"
    "beyond/run-length"
    "beyond/slots"
    "beyond/slots-exponential"
    "beyond/idle"
    "beyond/short-stays"
    "beyond/short-stays-three"
    "beyond/peers"
};

/// Returns the figures with these IDs or groups; all if `names` is empty. A name that ends with `.toml` is a user's
/// file, whose figure has an ID such as `own/mine`.
///
/// # Errors
/// No figure has such an ID, or a file cannot be used.
pub fn select(names: &[String]) -> Result<Vec<Figure>, Error> {
    let (files, names): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| name.ends_with(".toml"));
    let mut figures = if names.is_empty() && !files.is_empty() { Vec::new() } else { built_in(&names)? };
    for file in files {
        let figure = own(Path::new(file))?;
        if figures.iter().any(|other: &Figure| other.id == figure.id) {
            let what = format!("another file also has the ID {}: rename one of them", figure.id);
            return Err(Error::File { path: file.into(), what });
        }
        figures.push(figure);
    }
    Ok(figures)
}

fn own(path: &Path) -> Result<Figure, Error> {
    let unusable = |what: String| Error::File { path: path.into(), what };
    let source = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let id = format!("own/{}", stem.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
    let figure = Figure::parse(&id, &source).map_err(unusable)?;
    // Reports invalid settings with the file's name.
    [false, true].into_iter().try_for_each(|quick| figure.clone().resolve(quick, 1).map(drop)).map_err(unusable)?;
    Ok(figure)
}

fn built_in(names: &[&String]) -> Result<Vec<Figure>, Error> {
    let named = |id: &str, name: &str| id == name || id.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    for name in names {
        if !FILES.iter().any(|(id, _)| named(id, name)) {
            return Err(Error::Unknown { name: (*name).clone(), near: similar(name) });
        }
    }
    let chosen = FILES.iter().filter(|(id, _)| names.is_empty() || names.iter().any(|name| named(id, name)));
    chosen
        .map(|(id, source)| Figure::parse(id, source).map_err(|what| Error::Experiment { id: (*id).to_string(), what }))
        .collect()
}

fn similar(name: &str) -> Vec<String> {
    let mut known: Vec<&str> = FILES.iter().filter_map(|(id, _)| Some(id.split_once('/')?.0)).collect();
    known.dedup();
    known.extend(FILES.iter().map(|(id, _)| *id));
    let near = near(name, known.into_iter());
    // A group includes its figures.
    let is_in = |id: &str, group: &str| id.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
    near.iter().filter(|id| !near.iter().any(|group| is_in(id, group))).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};
    use peerlock_catalogue::{Flags, Setting};

    use super::*;
    use crate::point::Point;

    fn ids(names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
        let figures = select(&names).map_err(|error| error.to_string())?;
        Ok(figures.into_iter().map(|figure| figure.id).collect())
    }

    #[test]
    fn figures_are_selected_by_id_or_group() {
        assert_eq!(ids(&[]).unwrap().len(), FILES.len());
        assert_eq!(
            ids(&["fair-k"]).unwrap(),
            ["fair-k/fig2", "fair-k/fig3", "fair-k/fig4", "fair-k/fig5", "fair-k/fig6"]
        );
        assert_eq!(ids(&["beyond/idle", "fair-k/fig3"]).unwrap(), ["fair-k/fig3", "beyond/idle"]);
    }

    #[test]
    fn unknown_figure_is_refused_with_similar_names() {
        for (name, message) in [
            ("fig8", "there is no figure \"fig8\"; did you mean sigma/fig8?"),
            (
                "fig2",
                "there is no figure \"fig2\"; did you mean one of fair-k/fig2, sigma/fig2, coordinator/fig2, \
                 coordinator/fig2-per-peer?",
            ),
            ("fairk/fig3", "there is no figure \"fairk/fig3\"; did you mean fair-k/fig3?"),
            ("beyond/peer", "there is no figure \"beyond/peer\"; did you mean beyond/peers?"),
            ("faluts", "there is no figure \"faluts\"; did you mean faults?"),
            ("coordinater", "there is no figure \"coordinater\"; did you mean coordinator?"),
            ("fair", "there is no figure \"fair\"; did you mean fair-k?"),
            ("lambda", "there is no figure \"lambda\"; peerlock-lab reproduce --list shows all figures"),
            ("", "there is no figure \"\"; peerlock-lab reproduce --list shows all figures"),
        ] {
            assert_eq!(ids(&[name]).unwrap_err(), message);
        }
    }

    #[test]
    fn user_file_is_a_figure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("my waits.toml");
        let name = path.to_string_lossy().into_owned();
        assert!(ids(&[&name]).unwrap_err().contains("cannot use the experiment file"));
        let source = FILES[0].1;
        fs::write(&path, source).unwrap();
        assert_eq!(ids(&[&name]).unwrap(), ["own/my-waits"]);
        assert_eq!(ids(&[&name, "beyond/idle"]).unwrap(), ["beyond/idle", "own/my-waits"]);
        let other = dir.path().join("my-waits.toml").to_string_lossy().into_owned();
        fs::write(&other, source).unwrap();
        let error = ids(&[&name, &other]).unwrap_err();
        assert!(error.contains("another file also has the ID own/my-waits"), "{error}");
        fs::write(&path, source.replace("peers = 100", "peers = 0")).unwrap();
        assert!(ids(&[&name]).unwrap_err().contains("peers must be at least 1"));
    }

    #[test]
    fn every_file_is_in_the_list() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        let mut found = 0;
        for group in fs::read_dir(dir).unwrap() {
            for file in fs::read_dir(group.unwrap().path()).unwrap() {
                let text = fs::read_to_string(file.as_ref().unwrap().path()).unwrap();
                let known = FILES.iter().any(|(_, source)| *source == text);
                assert!(known, "{:?} is not in FILES", file.unwrap().path());
                found += 1;
            }
        }
        assert_eq!(found, FILES.len());
    }

    /// Every run is resolved, and round-trips through its command and JSON.
    #[test]
    fn every_file_is_valid_and_every_run_repeatable() {
        for figure in select(&[]).unwrap() {
            for quick in [false, true] {
                let id = figure.id.clone();
                let resolved = figure.clone().resolve(quick, 1);
                let resolved = resolved.unwrap_or_else(|what| panic!("{id}, quick {quick}: {what}"));
                for dot in resolved.dots.iter().flatten().flatten() {
                    let Point::Simulated(setting) = &dot.point else { continue };
                    assert_eq!(parsed(setting), *setting, "{id}: {}", setting.command());
                    let json = serde_json::to_string(setting).unwrap();
                    assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), *setting, "{id}: {json}");
                }
            }
        }
    }

    fn parsed(setting: &Setting) -> Setting {
        let command = Flags::augment_args(Command::new("simulate")).no_binary_name(true);
        let matches = command.try_get_matches_from(setting.arguments()).unwrap();
        Flags::from_arg_matches(&matches).unwrap().try_into().unwrap()
    }
}

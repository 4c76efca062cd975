//! The experiment files that the binary brings along.

use crate::Error;
use crate::figure::Figure;

macro_rules! files {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!("../experiments/", $id, ".toml")))),*]
    };
}

/// Every figure's id and file, in the order of the report.
const FILES: &[(&str, &str)] = files! {
    "fair-k/fig2"
    "fair-k/fig3"
    "fair-k/fig4"
    "fair-k/fig5"
    "sigma/fig2"
    "sigma/fig3"
    "sigma/fig7"
    "sigma/fig8"
    "sigma/messages"
    "e2e/fig3a"
    "e2e/fig3a-per-peer"
    "e2e/fig3b"
    "e2e/fig4a"
    "e2e/fig4b"
    "e2e/fig4c"
    "e2e/fig5"
    "coordinator/fig2"
    "coordinator/fig2-per-peer"
    "coordinator/fig3"
    "beyond/hold-times"
    "beyond/run-length"
    "beyond/slots"
    "beyond/idle"
    "beyond/peers"
};

/// The figures with these ids, or whose ids begin with these names; all of them if none is named.
///
/// # Errors
/// No figure has such an id.
pub fn select(names: &[String]) -> Result<Vec<Figure>, Error> {
    let named = |id: &str, name: &str| id == name || id.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    for name in names {
        if !FILES.iter().any(|(id, _)| named(id, name)) {
            return Err(Error::Unknown { name: name.clone(), near: near(name) });
        }
    }
    let chosen = FILES.iter().filter(|(id, _)| names.is_empty() || names.iter().any(|name| named(id, name)));
    chosen
        .map(|(id, source)| Figure::parse(id, source).map_err(|what| Error::Experiment { id: (*id).to_string(), what }))
        .collect()
}

/// What a person may have meant: ids with the name in them, or the most alike.
fn near(name: &str) -> Vec<String> {
    let ids = || FILES.iter().map(|(id, _)| *id);
    let mut near: Vec<&str> = ids().filter(|id| !name.is_empty() && id.contains(name)).collect();
    if near.is_empty() {
        let distance = |id: &str| strsim::damerau_levenshtein(id, name);
        let least = ids().map(distance).min().filter(|least| *least <= 3);
        near = ids().filter(|id| Some(distance(id)) == least).collect();
    }
    near.into_iter().map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
        let figures = select(&names).map_err(|error| error.to_string())?;
        Ok(figures.into_iter().map(|figure| figure.id).collect())
    }

    #[test]
    fn figures_are_found_by_id_and_by_the_beginning_of_it() {
        assert_eq!(ids(&[]).unwrap().len(), FILES.len());
        assert_eq!(ids(&["fair-k"]).unwrap(), ["fair-k/fig2", "fair-k/fig3", "fair-k/fig4", "fair-k/fig5"]);
        assert_eq!(ids(&["beyond/idle", "fair-k/fig3"]).unwrap(), ["fair-k/fig3", "beyond/idle"]);
    }

    #[test]
    fn an_unknown_figure_is_refused_with_what_may_be_meant() {
        for (name, sentence) in [
            ("fig8", "there is no figure \"fig8\"; did you mean sigma/fig8?"),
            (
                "fig2",
                "there is no figure \"fig2\"; did you mean one of fair-k/fig2, sigma/fig2, coordinator/fig2, coordinator/fig2-per-peer?",
            ),
            ("fairk/fig3", "there is no figure \"fairk/fig3\"; did you mean fair-k/fig3?"),
            ("beyond/slot", "there is no figure \"beyond/slot\"; did you mean beyond/slots?"),
            ("gamma", "there is no figure \"gamma\"; peerlock reproduce --list shows them all"),
            ("", "there is no figure \"\"; peerlock reproduce --list shows them all"),
        ] {
            let error = ids(&[name]).unwrap_err();
            assert!(error.starts_with(sentence), "{error}");
        }
    }

    /// Every run that a file stands for is spelled out, so that no wrong name is found an hour into a full run.
    #[test]
    fn every_file_makes_sense_in_full_and_quickly() {
        for figure in select(&[]).unwrap() {
            for quick in [false, true] {
                let id = figure.id.clone();
                figure.clone().resolve(quick).unwrap_or_else(|what| panic!("{id}, quick {quick}: {what}"));
            }
        }
    }
}

//! Suggestions for mistyped names.

/// Returns the `known` names that contain `name`, otherwise the most similar ones, if at most half of it differs.
pub fn near<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    if name.is_empty() {
        return Vec::new();
    }
    let with_it: Vec<&str> = known.clone().filter(|known| known.contains(name)).collect();
    if !with_it.is_empty() {
        return with_it;
    }
    let distance = |known: &str| strsim::damerau_levenshtein(known, name);
    let most = (name.chars().count() / 2).min(3);
    let least = known.clone().map(distance).min().filter(|least| *least <= most);
    known.filter(|known| Some(distance(known)) == least).collect()
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn near_returns_similar_names() {
        let known = ["run", "ls", "show", "release", "renew", "resize", "secret", "recover"];
        for (name, meant) in [
            ("rnu", vec!["run"]),
            ("shwo", vec!["show"]),
            ("relase", vec!["release"]),
            ("list", vec!["ls"]),
            ("ren", vec!["renew"]),
            ("lock", vec![]),
            ("x", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(near(name, known.into_iter()), meant, "{name:?}");
        }
    }
}

/// Which of the `known` names a person may have meant: those with `name` in them, or the most alike. Nothing is like no
/// name.
pub fn near<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    if name.is_empty() {
        return Vec::new();
    }
    let with_it: Vec<&str> = known.clone().filter(|known| known.contains(name)).collect();
    if !with_it.is_empty() {
        return with_it;
    }
    let distance = |known: &str| strsim::damerau_levenshtein(known, name);
    let least = known.clone().map(distance).min().filter(|least| *least <= 3);
    known.filter(|known| Some(distance(known)) == least).collect()
}

/// Returns all files that measured numbers depend on: the catalogue with its dependencies in this repository, and the
/// metrics.
pub fn sources(lab: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut names = vec![String::from("catalogue")];
    let mut files = ["metric.rs", "point.rs"].map(|name| lab.join("figures/src").join(name)).to_vec();
    let mut at = 0;
    while let Some(name) = names.get(at) {
        let own = lab.join(name);
        let dir = if own.is_dir() { own } else { lab.join("../crates").join(name) };
        list(&dir.join("src"), &mut files);
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
        for line in manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1) {
            if line.starts_with('[') {
                break;
            }
            let Some(rest) = line.strip_prefix("peerlock-") else { continue };
            let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default();
            if !names.iter().any(|known| known == name) {
                names.push(name.into());
            }
        }
        at += 1;
    }
    files.sort();
    files
}

fn list(path: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
    match std::fs::read_dir(path) {
        Ok(dir) => dir.flatten().for_each(|entry| list(&entry.path(), files)),
        Err(_) => files.push(path.into()),
    }
}

/// Returns a fingerprint of the names and contents of these files.
pub fn fingerprint_of(files: &[std::path::PathBuf]) -> u64 {
    let mut text = Vec::new();
    for file in files {
        text.extend(file.to_string_lossy().bytes());
        text.extend(std::fs::read(file).unwrap_or_default());
    }
    fingerprint(&text)
}

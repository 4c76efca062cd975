pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Guessable nonces would be worse than a crash.
    getrandom::fill(&mut bytes).expect("the operating system has a random source");
    bytes
}

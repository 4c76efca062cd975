/// Bytes that nobody can guess, for keys and nonces.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Going on with guessable nonces would be worse than stopping.
    getrandom::fill(&mut bytes).expect("the operating system has a random source");
    bytes
}

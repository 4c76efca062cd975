use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a progress bar on a terminal, and a hidden one elsewhere.
///
/// # Panics
/// Never: the template is fixed.
pub fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %, {eta} to go: {msg}");
    bar.set_style(style.expect("the template is fixed, and tested by every run on a terminal"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

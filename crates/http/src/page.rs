//! The live page, embedded in the program.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use axum::routing::get;

/// Path, type and content of a file.
type File = (&'static str, &'static str, &'static str);

const FILES: [File; 9] = [
    ("/", "text/html; charset=utf-8", include_str!("../web/index.html")),
    ("/assets/page.css", "text/css; charset=utf-8", include_str!("../web/page.css")),
    ("/assets/page.js", "text/javascript; charset=utf-8", include_str!("../web/page.js")),
    ("/assets/ring.js", "text/javascript; charset=utf-8", include_str!("../web/ring.js")),
    ("/assets/chart.js", "text/javascript; charset=utf-8", include_str!("../web/chart.js")),
    ("/assets/list.js", "text/javascript; charset=utf-8", include_str!("../web/list.js")),
    ("/assets/peers.js", "text/javascript; charset=utf-8", include_str!("../web/peers.js")),
    ("/assets/dom.js", "text/javascript; charset=utf-8", include_str!("../web/dom.js")),
    ("/assets/icon.svg", "image/svg+xml", include_str!("../web/icon.svg")),
];

const CONTROLS: File = ("/assets/controls.js", "text/javascript; charset=utf-8", include_str!("../web/controls.js"));

/// Permits only the page's own files, and no embedding.
const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

pub fn routes() -> Router {
    FILES.into_iter().fold(Router::new(), with)
}

pub fn controls() -> Router {
    with(Router::new(), CONTROLS)
}

fn with(router: Router, (path, kind, text): File) -> Router {
    router.route(path, get(move || async move { (headers(kind), text) }))
}

/// Disables caching, because the files change with the program.
fn headers(kind: &'static str) -> [(HeaderName, &'static str); 4] {
    [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page loads nothing from elsewhere, and all files it loads exist.
    #[test]
    fn page_refers_only_to_its_own_files() {
        let all = || FILES.into_iter().chain([CONTROLS]);
        for (path, _, text) in all() {
            for (place, _) in text.match_indices("://") {
                let before = &text[..place];
                assert!(
                    before.ends_with("http") && text[place..].starts_with("://www.w3.org/"),
                    "{path}: {}",
                    &text[place..place + 40]
                );
            }
            for quoted in text.split(['"', '\'']).filter(|part| part.starts_with("/assets/")) {
                assert!(all().any(|(path, ..)| path == quoted), "{path} asks for {quoted}");
            }
            assert!(!text.contains("innerHTML") && !text.contains("insertAdjacentHTML"), "{path}: labels are text");
        }
    }
}

//! A small experiment, from its file to the page.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use peerlock_figures::report::{Outcome, Provenance, write};
use peerlock_figures::{Figure, Plan, Progress, Results, Store};
use tempfile::tempdir;

/// Two panels, two curves, three values; the second panel shares some runs of the first.
const SMALL: &str = r#"
title = "Waits & <messages>"
origin = "Made up"
shows = "Nothing in particular."

[x]
parameter = "think-rate"
label = "request rate, per second & peer"
scale = "log"
values = [0.1, 1, 10]

[base]
peers = 8
slots = 2
hold = "10s"
latency = "constant:1s"
links = "ordered"
entries = 40
trials = 3
warm-up = 5

[quick]
values = [1]
trials = 2

[[panel]]
title = "Wait"
label = "mean wait, s"
scale = "linear"
metric = "mean"

[[panel]]
title = "Messages"
label = "messages per entry"
scale = "log"
metric = "messages"
without = ["ideal, no protocol"]

[[curve]]
label = "Fair-K"
protocol = "fair-k"
form = "printed"

[[curve]]
label = "ideal, no protocol"
style = 3
protocol = "ideal"

[[published]]
what = "mean wait at rate 1"
says = "33 s"
value = 33
curve = "Fair-K"
x = 1
metric = "mean"
claim = "reproduced"
accept = { from = 32.5, to = 33.5 }
"#;

struct Run {
    results: Results,
    outcome: Outcome,
    progress: (u64, u64),
}

fn plan(source: &str, quick: bool, seed: u64) -> Result<Plan, String> {
    let figure = Figure::parse("small/fig1", source)?;
    Plan::new(vec![figure], quick, seed).map_err(|error| error.to_string())
}

fn reproduce(out: &Path, source: &str, quick: bool, seed: u64) -> Run {
    let plan = plan(source, quick, seed).unwrap();
    let store = Store::open(out).unwrap();
    let (to_do, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let results = plan.run(&store, &|progress| match progress {
        Progress::ToDo(entries) => to_do.store(entries, Ordering::Relaxed),
        Progress::Point(_) => (),
        Progress::Done(entries) => {
            done.fetch_add(entries, Ordering::Relaxed);
        }
    });
    let results = results.unwrap();
    let provenance = Provenance {
        version: "1.2.3".into(),
        commit: "abc".into(),
        command: "peerlock-lab reproduce".into(),
        seed: seed.to_string(),
        duration: "1 s".into(),
    };
    let outcome = write(out, &plan, &results, &provenance).unwrap();
    Run { results, outcome, progress: (to_do.into_inner(), done.into_inner()) }
}

fn read(out: &Path, file: &str) -> String {
    fs::read_to_string(out.join(file)).unwrap()
}

fn points(out: &Path) -> Vec<PathBuf> {
    fs::read_dir(out.join("points")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn report_has_all_parts() {
    let out = tempdir().unwrap();
    let run = reproduce(out.path(), SMALL, false, 1);
    assert_eq!((run.outcome.claimed, run.outcome.moved.len()), (1, 0), "{:?}", run.outcome.moved);
    // Three values and two curves; the second panel shares three of the six runs.
    assert_eq!(points(out.path()).len(), 6);
    let entries = 6 * 3 * 8 * 40;
    assert_eq!(run.progress, (entries, entries));

    let page = read(out.path(), "report.html");
    assert!(page.contains("<h2>Waits &amp; &lt;messages&gt; "), "{page}");
    assert!(page.contains("<span class=\"reproduced\">reproduced</span>"));
    assert!(page.contains("In all runs: peers 8, slots 2, hold 10s,"), "{page}");
    assert!(page.contains("abc"));
    let order = ["<h1>", "<nav>", "id=\"reading\"", "id=\"numbers\"", "id=\"small/fig1\"", "id=\"run\""];
    let places: Vec<Option<usize>> = order.iter().map(|part| page.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{order:?}: {places:?}");
    for link in order.iter().filter_map(|part| part.strip_prefix("id=\"")) {
        assert!(page.contains(&format!("<li><a href=\"#{link}>")), "{link} is not in the contents");
    }
    for kind in ["(prefers-color-scheme: dark)", "(max-width: 40rem)", "print"] {
        assert!(page.contains(&format!("@media {kind} {{")), "{kind}");
    }
    assert!(page.contains("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"));
    assert!(!page.contains("<script") && !page.contains("src="));
    assert_eq!(page.matches("http").count(), 1, "the SVG namespace");
    assert_eq!(read(out.path(), "small/fig1.toml"), SMALL);
    assert!(read(out.path(), "run.toml").contains("seed = \"1\"\n"));
}

/// With one message per hand-over and busy slots, the mean wait is N(cset + T)/k − cset − 1/λ.
#[test]
fn csv_has_a_line_per_panel_and_run() {
    let out = tempdir().unwrap();
    reproduce(out.path(), SMALL, false, 1);
    let csv = read(out.path(), "small/fig1.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 6 + 3);
    assert!(lines[0].starts_with("panel,curve,protocol,form,peers,slots,hold,think-rate,"), "{}", lines[0]);
    assert!(lines[0].contains(",seed,mean (s),"), "{}", lines[0]);
    let row = "Wait,\"ideal, no protocol\",ideal,,8,2,10s,1,constant:1s,ordered,40,3,5,1,";
    let row = lines.iter().find_map(|line| line.strip_prefix(row)).expect("the ideal at rate 1");
    let mean: f64 = row.split(',').next().unwrap().parse().unwrap();
    assert!((mean - 33.0).abs() < 0.2, "{mean}");
    assert!(lines[7..].iter().all(|line| line.starts_with("Messages,Fair-K,")), "{csv}");
}

#[test]
fn plot_is_valid_xml_with_a_marker_per_run() {
    let out = tempdir().unwrap();
    reproduce(out.path(), SMALL, false, 1);
    let svg = read(out.path(), "small/fig1.svg");
    assert!(read(out.path(), "report.html").contains(&svg));
    let document = roxmltree::Document::parse(&svg).unwrap();
    let named = |name: &str| document.descendants().filter(|node| node.tag_name().name() == name).collect::<Vec<_>>();
    // Discs of Fair-K: three in each panel and one in the legend; rings of the published number: one and one.
    assert_eq!(named("circle").len(), 3 + 3 + 1 + 2);
    let texts = named("text");
    let texts: Vec<&str> = texts.iter().filter_map(|node| node.text()).collect();
    for text in
        ["Fair-K", "ideal, no protocol", "published", "mean wait, s", "request rate, per second & peer", "0.1", "10"]
    {
        assert!(texts.contains(&text), "{text:?} is not in {texts:?}");
    }
    let [width, height] =
        ["width", "height"].map(|name| document.root_element().attribute(name).unwrap().parse::<f64>().unwrap());
    for line in named("polyline") {
        for place in line.attribute("points").unwrap().split(' ') {
            let (x, y) = place.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{place}");
        }
    }
}

#[test]
fn interrupted_run_continues() {
    let out = tempdir().unwrap();
    let first = reproduce(out.path(), SMALL, false, 1);
    assert_eq!(first.results.resumed, 0);
    let page = read(out.path(), "report.html");

    // One point is missing, and one is damaged.
    let stored = points(out.path());
    fs::remove_file(&stored[0]).unwrap();
    fs::write(&stored[1], "measured = {").unwrap();
    let again = reproduce(out.path(), SMALL, false, 1);
    assert_eq!(again.results.resumed, 4);
    assert_eq!(again.progress.1, 2 * 3 * 8 * 40, "two points are run");
    let resumed = read(out.path(), "report.html");
    assert!(resumed.contains("6, of which 4 are from an earlier run"));
    assert_eq!(until_provenance(&page), until_provenance(&resumed));

    assert_eq!(reproduce(out.path(), SMALL, false, 2).results.resumed, 0, "the seed differs");
}

fn until_provenance(page: &str) -> &str {
    &page[..page.find("<section id=\"run\">").unwrap()]
}

#[test]
fn points_of_another_version_are_not_reused() {
    let out = tempdir().unwrap();
    reproduce(out.path(), SMALL, false, 1);
    for point in points(out.path()) {
        let text = fs::read_to_string(&point).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        assert!(text.starts_with("version = "), "{text}");
        fs::write(&point, format!("version = \"another\"\n{rest}")).unwrap();
    }
    assert_eq!(reproduce(out.path(), SMALL, false, 1).results.resumed, 0);
}

#[test]
fn number_outside_its_range_is_reported() {
    let out = tempdir().unwrap();
    let moved = SMALL.replace("from = 32.5, to = 33.5", "from = 34");
    let run = reproduce(out.path(), &moved, false, 1);
    assert_eq!(run.outcome.claimed, 1);
    let [message] = &run.outcome.moved[..] else { panic!("{:?}", run.outcome.moved) };
    assert!(message.starts_with("small/fig1: mean wait at rate 1: the paper says 33 s, measured 3"), "{message}");
    assert!(message.ends_with(", expected 34 s or more"), "{message}");
    assert!(read(out.path(), "report.html").contains("<span class=\"moved\">out of range</span>"));

    // A number that cannot be measured is not reproduced.
    let unmeasured = SMALL.replace("warm-up = 5", "warm-up = 40");
    assert!(reproduce(out.path(), &unmeasured, false, 1).outcome.moved[0].contains("measured none"));
}

#[test]
fn differing_number_must_be_in_its_own_range() {
    let out = tempdir().unwrap();
    let differs = SMALL.replace("\"reproduced\"", "\"differs\"\nwhy = \"So.\"").replace("value = 33", "value = 44");
    let run = reproduce(out.path(), &differs, false, 1);
    assert_eq!((run.outcome.claimed, run.outcome.moved.len()), (1, 0));
    let page = read(out.path(), "report.html");
    assert!(page.contains("<span class=\"differs\">differs</span>") && page.contains("Found instead: from 32.5"));
    let elsewhere = differs.replace("from = 32.5, to = 33.5", "from = 40, to = 43");
    assert_eq!(reproduce(out.path(), &elsewhere, false, 1).outcome.moved.len(), 1);
}

#[test]
fn number_at_the_edge_of_its_range_is_not_certain() {
    let out = tempdir().unwrap();
    let mean = "mean wait at rate 1";
    let run = reproduce(out.path(), SMALL, false, 1);
    assert!(run.outcome.moved.is_empty());
    let csv = read(out.path(), "small/fig1.csv");
    let value = csv
        .lines()
        .find_map(|line| line.strip_prefix("Wait,Fair-K,fair-k,printed,8,2,10s,1,constant:1s,ordered,40,3,5,1,"));
    let value: f64 = value.unwrap().split(',').next().unwrap().parse().unwrap();
    let edge = SMALL.replace("from = 32.5", &format!("from = {}", value - 1e-6));
    assert!(reproduce(out.path(), &edge, false, 1).outcome.moved.is_empty(), "{mean} is {value}");
    assert!(read(out.path(), "report.html").contains("reproduced, not certain"));
}

#[test]
fn difference_within_the_interval_is_not_certain() {
    let out = tempdir().unwrap();
    let verdict = |source: &str, quick| {
        let run = reproduce(out.path(), source, quick, 1);
        assert!(run.outcome.moved.is_empty(), "{:?}", run.outcome.moved);
        let page = read(out.path(), "report.html");
        let cell = page.split("class=\"got\">").nth(1).unwrap().split("</tr>").next().unwrap();
        let (measured, verdict) = cell.split_once("</td><td><span class=\"").unwrap();
        (measured.to_string(), verdict.split(['>', '<']).nth(1).unwrap().to_string())
    };
    let (measured, reproduced) = verdict(SMALL, false);
    assert_eq!(reproduced, "reproduced");
    let measured: Vec<f64> = measured.split(" ± ").map(|word| word.trim_end_matches(" s").parse().unwrap()).collect();
    let [mean, half] = measured[..] else { panic!("{measured:?}") };
    let differs = |beyond: f64| {
        let value = format!("value = 50\nmeans = {{ from = {}, to = 60 }}", mean + beyond * half);
        let range = format!("from = 30, to = {}", mean + 0.4 * half);
        let claim = "\"differs\"\nwhy = \"So.\"";
        SMALL.replace("value = 33", &value).replace("from = 32.5, to = 33.5", &range).replace("\"reproduced\"", claim)
    };
    assert_eq!(verdict(&differs(1.5), false).1, "differs");
    assert_eq!(verdict(&differs(0.5), false).1, "differs, not certain");
    let in_both = differs(0.5).replace("means = { from = ", "means = { from = 20 } #") + "quick = { to = 50 }\n";
    assert!(plan(&in_both, false, 1).unwrap_err().ends_with("differs, but its range includes the published number"));
    let quickly = differs(0.5) + "quick = { from = 20, to = 60 }\n";
    assert_eq!(verdict(&quickly, true).1, "differs, not certain");

    let chosen = SMALL.replace("\"reproduced\"", "\"by-choice\"\nwhy = \"So.\"");
    assert_eq!(verdict(&chosen, false).1, "by choice");
    assert!(read(out.path(), "report.html").contains("1 agree only because of a choice of ours"));
}

#[test]
fn number_may_be_for_full_runs_only() {
    let out = tempdir().unwrap();
    let elsewhere = SMALL.replace("x = 1\nmetric", "x = 10\nmetric").replace("from = 32.5, to = 33.5", "from = 20");
    let error = plan(&elsewhere, true, 1).unwrap_err();
    assert!(error.ends_with("is at x = 10, which is not run"), "{error}");
    let full_only = elsewhere + "full-only = true\n";
    assert_eq!(reproduce(out.path(), &full_only, true, 1).outcome.claimed, 0);
    assert_eq!(reproduce(out.path(), &full_only, false, 1).outcome.claimed, 1);
}

/// The mean wait grows by 1/λ − 1/λ' while all slots are busy.
#[test]
fn bend_is_a_ratio_of_slopes() {
    let out = tempdir().unwrap();
    let bend = SMALL.replace("x = 1\nmetric = \"mean\"", "bend = [0.1, 1, 10]\nmetric = \"mean\"");
    let slopes = (0.9 / 9.0) / (9.0 / 0.9);
    let bend = bend.replace("from = 32.5, to = 33.5", &format!("from = {}, to = {}", 0.9 * slopes, 1.2 * slopes));
    assert_eq!(reproduce(out.path(), &bend, false, 1).outcome.moved, Vec::<String>::new());
    let page = read(out.path(), "report.html");
    let measured = page.split("class=\"got\">").nth(1).unwrap().split("</td>").next().unwrap();
    assert!(measured.contains(" ± ") && measured.ends_with(" times"), "{measured}");
}

#[test]
fn curves_can_be_level_and_relative() {
    let out = tempdir().unwrap();
    let level = SMALL.replace("style = 3\n", "style = 3\nlevel = true\nthink-rate = 1\n");
    let level =
        level.replacen("metric = \"mean\"", "metric = \"mean\"\nrelative-to = \"ideal, no protocol\"\nuntil = 5", 1);
    let run = reproduce(out.path(), &level, false, 1);
    assert_eq!(run.progress.0, (3 + 1) * 3 * 8 * 40, "the level curve is run once");
    let page = read(out.path(), "report.html");
    let row = page.lines().find(|line| line.starts_with("<tr><td class=\"n\">1</td>")).unwrap();
    assert!(row.contains("<td class=\"n\">1</td></tr>"), "a curve relative to itself is 1: {row}");
    let csv = read(out.path(), "small/fig1.csv");
    assert_eq!(csv.lines().filter(|line| line.starts_with("Wait,Fair-K,")).count(), 2, "values above 5 are omitted");
}

#[test]
fn broken_promises_are_reported() {
    let out = tempdir().unwrap();
    let [both, nothing] = ["both", "nothing"].map(|promise| {
        let promised = format!("promises = [\"nothing\", \"{promise}\"]");
        format!(
            r#"
title = "Promises"
origin = "Made up"
shows = "Nothing."
promises = true
[x]
parameter = "loss"
label = "fault"
scale = "category"
values = [0, 0.2]
names = ["none", "loss"]
with = {{ catastrophe = ["none", "0.5/30s"] }}
[base]
peers = 8
slots = 2
entries = 10
warm-up = 1
count-violations = true
trials = 4
[[panel]]
title = "Starved"
label = "share"
scale = "linear"
metric = "starved"
[[curve]]
label = "Fair-K"
protocol = "fair-k"
{promised}
"#
        )
    });
    let run = reproduce(out.path(), &nothing, false, 1);
    assert_eq!((run.outcome.claimed, run.outcome.moved.len()), (0, 0), "no promise can be broken");
    let page = read(out.path(), "report.html");
    assert!(page.contains("promises nothing</span><br>none of 4 failed</td>"));
    assert!(page.contains("promises nothing</span><br>of 4: 4 starved a client</td>"));
    let run = reproduce(out.path(), &both, false, 1);
    assert_eq!(run.outcome.claimed, 1);
    let [message] = &run.outcome.moved[..] else { panic!() };
    assert!(message.starts_with("small/fig1: Fair-K under loss broke its promise: "), "{message}");
}

#[test]
fn promises_for_missing_values_are_refused() {
    let promises = "promises = [\"both\", \"both\", \"both\"]\n";
    let promised = SMALL
        .replace("shows = ", "promises = true\nshows = ")
        .replace("protocol = ", &format!("{promises}protocol = "));
    let error = |source: &str| plan(source, true, 1).unwrap_err();
    assert!(error(&promised).contains("needs the scale \"category\""), "{}", error(&promised));
    let named = promised.replacen("scale = \"log\"", "scale = \"category\"\nnames = [\"a\", \"b\", \"c\"]", 1);
    assert!(error(&named).contains("1 values have 3 names"), "{}", error(&named));
    let omitted = named.replacen("metric = \"mean\"", "metric = \"mean\"\nwithout = [\"Fair-K\"]", 1);
    assert!(error(&omitted).contains("must not omit anything"), "{}", error(&omitted));
}

/// A stopped trial is counted in a table of promises, and an error in other figures, also if the point was stored.
#[test]
fn stopped_run_is_counted_in_a_table_but_not_drawn() {
    let out = tempdir().unwrap();
    let table = r#"
title = "Stopped"
origin = "Made up"
shows = "Nothing."
promises = true
[x]
parameter = "duplication"
label = "fault"
scale = "category"
values = [0, 0.02]
names = ["none", "twice"]
[base]
peers = 8
slots = 2
entries = 40
warm-up = 1
count-violations = true
trials = 4
[[panel]]
title = "Stopped"
label = "share"
scale = "linear"
metric = "stopped"
[[curve]]
label = "Fair-K"
protocol = "fair-k"
promises = ["both", "safety"]
"#;
    let run = reproduce(out.path(), table, false, 1);
    let [message] = &run.outcome.moved[..] else { panic!("{:?}", run.outcome.moved) };
    assert!(message.contains("Fair-K under twice broke") && message.contains(" stopped (trial "), "{message}");
    let page = read(out.path(), "report.html");
    assert!(page.contains(" stopped</td>") && page.contains("<td title=\"trial "), "{page}");

    let figure = table.replace("promises = true\n", "").replace("promises = [\"both\", \"safety\"]\n", "");
    for dir in [out.path(), tempdir().unwrap().path()] {
        let stopped = plan(&figure, false, 1).unwrap().run(&Store::open(dir).unwrap(), &|_| {});
        let error = stopped.map(drop).unwrap_err().to_string();
        assert!(error.contains("--duplication 0.02") && error.contains("a peer has panicked: "), "{error}");
    }
}

#[test]
fn quick_run_is_smaller_and_has_its_own_range() {
    let out = tempdir().unwrap();
    let quick = SMALL.to_owned() + "quick = { from = 0, to = 1 }\n";
    assert_eq!(reproduce(out.path(), &quick, false, 1).outcome.moved.len(), 0);
    let run = reproduce(out.path(), &quick, true, 1);
    assert_eq!(run.outcome.moved.len(), 1);
    assert_eq!(run.progress.0, 2 * 2 * 8 * 40);
    assert!(read(out.path(), "report.html").contains("quick run"));
}

#[test]
fn same_seed_gives_same_bytes_on_any_number_of_threads() {
    let dirs = [tempdir().unwrap(), tempdir().unwrap()];
    for (threads, dir) in [1, 4].into_iter().zip(&dirs) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| reproduce(dir.path(), SMALL, false, 7));
    }
    let mut files: Vec<String> =
        ["report.html", "run.toml", "small/fig1.svg", "small/fig1.csv", "small/fig1.toml"].map(String::from).into();
    let names = points(dirs[0].path());
    files.extend(names.iter().map(|path| format!("points/{}", path.file_name().unwrap().display())));
    assert_eq!(files.len(), 5 + 6);
    for file in files {
        assert!(read(dirs[0].path(), &file) == read(dirs[1].path(), &file), "{file}");
    }
}

#[test]
fn coupled_settings_need_one_value_each() {
    let along = |slots: &str| SMALL.replacen("[base]", &format!("with = {{ slots = {slots} }}\n[base]"), 1);
    let in_full = |slots: &str| plan(&along(slots).replace("values = [1]\n", ""), false, 1).map(|plan| plan.points());
    assert_eq!(in_full("[1, 2, 3]"), Ok(6));
    assert_eq!(
        in_full("[1, 2]"),
        Err("invalid experiment file small/fig1: slots has fewer values than think-rate".into())
    );
    assert_eq!(
        in_full("[1, 2, 3, 4]"),
        Err("invalid experiment file small/fig1: slots has more values than think-rate".into())
    );
    let quickly =
        plan(&along("[1, 2, 3]").replace("values = [1]\n", "values = [1]\nwith = { slots = [2] }\n"), true, 1);
    assert_eq!(quickly.map(|plan| plan.points()), Ok(2));
}

#[test]
fn changed_latency_file_makes_another_run() {
    let out = tempdir().unwrap();
    let file = out.path().join("latencies.txt");
    let source = SMALL.replace("constant:1s", &format!("matrix:{}", file.display()));
    let missing = plan(&source, false, 1).unwrap_err();
    assert!(missing.starts_with("cannot read the latency matrix"), "{missing}");
    let write =
        |hosts: usize, delay: &str| fs::write(&file, format!("{}\n", vec![delay; hosts].join(" ")).repeat(hosts));
    write(5, "2000").unwrap();
    let few = plan(&source, false, 1).unwrap_err();
    assert!(few.ends_with("has 5 hosts, too few for 8 peers: use fewer peers or a larger matrix"), "{few}");

    write(8, "2000").unwrap();
    assert_eq!(reproduce(out.path(), &source, false, 1).results.resumed, 0);
    let slow = read(out.path(), "small/fig1.csv");
    assert_eq!(reproduce(out.path(), &source, false, 1).results.resumed, 6);
    write(8, "200").unwrap();
    assert_eq!(reproduce(out.path(), &source, false, 1).results.resumed, 0);
    assert_ne!(read(out.path(), "small/fig1.csv"), slow);
}

#[test]
fn division_by_zero_is_not_measured() {
    let out = tempdir().unwrap();
    let none = SMALL.replacen("metric = \"mean\"", "metric = \"overtaking\"\nrelative-to = \"ideal, no protocol\"", 1);
    let none = none.replace("x = 1\nmetric = \"mean\"", "x = 1\nmetric = \"overtaking\"\ntimes-less-than = \"Fair-K\"");
    let none = none.replace("curve = \"Fair-K\"", "curve = \"ideal, no protocol\"");
    let none = none.replace("from = 32.5, to = 33.5", "from = 1");
    let run = reproduce(out.path(), &none, false, 1);
    assert!(run.outcome.moved[0].contains("measured none, expected 1 times or more"), "{:?}", run.outcome.moved);
    let page = read(out.path(), "report.html");
    assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
}

#[test]
fn invalid_files_are_refused() {
    let number = "the published number \"mean wait at rate 1\"";
    for (from, to, message) in [
        ("metric = \"mean\"", "metric = \"wait\"", "unknown metric \"wait\""),
        (
            "protocol = \"ideal\"",
            "protocol = \"perfect\"",
            "curve \"ideal, no protocol\": unknown protocol \"perfect\"",
        ),
        ("protocol = \"fair-k\"", "protocol = \"fair-k\"\ncolour = 1", "curve \"Fair-K\": unknown field `colour`"),
        ("x = 1\n", "x = 2\n", &format!("{number} is at x = 2, which is not run")),
        ("curve = \"Fair-K\"", "curve = \"BV\"", &format!("{number} names an unknown curve \"BV\"")),
        ("accept = { from = 32.5, to = 33.5 }", "", &format!("{number} is claimed without a range")),
        ("\"reproduced\"", "\"differs\"", &format!("{number} differs without a reason")),
        (
            "\"reproduced\"\naccept = { from = 32.5, to = 33.5 }",
            "\"differs\"\nwhy = \"So.\"",
            &format!("{number} differs without a range"),
        ),
        (
            "\"reproduced\"",
            "\"differs\"\nwhy = \"So.\"",
            &format!("{number} differs, but its range includes the published number"),
        ),
        ("\"reproduced\"", "\"by-choice\"", &format!("{number} agrees by choice, without a reason")),
        (
            "\"reproduced\"\naccept = { from = 32.5, to = 33.5 }",
            "\"by-choice\"\nwhy = \"So.\"\naccept = { from = 35 }",
            &format!("{number} agrees by choice, but its range excludes the published number"),
        ),
        ("value = 33", "value = 33\nmeans = { from = 3, to = 2 }", &format!("{number} has an empty or infinite range")),
        ("metric = \"mean\"", "metric = \"mean\"\nrelative-to = \"BV\"", "there is no curve \"BV\" to divide by"),
        ("shows = ", "promises = true\nshows = ", "curve \"Fair-K\" has 0 promises for 3 values"),
        ("values = [0.1, 1, 10]", "values = ['0.1']", "\"0.1\" is not a number: use the scale \"category\""),
        ("scale = \"log\"", "scale = \"category\"", "3 values have 0 names"),
        ("parameter = \"think-rate\"", "", "a panel has a metric if and only if the horizontal axis has a parameter"),
        ("[\"ideal, no protocol\"]", "[\"BV\"]", "there is no curve \"BV\" to omit"),
        ("label = \"Fair-K\"", "label = \"ideal, no protocol\"", "two curves are called \"ideal, no protocol\""),
        ("title = \"Messages\"", "title = \"Wait\"", "two panels are called \"Wait\""),
        ("values = [0.1, 1, 10]", "values = []", "panel \"Wait\" has no runs"),
        ("metric = \"mean\"", "metric = \"mean\"\nuntil = 0.01", "panel \"Wait\" has no runs"),
        (
            "without = [\"ideal, no protocol\"]",
            "without = [\"Fair-K\"]\nrelative-to = \"Fair-K\"",
            "there is no curve \"Fair-K\" to divide by",
        ),
        ("from = 32.5, to = 33.5", "from = -inf", &format!("{number} has an empty or infinite range")),
        ("from = 32.5, to = 33.5", "to = nan", &format!("{number} has an empty or infinite range")),
        ("from = 32.5, to = 33.5", "from = 33.5, to = 32.5", &format!("{number} has an empty or infinite range")),
        ("scale = \"log\"", "scale = \"log\"\nwith = { slots = [1, 2, 3, 4] }", "quick has other values"),
        ("values = [1]", "with = { slots = [1] }", "quick has slots, but no values"),
    ] {
        let source = SMALL.replacen(from, to, 1);
        assert_ne!(source, SMALL, "{from:?} is not in the file");
        let error = plan(&source, false, 1).unwrap_err();
        assert!(error.contains(message), "{to:?}: {error}");
    }
}

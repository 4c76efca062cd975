//! The page: one file, no script, nothing from the network, and good on paper.

use std::fmt::Write;

use super::{Provenance, amount, range};
use crate::figure::{Claim, Resolved};
use crate::plan::{Plan, Results, Verdict};
use crate::plot::{escape, tidy};

const STYLE: &str = "
body { font: 16px/1.5 Helvetica, Arial, 'Liberation Sans', sans-serif; color: #111; background: #fff; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: .2rem; } h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem; }
.id, code { font-family: ui-monospace, Menlo, Consolas, 'Liberation Mono', monospace; font-size: .9em; }
.id, .origin { color: #555; font-weight: normal; } .id { white-space: nowrap; }
svg { max-width: 100%; height: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .9rem; margin: .8rem 0; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.reproduced { color: #00563f; font-weight: bold; } .moved { color: #a03000; font-weight: bold; } .differs { font-weight: bold; }
.small { font-size: .85rem; color: #444; }
@media print { body { max-width: none; margin: 0; font-size: 11pt; } svg, tr { break-inside: avoid; } h2, thead { break-after: avoid; } details { display: none; } }
";

/// The whole page.
pub fn html(plan: &Plan, results: &Results, plots: &[String], provenance: &Provenance) -> String {
    let mut body = String::new();
    let kind = if plan.quick { "quick run: fewer trials and shorter runs than the full one" } else { "full run" };
    push(&mut body, "<h1>Figures, published and measured</h1>");
    push(&mut body, &format!("<p class=\"origin\">peerlock {}, {kind}</p>", escape(&provenance.version)));
    summary(&mut body, plan, results);
    for (figure, svg) in plan.figures.iter().zip(plots) {
        section(&mut body, figure, results, svg);
    }
    readings(&mut body);
    run(&mut body, plan, results, provenance);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>peerlock: figures, published and measured</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// All published numbers at a glance.
fn summary(body: &mut String, plan: &Plan, results: &Results) {
    let numbers: Vec<_> =
        plan.figures.iter().flat_map(|figure| figure.numbers.iter().map(move |n| (figure, n))).collect();
    if numbers.is_empty() {
        return;
    }
    let verdicts: Vec<Verdict> = numbers.iter().map(|(_, number)| results.judge(number).1).collect();
    let count = |verdict| verdicts.iter().filter(|&&other| other == verdict).count();
    let (reproduced, moved) = (count(Verdict::Reproduced), count(Verdict::Moved));
    let mut sentence = format!(
        "Of {} published numbers, {} are claimed to be reproduced, and {reproduced} of these are; {} differ, and the \
         reason stands beside them.",
        numbers.len(),
        reproduced + moved,
        count(Verdict::Differs),
    );
    if moved > 0 {
        write!(sentence, " <span class=\"moved\">{moved} left the stated range.</span>").expect(INFALLIBLE);
    }
    push(body, &format!("<p>{sentence}</p>"));
    push(
        body,
        "<table><thead><tr><th>figure</th><th>number</th><th class=\"n\">published</th><th class=\"n\">measured</th>\
         <th>verdict</th></tr></thead><tbody>",
    );
    for (figure, number) in numbers {
        let (measured, verdict) = results.judge(number);
        let id = escape(&figure.figure.id);
        push(
            body,
            &format!(
                "<tr><td><a class=\"id\" href=\"#{id}\">{id}</a></td><td>{}, {}</td><td class=\"n\">{}</td>\
                 <td class=\"n\">{}</td><td>{}</td></tr>",
                escape(&number.published.curve),
                escape(&number.published.what),
                escape(&number.published.says),
                escape(&amount(measured, number.unit())),
                word(verdict),
            ),
        );
    }
    push(body, "</tbody></table>");
}

fn section(body: &mut String, resolved: &Resolved, results: &Results, svg: &str) {
    let (id, file) = (escape(&resolved.figure.id), &resolved.figure.file);
    push(body, &format!("<section id=\"{id}\">"));
    push(body, &format!("<h2>{} <span class=\"id\">{id}</span></h2>", escape(&file.title)));
    push(body, &format!("<p><span class=\"origin\">{}.</span> {}</p>", escape(&file.origin), escape(&file.shows)));
    push(body, svg.trim_end());
    let settings = common(resolved);
    push(body, &format!("<p class=\"small\">{}</p>", escape(&settings)));
    numbers(body, resolved, results);
    values(body, resolved, results);
    push(
        body,
        &format!(
            "<p class=\"small\">Files: <a href=\"{id}.csv\">{id}.csv</a> (every metric of every run), \
             <a href=\"{id}.svg\">{id}.svg</a>, <a href=\"{id}.toml\">{id}.toml</a> (the experiment).</p>"
        ),
    );
    push(body, "</section>");
}

/// The settings that all runs of a figure share.
fn common(resolved: &Resolved) -> String {
    let runs: Vec<_> = resolved.dots.iter().flatten().flatten().map(|dot| dot.point.pairs()).collect();
    let shared = runs.first().into_iter().flatten().filter(|pair| runs.iter().all(|run| run.contains(pair)));
    let shared: Vec<String> = shared.map(|(name, value)| format!("{name} {value}")).collect();
    format!("In all runs: {}.", shared.join(", "))
}

/// The published numbers of one figure, with reading and reason.
fn numbers(body: &mut String, resolved: &Resolved, results: &Results) {
    if resolved.numbers.is_empty() {
        return;
    }
    push(
        body,
        "<table><thead><tr><th>number</th><th class=\"n\">published</th><th class=\"n\">measured</th><th>verdict</th>\
         <th>how we read it</th></tr></thead><tbody>",
    );
    for number in &resolved.numbers {
        let (measured, verdict) = results.judge(number);
        let mut reading = format!("Measured: {}.", number.metric.reading);
        if let Some(over) = &number.published.times_less_than {
            write!(reading, " That of {over}, divided by this.").expect(INFALLIBLE);
        }
        if number.published.claim == Claim::Reproduced {
            write!(reading, " Claimed: {}.", range(number.accept, number.unit())).expect(INFALLIBLE);
        }
        if let Some(why) = &number.published.why {
            write!(reading, " {why}").expect(INFALLIBLE);
        }
        push(
            body,
            &format!(
                "<tr><td>{}, {}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
                escape(&number.published.curve),
                escape(&number.published.what),
                escape(&number.published.says),
                escape(&amount(measured, number.unit())),
                word(verdict),
                escape(&reading),
            ),
        );
    }
    push(body, "</tbody></table>");
}

/// What is drawn, as numbers, to be unfolded.
fn values(body: &mut String, resolved: &Resolved, results: &Results) {
    let file = &resolved.figure.file;
    for (number, panel) in file.panels.iter().enumerate() {
        let Some(metric) = resolved.metrics[number] else { continue };
        let drawn = || file.curves.iter().zip(&resolved.dots[number]).filter(|(_, dots)| !dots.is_empty());
        let heads: Vec<String> =
            drawn().map(|(curve, _)| format!("<th class=\"n\">{}</th>", escape(&curve.label))).collect();
        push(
            body,
            &format!(
                "<details><summary class=\"small\">{}: {}</summary><table><thead><tr><th class=\"n\">{}</th>{}</tr>\
                 </thead><tbody>",
                escape(&panel.title),
                escape(&panel.label),
                escape(&file.x.label),
                heads.concat(),
            ),
        );
        for at in 0..drawn().map(|(_, dots)| dots.len()).max().unwrap_or(0) {
            let x = drawn().next().map_or(0.0, |(_, dots)| dots[at].x);
            let x = file.x.names.get(at).cloned().unwrap_or_else(|| tidy(x));
            let cells = drawn().map(|(_, dots)| {
                let value = metric.of(results.of(&dots[at].point));
                format!("<td class=\"n\">{}</td>", value.map_or("–".into(), tidy))
            });
            push(body, &format!("<tr><td class=\"n\">{}</td>{}</tr>", escape(&x), cells.collect::<Vec<_>>().concat()));
        }
        push(body, "</tbody></table></details>");
    }
}

fn readings(body: &mut String) {
    push(body, "<section><h2>How to read it</h2>");
    push(
        body,
        "<p>Every number is measured in virtual time by the simulator, which checks at every event that at most as \
         many are inside as there are slots, that fencing numbers rise, that no token is lost, and at the end that \
         everybody was served; a run that breaks a rule makes no report, unless its experiment is there to count \
         violations. Where clients come without number, the steady state is the time that is measured, and nobody waits \
         for the last to be served. The <em>steady state</em> leaves out each \
         peer's first entries (the warm-up), while the queue builds up, and all that comes after the first peer has \
         finished, while it runs dry. The <em>spread</em> is the longest wait less the mean wait. Rings in a plot are \
         published numbers. The <em>ideal</em> is no protocol: one line for all slots, kept by somebody who knows \
         everything at once, and one message from who leaves to who is next.</p>",
    );
    push(body, "</section>");
}

/// What differs between two runs with the same seed stands here and nowhere else.
fn run(body: &mut String, plan: &Plan, results: &Results, provenance: &Provenance) {
    push(body, "<section id=\"run\"><h2>Where it comes from</h2><table><tbody>");
    let kept = match results.resumed {
        0 => format!("{}", plan.points()),
        kept => format!("{}, of which {kept} were there from an earlier run", plan.points()),
    };
    for (name, value) in [
        ("command", &provenance.command),
        ("seed", &provenance.seed),
        ("version", &provenance.version),
        ("commit", &provenance.commit),
        ("different runs", &kept),
        ("time taken", &provenance.duration),
    ] {
        push(body, &format!("<tr><td>{name}</td><td><code>{}</code></td></tr>", escape(value)));
    }
    push(body, "</tbody></table></section>");
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "<span class=\"reproduced\">reproduced</span>",
        Verdict::Moved => "<span class=\"moved\">out of range</span>",
        Verdict::Differs => "<span class=\"differs\">differs</span>",
    }
}

const INFALLIBLE: &str = "a string takes whatever is written";

fn push(body: &mut String, line: &str) {
    body.push_str(line);
    body.push('\n');
}

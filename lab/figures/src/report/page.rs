//! The page: one file without scripts or external resources.

use super::draw::height;
use super::promises;
use super::{Provenance, amount, range, with_error};
use crate::figure::{Resolved, Statement};
use crate::plan::{Plan, Results, Verdict};
use crate::plot::{escape, tidy};

const STYLE: &str = include_str!("page.css");

pub fn html(plan: &Plan, results: &Results, plots: &[String], provenance: &Provenance) -> String {
    let mut body = String::new();
    let kind = if plan.quick { "quick run: fewer and shorter trials" } else { "full run" };
    put!(&mut body, "<h1>Figures, published and measured</h1>");
    put!(&mut body, "<p class=\"origin\">peerlock {}, {kind}</p>", escape(&provenance.version));
    contents(&mut body, plan);
    readings(&mut body, plan);
    summary(&mut body, plan, results);
    for (figure, svg) in plan.figures.iter().zip(plots) {
        section(&mut body, figure, results, svg);
    }
    run(&mut body, plan, results, provenance);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>peerlock: figures, published and measured</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

fn contents(body: &mut String, plan: &Plan) {
    put!(body, "<nav><ul>\n<li><a href=\"#reading\">How to read it</a></li>");
    if plan.figures.iter().any(|figure| !figure.numbers.is_empty()) {
        put!(body, "<li><a href=\"#numbers\">All published numbers</a></li>");
    }
    for figure in &plan.figures {
        let (id, title) = (escape(&figure.figure.id), escape(&figure.figure.file.title));
        put!(body, "<li><a href=\"#{id}\">{title}</a> <span class=\"id\">{id}</span></li>");
    }
    put!(body, "<li><a href=\"#run\">Provenance</a></li>\n</ul></nav>");
}

fn summary(body: &mut String, plan: &Plan, results: &Results) {
    let numbers: Vec<_> =
        plan.figures.iter().flat_map(|figure| figure.numbers.iter().map(move |n| (figure, n))).collect();
    if numbers.is_empty() {
        return;
    }
    let verdicts: Vec<Verdict> = numbers.iter().map(|(_, number)| results.judge(number).1).collect();
    let count = |verdict| verdicts.iter().filter(|&&other| other == verdict).count();
    let (unsure, may_differ, by_choice) = (count(Verdict::Unsure), count(Verdict::MayDiffer), count(Verdict::ByChoice));
    let moved = count(Verdict::Moved);
    let mut sentence = format!(
        "Of {} published numbers, {} are reproduced, and {} differ for the given reasons.",
        numbers.len(),
        count(Verdict::Reproduced) + unsure,
        count(Verdict::Differs) + may_differ,
    );
    if by_choice > 0 {
        sentence += &format!(" {by_choice} agree only because of a choice of ours.");
    }
    if unsure > 0 {
        sentence += &format!(" {unsure} of the reproduced ones have an interval that exceeds the range.");
    }
    if may_differ > 0 {
        sentence +=
            &format!(" {may_differ} of the differing ones have an interval that includes the published number.");
    }
    if moved > 0 {
        sentence += &format!(" <span class=\"moved\">{moved} are outside the claimed range.</span>");
    }
    put!(body, "<section id=\"numbers\"><h2>All published numbers</h2><p>{sentence}</p><div class=\"wide\">");
    put!(
        body,
        "<table class=\"numbers\"><thead><tr><th>figure</th><th>number</th><th class=\"n\">published</th>\
         <th class=\"n\">measured</th><th>verdict</th></tr></thead><tbody>"
    );
    for (figure, number) in numbers {
        let (measured, verdict) = results.judge(number);
        let id = escape(&figure.figure.id);
        put!(
            body,
            "<tr><td><a class=\"id\" href=\"#{id}\">{id}</a></td><td class=\"what\">{}, {}</td>\
                 <td class=\"says\">{}</td><td class=\"got\">{}</td><td>{}</td></tr>",
            escape(&number.published.curve),
            escape(&number.published.what),
            escape(&number.published.says),
            escape(&amount(measured, number.unit())),
            verdict_html(verdict)
        );
    }
    put!(body, "</tbody></table></div></section>");
}

fn section(body: &mut String, resolved: &Resolved, results: &Results, svg: &str) {
    let (id, file) = (escape(&resolved.figure.id), &resolved.figure.file);
    put!(body, "<section id=\"{id}\">");
    put!(body, "<h2>{} <span class=\"id\">{id}</span></h2>", escape(&file.title));
    put!(body, "<p><span class=\"origin\">{}.</span> {}</p>", escape(&file.origin), escape(&file.shows));
    if file.promises {
        put!(body, "{}", promises::html(resolved, results));
    }
    put!(body, "<div class=\"wide\">{svg}</div>");
    let settings = common(resolved);
    put!(body, "<p class=\"small\">{}</p>", escape(&settings));
    numbers(body, resolved, results);
    values(body, resolved, results);
    put!(
        body,
        "<p class=\"small\">Files: <a href=\"{id}.csv\">{id}.csv</a> (every metric of every run), \
             <a href=\"{id}.svg\">{id}.svg</a>, <a href=\"{id}.toml\">{id}.toml</a> (the experiment).</p>"
    );
    put!(body, "</section>");
}

fn common(resolved: &Resolved) -> String {
    let runs: Vec<_> = resolved.dots.iter().flatten().flatten().map(|dot| dot.point.pairs()).collect();
    let shared = runs.first().into_iter().flatten().filter(|pair| runs.iter().all(|run| run.contains(pair)));
    let shared: Vec<String> = shared.map(|(name, value)| format!("{name} {value}")).collect();
    format!("In all runs: {}.", shared.join(", "))
}

fn numbers(body: &mut String, resolved: &Resolved, results: &Results) {
    if resolved.numbers.is_empty() {
        return;
    }
    put!(
        body,
        "<div class=\"wide\"><table class=\"numbers\"><thead><tr><th>number</th><th class=\"n\">published</th>\
         <th class=\"n\">measured</th><th>verdict</th><th>reading</th></tr></thead><tbody>"
    );
    for number in &resolved.numbers {
        let (measured, verdict) = results.judge(number);
        let mut reading = format!("Measured: {}.", number.metric.reading);
        if let Some(over) = &number.published.times_less_than {
            reading += &format!(" Ratio: the value of {over} divided by this one.");
        }
        if number.bend.is_some() {
            reading.push_str(" Bend: the slope of the second interval divided by that of the first.");
        }
        let claim = match number.published.claim {
            Statement::Reproduced => "Claimed",
            Statement::Differs => "Found instead",
            Statement::ByChoice => "Found",
        };
        reading += &format!(" {claim}: {}.", range(number.accept, number.unit()));
        if let Some(why) = &number.published.why {
            reading += &format!(" {why}");
        }
        put!(
            body,
            "<tr><td class=\"what\">{}, {}</td><td class=\"says\">{}</td><td class=\"got\">{}</td><td>{}</td>\
                 <td class=\"reading\">{}</td></tr>",
            escape(&number.published.curve),
            escape(&number.published.what),
            escape(&number.published.says),
            escape(&amount(measured, number.unit())),
            verdict_html(verdict),
            escape(&reading)
        );
    }
    put!(body, "</tbody></table></div>");
}

fn values(body: &mut String, resolved: &Resolved, results: &Results) {
    let file = &resolved.figure.file;
    for (number, panel) in file.panels.iter().enumerate() {
        let Some(metric) = resolved.metrics[number] else { continue };
        let drawn = || file.curves.iter().zip(&resolved.dots[number]).filter(|(_, dots)| !dots.is_empty());
        let heads: Vec<String> =
            drawn().map(|(curve, _)| format!("<th class=\"n\">{}</th>", escape(&curve.label))).collect();
        put!(
            body,
            "<details><summary class=\"small\">{}: {}</summary><div class=\"wide\"><table><thead><tr>\
                 <th class=\"n\">{}</th>{}</tr></thead><tbody>",
            escape(&panel.title),
            escape(&panel.label),
            escape(&file.x.label),
            heads.concat()
        );
        for at in 0..drawn().map(|(_, dots)| dots.len()).max().unwrap_or(0) {
            let x = drawn().next().map_or(0.0, |(_, dots)| dots[at].x);
            let x = file.x.names.get(at).cloned().unwrap_or_else(|| tidy(x));
            let cells = drawn().map(|(_, dots)| {
                let value = height(&dots[at], metric, panel, (resolved, number), results);
                format!("<td class=\"n\">{}</td>", value.map_or("–".into(), with_error))
            });
            put!(body, "<tr><td class=\"n\">{}</td>{}</tr>", escape(&x), cells.collect::<Vec<_>>().concat());
        }
        put!(body, "</tbody></table></div></details>");
    }
}

fn readings(body: &mut String, plan: &Plan) {
    put!(body, "<section id=\"reading\"><h2>How to read it</h2>");
    if plan.quick {
        put!(
            body,
            "<p>This is a quick run: fewer and shorter trials, fewer values. Texts below that mention 10 or 100 trials \
             refer to the full run; the settings under each plot are those of this run.</p>"
        );
    }
    put!(
        body,
        "<p><strong>Verdicts.</strong> <em>Reproduced</em>: the measured number and its whole interval are in the \
         range that the experiment file claims. <em>Reproduced, not certain</em>: the number is in the range, but its \
         interval exceeds it. <em>Differs</em>: we do not reproduce the number; the reason is given, and the range of \
         our number. <em>Differs, not certain</em>: the same, but the interval includes the published number. <em>By \
         choice</em>: the number agrees, but only because of a choice that the paper leaves open; this is no \
         reproduction. <em>Out of range</em>: the number is not in its range, and the command fails. A published \
         number that is not printed in the paper (but computed from a formula or read from a plot) is marked.</p>\n\
         <p><strong>Intervals.</strong> Trials are independent. Bars and numbers after ± are 95 % confidence intervals \
         over trials: Student's for means, Wilson's for shares of trials; the relative errors of a ratio are combined, \
         and so are the errors of the three points of a bend. A percentile has the interval of its per-trial values. \
         A maximum over all trials, and a single trial, have none.</p>\n\
         <p><strong>Measurement.</strong> The simulator measures in virtual time. It checks at every event that there \
         are at most as many holders as slots, that fencing numbers increase and no token is lost, and at the end that \
         every client was served. A run with a violation gives no report, unless its experiment counts violations. A \
         client without a hold time (Sigma's figures 3, 7 and 8) counts as holder until its first message after the \
         release arrives: before that no other client can be granted the slot. In an open workload the steady state is \
         the measured time. Otherwise it omits each peer's first entries (the warm-up), while the queue builds up, and \
         everything after the first peer has finished. The <em>spread</em> is the longest wait less the mean wait. \
         Shares of violating entries are of whole runs, in rounds including the time before and after them. Rings in a \
         plot are published numbers. The <em>ideal</em> is not a protocol: one global queue, and one message from the \
         releasing client to the next.</p>\n</section>"
    );
}

/// Writes the provenance, the only part in which two reports with the same seed differ.
fn run(body: &mut String, plan: &Plan, results: &Results, provenance: &Provenance) {
    put!(body, "<section id=\"run\"><h2>Provenance</h2><table><tbody>");
    let stored = match results.resumed {
        0 => format!("{}", plan.points()),
        stored => format!("{}, of which {stored} are from an earlier run", plan.points()),
    };
    for (name, value) in [
        ("command", &provenance.command),
        ("seed", &provenance.seed),
        ("version", &provenance.version),
        ("commit", &provenance.commit),
        ("distinct runs", &stored),
        ("duration", &provenance.duration),
    ] {
        put!(body, "<tr><td>{name}</td><td><code>{}</code></td></tr>", escape(value));
    }
    put!(body, "</tbody></table></section>");
}

fn verdict_html(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "<span class=\"reproduced\">reproduced</span>",
        Verdict::Unsure => "<span class=\"reproduced\">reproduced, not certain</span>",
        Verdict::Moved => "<span class=\"moved\">out of range</span>",
        Verdict::Differs => "<span class=\"differs\">differs</span>",
        Verdict::MayDiffer => "<span class=\"differs\">differs, not certain</span>",
        Verdict::ByChoice => "<span class=\"differs\">by choice</span>",
    }
}

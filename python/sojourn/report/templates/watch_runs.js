
follow(({ runs, begun }) => {
  // The folder was empty, and has become a run's.
  if (begun) { location.reload(); return; }
  byId("none").hidden = runs.length > 0;
  byId("runs").replaceChildren(...runs.map((run) => {
    const line = make("li");
    const state = run.verdict && run.state === "finished" ? run.verdict : run.state;
    line.append(make("span", state, { class: `badge ${run.verdict || TONES[run.state] || "note"}` }));
    const said = make("div");
    said.append(make("a", run.name, { href: `${encodeURIComponent(run.name)}/` }));
    const more = [run.study, run.total ? `${run.done} of ${run.total} trials` : "", new Date(run.changed * 1000).toLocaleString("sv")];
    said.append(make("p", more.filter(Boolean).join(" · "), { class: "small muted" }));
    if (run.sentence) said.append(make("p", run.sentence, { class: "small" }));
    line.append(said);
    return line;
  }));
});

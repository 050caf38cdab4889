/** Training events as lines. */

import { useEffect, useRef, useState } from "react";

import type { Backend } from "../backend";
import type { Line } from "../draw/line_chart";
import type { Run, Training } from "../records";

export type Across = "updates" | "minutes" | "epochs";
const EVERY = 1500; // milliseconds between looks at runs that train

/** All events so far. The curves grow while a run trains in another process. A run that has stopped is looked at again
 * only when the window gets the focus: it may have been resumed. */
export function useHistories(backend: Backend, runs: Run[]): { histories: Map<string, Training>; problem: string | null } {
  const [histories, setHistories] = useState<Map<string, Training>>(new Map());
  const [problem, setProblem] = useState<string | null>(null);
  const kept = useRef(histories);
  const ids = runs.map((run) => run.id).join("\n");
  useEffect(() => {
    let wanted = true;
    let timer = 0;
    const isTraining = (id: string) => !kept.current.get(id)?.stopped;
    const look = async (which: string[]) => {
      window.clearTimeout(timer);
      try {
        const news = await Promise.all(which.map((id) => backend.training(id, kept.current.get(id)?.offset ?? 0)));
        if (!wanted) return;
        const changed = news.filter((one) => one.offset !== kept.current.get(one.run)?.offset || one.restarted);
        if (changed.length) {
          kept.current = new Map(kept.current);
          for (const one of changed) kept.current.set(one.run, joined(kept.current.get(one.run), one));
          setHistories(kept.current);
        }
        setProblem(null);
      } catch (error) {
        if (wanted) setProblem(error instanceof Error ? error.message : String(error));
      }
      window.clearTimeout(timer);
      const next = all.filter(isTraining);
      if (wanted && !backend.page && next.length) timer = window.setTimeout(() => void look(next), EVERY);
    };
    const all = ids.split("\n").filter(Boolean);
    const again = () => void look(all);
    void look(all);
    if (!backend.page) window.addEventListener("focus", again);
    return () => {
      wanted = false;
      window.clearTimeout(timer);
      window.removeEventListener("focus", again);
    };
  }, [backend, ids]);
  return { histories, problem };
}

function joined(before: Training | undefined, news: Training): Training {
  if (!before || news.restarted) return news;
  return {
    ...news,
    stopped: news.stopped ?? (news.started.length + news.stepped.length + news.validated.length ? null : before.stopped),
    started: [...before.started, ...news.started],
    stepped: [...before.stepped, ...news.stepped],
    validated: [...before.validated, ...news.validated],
  };
}

/** A resumed run may have reported some updates twice: the last report counts. */
function once<Event extends { update: number }>(events: Event[]): Event[] {
  const found: Event[] = [];
  for (const event of events) {
    while (found.length && found[found.length - 1].update >= event.update) found.pop();
    found.push(event);
  }
  return found;
}

function smoothed(points: [number, number][], strength: number): [number, number][] {
  if (!strength) return points;
  let mean = points[0]?.[1] ?? 0;
  return points.map(([x, y]) => [x, (mean = strength * mean + (1 - strength) * y)]);
}

export interface Curves {
  loss: Line[];
  scores: { metric: string; lowerIsBetter: boolean; lines: Line[] }[]; // one for each metric: they have different scales
  rate: Line[];
  speed: Line[];
  norm: Line[];
}

export function curves(runs: Run[], histories: Map<string, Training>, colours: Map<string, number>, across: Across, smooth: number): Curves {
  const made: Curves = { loss: [], scores: [], rate: [], speed: [], norm: [] };
  for (const run of runs) {
    const history = histories.get(run.id);
    if (!history) continue;
    const colour = colours.get(run.id) ?? 0;
    const batches = history.started[history.started.length - 1]?.batches || 1;
    const x = (event: { update: number; seconds: number }) =>
      across === "updates" ? event.update : across === "minutes" ? event.seconds / 60 : event.update / batches;
    const stepped = once(history.stepped);
    const validated = once(history.validated);
    const line = <Event extends { update: number; seconds: number }>(name: string, events: Event[], value: (event: Event) => number | null, dots: boolean): Line => ({
      name,
      run: colour,
      dots,
      points: smoothed(
        events.flatMap((event): [number, number][] => {
          const y = value(event);
          return y === null || !Number.isFinite(y) ? [] : [[x(event), y]];
        }),
        dots ? 0 : smooth,
      ),
    });
    made.loss.push(line(`${run.name}, training`, stepped, (event) => event.loss, false), line(`${run.name}, dev`, validated, (event) => event.loss, true));
    for (const metric of new Set(validated.map((event) => event.metric))) {
      const measured = validated.filter((event) => event.metric === metric);
      const negated = measured.some((event) => (event.score ?? 0) < 0);
      let score = made.scores.find((one) => one.metric === metric);
      if (!score) made.scores.push((score = { metric, lowerIsBetter: false, lines: [] }));
      score.lowerIsBetter ||= negated;
      score.lines.push(line(run.name, measured, (event) => (event.score === null ? null : negated ? -event.score : event.score), true));
    }
    made.rate.push(line(run.name, stepped, (event) => event.learning_rate, false));
    made.speed.push(line(run.name, stepped, (event) => event.tokens_per_second, false));
    made.norm.push(line(run.name, stepped, (event) => event.gradient_norm, false));
  }
  return made;
}

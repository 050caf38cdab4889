/** Training events as lines. */

import { useEffect, useRef, useState } from "react";

import type { Backend } from "../backend";
import type { Line } from "../draw/line_chart";
import type { Run, Training } from "../records";

export type Across = "updates" | "minutes" | "epochs";
const EVERY = 1500; // milliseconds between looks at a run that trains

/** All events so far; the curves grow while a run trains in another process. */
export function useHistories(backend: Backend, runs: Run[]): { histories: Map<string, Training>; problem: string | null } {
  const [histories, setHistories] = useState<Map<string, Training>>(new Map());
  const [problem, setProblem] = useState<string | null>(null);
  const kept = useRef(histories);
  const ids = runs.map((run) => run.id).join("\n");
  useEffect(() => {
    let wanted = true;
    let timer = 0;
    const look = async () => {
      try {
        const news = await Promise.all(
          ids.split("\n").filter(Boolean).map((id) => backend.training(id, kept.current.get(id)?.offset ?? 0)),
        );
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
      if (wanted && !backend.page) timer = window.setTimeout(look, EVERY);
    };
    void look();
    return () => {
      wanted = false;
      window.clearTimeout(timer);
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

/** A run that was stopped and went on has told some updates twice: the last telling counts. */
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
  score: Line[];
  scoreName: string;
  lowerIsBetter: boolean;
  rate: Line[];
  speed: Line[];
  norm: Line[];
}

export function curves(runs: Run[], histories: Map<string, Training>, colours: Map<string, number>, across: Across, smooth: number): Curves {
  const made: Curves = { loss: [], score: [], scoreName: "", lowerIsBetter: false, rate: [], speed: [], norm: [] };
  const names = new Set<string>();
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
    const negated = validated.some((event) => (event.score ?? 0) < 0);
    made.lowerIsBetter ||= negated;
    made.score.push(line(run.name, validated, (event) => (event.score === null ? null : negated ? -event.score : event.score), true));
    validated.forEach((event) => names.add(event.metric));
    made.rate.push(line(run.name, stepped, (event) => event.learning_rate, false));
    made.speed.push(line(run.name, stepped, (event) => event.tokens_per_second, false));
    made.norm.push(line(run.name, stepped, (event) => event.gradient_norm, false));
  }
  made.scoreName = [...names].join(", ") || "score";
  return made;
}

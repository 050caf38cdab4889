/** Asking the backend: the answer, whether it is still on its way, and what went wrong. */

import { useCallback, useEffect, useRef, useState } from "react";

export interface Asked<Answer> {
  answer: Answer | null;
  busy: boolean;
  problem: string | null;
}

const NOTHING = { answer: null, busy: false, problem: null };
const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Ask when called. The answer to an earlier question is dropped once a later one is asked. */
export function useAsking<Answer>(): [Asked<Answer>, (question: () => Promise<Answer>) => Promise<Answer | null>, () => void] {
  const [asked, setAsked] = useState<Asked<Answer>>(NOTHING);
  const turn = useRef(0);
  const ask = useCallback(async (question: () => Promise<Answer>) => {
    const mine = ++turn.current;
    setAsked((before) => ({ answer: before.answer, busy: true, problem: null }));
    try {
      const answer = await question();
      if (mine !== turn.current) return null;
      setAsked({ answer, busy: false, problem: null });
      return answer;
    } catch (error) {
      if (mine === turn.current) setAsked((before) => ({ answer: before.answer, busy: false, problem: message(error) }));
      return null;
    }
  }, []);
  const forget = useCallback(() => {
    turn.current++;
    setAsked(NOTHING);
  }, []);
  return [asked, ask, forget];
}

const MOST_KEPT = 12;
const MOST_LARGE = 2; // of attention and trees, which may have many megabytes
const isLarge = (key: string): boolean => /^\["(attention|tree)"/.test(key);
const answers = new Map<string, unknown>(); // the latest answers, so that a view that was left comes back at once

/** Forget an answer, so that it is asked for again. */
export function forgetAnswer(key: string): void {
  answers.delete(key);
}

function keep(key: string, answer: unknown): void {
  answers.delete(key);
  answers.set(key, answer);
  const large = [...answers.keys()].filter(isLarge);
  const small = [...answers.keys()].filter((one) => !isLarge(one));
  for (const old of [...large.slice(0, -MOST_LARGE), ...small.slice(0, -MOST_KEPT)]) answers.delete(old);
}

/** Ask whenever `key` changes; null asks nothing. Answers are kept. With `turn`, the same key is asked again. */
export function useAnswer<Answer>(key: string | null, question: () => Promise<Answer>, turn = 0): Asked<Answer> {
  const place = `${turn} ${key}`;
  const [asked, setAsked] = useState<{ place: string; problem: string | null }>({ place: "", problem: null });
  const latest = useRef(question);
  latest.current = question;
  useEffect(() => {
    if (key === null || answers.has(key)) return;
    let wanted = true;
    latest.current().then(
      (answer) => {
        keep(key, answer);
        if (wanted) setAsked({ place, problem: null });
      },
      (error) => wanted && setAsked({ place, problem: message(error) }),
    );
    return () => {
      wanted = false;
    };
  }, [key, place]);
  if (key === null) return NOTHING;
  if (answers.has(key)) return { answer: answers.get(key) as Answer, busy: false, problem: null };
  return asked.place === place ? { answer: null, busy: false, problem: asked.problem } : { answer: null, busy: true, problem: null };
}

/** One question at a time: what was answered, whether an answer is on its way, what went wrong. */

import { useCallback, useEffect, useRef, useState } from "react";

export interface Asked<Answer> {
  answer: Answer | null;
  busy: boolean;
  problem: string | null;
}

const NOTHING = { answer: null, busy: false, problem: null };
const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Ask when told to; a later question makes an earlier answer worthless. */
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

/** Ask whenever `key` changes; null asks nothing. The answer to the key before is forgotten. */
export function useAnswer<Answer>(key: string | null, question: () => Promise<Answer>): Asked<Answer> {
  const [kept, setKept] = useState<{ key: string | null; asked: Asked<Answer> }>({ key: null, asked: NOTHING });
  const latest = useRef(question);
  latest.current = question;
  useEffect(() => {
    if (key === null) return;
    let wanted = true;
    latest.current().then(
      (answer) => wanted && setKept({ key, asked: { answer, busy: false, problem: null } }),
      (error) => wanted && setKept({ key, asked: { answer: null, busy: false, problem: message(error) } }),
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  if (key === null) return NOTHING;
  return kept.key === key ? kept.asked : { answer: null, busy: true, problem: null };
}

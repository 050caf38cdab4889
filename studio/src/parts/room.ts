import { useLayoutEffect, useRef, useState, type RefObject } from "react";

/** Return the width of an element in pixels. */
export function useRoom<Kind extends HTMLElement>(): [RefObject<Kind | null>, number] {
  const element = useRef<Kind>(null);
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => {
    const measured = element.current!;
    setRoom(measured.clientWidth);
    const observer = new ResizeObserver(() => setRoom(measured.clientWidth));
    observer.observe(measured);
    return () => observer.disconnect();
  }, []);
  return [element, room];
}

// Shared state: a value, those who watch it, and a hook that redraws a component when its part changes.
import { useEffect, useRef, useState } from "../vendor/preact.js";

export function createState(value) {
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      value = typeof next === "function" ? next(value) : { ...value, ...next };
      for (const watch of [...watchers]) watch(value);
    },
    watch(watch) {
      watchers.add(watch);
      return () => watchers.delete(watch);
    },
  };
}

export function useShared(state, pick = (value) => value) {
  const [, redraw] = useState(0);
  const picking = useRef(pick);
  picking.current = pick;
  const shown = useRef();
  shown.current = pick(state.get());
  useEffect(() => {
    const look = (value) => picking.current(value) !== shown.current && redraw((count) => count + 1);
    look(state.get()); // it may have changed since it was drawn
    return state.watch(look);
  }, [state]);
  return shown.current;
}

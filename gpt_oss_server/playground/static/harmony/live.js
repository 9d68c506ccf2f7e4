// The trace of a response, read again and again while the response is generated.
import { useEffect, useState } from "../vendor/preact.js";
import { traceOf } from "../lib/api.js";

const PAUSE = 500;

export function useTrace(id, running) {
  const [found, setFound] = useState({ id: null, trace: null, problem: "" });
  useEffect(() => {
    if (!id) return undefined;
    const control = new AbortController();
    let timer;
    const read = async () => {
      const began = performance.now();
      try {
        const trace = await traceOf(id, control.signal);
        setFound({ id, trace, problem: "" });
      } catch (error) {
        if (error.name === "AbortError") return;
        setFound((before) => (before.id === id && before.trace ? before : { id, trace: null, problem: error.message }));
      }
      // A long trace takes long to make: it is read at most a fifth of the time.
      if (running && !control.signal.aborted) timer = setTimeout(read, Math.max(PAUSE, 4 * (performance.now() - began)));
    };
    read();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [id, running]);
  return found.id === id ? found : { id, trace: null, problem: "" };
}

// The schema engine leaves timers behind, for 10 s and 60 s, for which the process would wait.
const { setTimeout } = globalThis;
globalThis.setTimeout = (call, ms, ...more) => {
    const timer = setTimeout(call, ms, ...more);
    return ms < 10_000 ? timer : timer.unref();
};

// Random numbers that a printed seed reproduces.

/** Uniform in [0, 1), by mulberry32. */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/**
 * The one that the environment names (`SEED=…`), else `fixed`: what `npm test` runs is the same each time.
 * Without either a new one, for the soak; print it, so that a failure can be repeated.
 */
export function chooseSeed(fixed?: number): number {
  return Number(process.env['SEED'] ?? fixed ?? Math.floor(Math.random() * 2 ** 31));
}

// Tracks the greatest value within a sliding time window.

interface LoadSample {
  at: number;
  value: number;
}

export class LoadPeak {
  /** Decreasing values: one that is followed by a greater one can never be the peak again. */
  #samples: LoadSample[] = [];

  /** @returns the greatest value of the last `windowMs`, this one included */
  note(value: number, now: number, windowMs: number): number {
    while ((this.#samples.at(-1)?.value ?? Number.POSITIVE_INFINITY) <= value) this.#samples.pop();
    this.#samples.push({ at: now, value });
    while ((this.#samples[0]?.at ?? now) < now - windowMs) this.#samples.shift();
    return this.#samples[0]?.value ?? value;
  }
}

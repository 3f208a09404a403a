// A generator is a streaming handler: each yield reaches the client while the job is running.
import type { Context, Job } from 'millrace';

interface Range {
  /** Primes up to this one. */
  limit: number;
}

export default async function* streamPrimes({ input }: Job<Range>, ctx: Context) {
  const { limit } = input;
  const isComposite = new Uint8Array(limit + 1);
  for (let candidate = 2; candidate <= limit; candidate += 1) {
    // Counted up here and there, sent with the next chunk.
    ctx.metrics.add('tested', 1);
    if (isComposite[candidate] === 1) continue;
    for (let multiple = candidate * candidate; multiple <= limit; multiple += candidate) {
      isComposite[multiple] = 1;
    }
    ctx.progress({ percent: Math.floor((100 * candidate) / limit) });
    // Metrics of this one chunk.
    yield ctx.chunk(candidate, { digits: String(candidate).length });
  }
}

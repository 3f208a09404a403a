// Counts like counting.ts, or kills its thread by process.exit, or blocks its thread forever.
import type { Context, Job } from 'millrace';
import count, { type Count } from './counting.ts';

export interface Peril {
  do: 'count' | 'exit' | 'spin';
  count: Count;
}

export default function act({ id, input }: Job<Peril>, ctx: Context): unknown {
  switch (input.do) {
    case 'count':
      return count({ id, input: input.count }, ctx);
    case 'exit':
      return process.exit(input.count.n % 2);
    case 'spin':
      for (;;);
  }
}

// Runs until it is stopped, and tells a URL the moment it began and the moment of its signal.
// The machine's monotonic clock is the same in all processes.
import { request } from 'undici';

interface Input {
  /** Attempts from this one on end at once. */
  until: number;
  tell: string;
}

interface Context {
  attempt: number;
  signal: AbortSignal;
}

export default async function linger(job: { id: string; input: Input }, ctx: Context) {
  const { until, tell } = job.input;
  const say = async (event: 'began' | 'stopped', at: bigint) => {
    const body = JSON.stringify({ job: job.id, event, attempt: ctx.attempt, at: String(at) });
    const answer = await request(tell, { method: 'POST', body });
    await answer.body.dump();
  };
  const stopped = new Promise<bigint>((resolve) => {
    ctx.signal.addEventListener('abort', () => resolve(process.hrtime.bigint()));
  });
  await say('began', process.hrtime.bigint());
  if (ctx.attempt < until) await say('stopped', await stopped);
}

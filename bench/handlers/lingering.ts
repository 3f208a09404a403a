// Runs until it is stopped, and posts the times of its start and of its signal to a URL. The
// machine's monotonic clock is the same in all processes.
import { request } from 'undici';

interface Input {
  /** Attempts with this number or a higher one end at once. */
  until: number;
  postUrl: string;
}

interface Context {
  attempt: number;
  signal: AbortSignal;
}

export default async function linger(job: { id: string; input: Input }, ctx: Context) {
  const { until, postUrl } = job.input;
  const post = async (event: 'began' | 'stopped', at: bigint) => {
    const body = JSON.stringify({ job: job.id, event, attempt: ctx.attempt, at: String(at) });
    const answer = await request(postUrl, { method: 'POST', body });
    await answer.body.dump();
  };
  const stopped = new Promise<bigint>((resolve) => {
    ctx.signal.addEventListener('abort', () => resolve(process.hrtime.bigint()));
  });
  await post('began', process.hrtime.bigint());
  if (ctx.attempt < until) await post('stopped', await stopped);
}
